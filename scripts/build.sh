#!/bin/sh
# dist/dispatchd: one file for every subcommand. No .env and no bunfig.toml of a working directory is loaded by it.
set -eu
cd "$(dirname "$0")/.."
mkdir -p dist
# Published by rename: a daemon that runs from the old file keeps it.
out="dist/.dispatchd.$$"
trap 'rm -f "$out" "$out.js"' EXIT
# Split: a subcommand loads its own part and nothing of the others, which is what makes a start short.
bun build --compile --minify --bytecode --format=esm --splitting \
  --no-compile-autoload-dotenv --no-compile-autoload-bunfig --outfile "$out" src/main.ts src/frames/large-line-worker.ts
mv "$out" dist/dispatchd
# dispatchd/client, for a control plane on Node or Bun.
bun build src/client/index.ts --target node --format esm --outfile "$out.js" >/dev/null
mv "$out.js" dist/client.js
# Its types; check.sh has checked them.
bunx tsc -p tsconfig.client.json --outDir dist/types
