#!/bin/sh
# Everything that a fresh clone needs: Bun at its pinned version (from npm, into .tools) and the dependencies.
# Prints the folder that `bun` is in as its last line. May be run again at any time.
set -eu
cd "$(dirname "$0")/.."
BUN_VERSION=1.4.5
bin="$PWD/.tools/node_modules/.bin"
if [ "$("$bin/bun" --version 2>/dev/null || true)" != "$BUN_VERSION" ]; then
  mkdir -p .tools
  [ -f .tools/package.json ] || echo '{"private":true}' >.tools/package.json
  npm install --prefix .tools --no-audit --no-fund --loglevel=error "bun@$BUN_VERSION" >&2
fi
# Some versions of npm do not run a package's install script: then Bun's own is run by hand.
if [ "$("$bin/bun" --version 2>/dev/null || true)" != "$BUN_VERSION" ]; then
  (cd .tools/node_modules/bun && node install.js) >&2
fi
PATH="$bin:$PATH"
export PATH
bun install --frozen-lockfile >&2
echo "$bin"
