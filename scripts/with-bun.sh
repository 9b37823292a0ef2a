#!/bin/sh
# Runs a command with the pinned Bun first on PATH, after setting up whatever is missing.
set -eu
here="$(cd "$(dirname "$0")" && pwd)"
# Not one pipe: its status would be that of `tail`.
out="$(sh "$here/setup.sh")" || exit
bin="$(printf '%s\n' "$out" | tail -n 1)"
PATH="$bin:$PATH"
export PATH
cd "$here/.."
exec "$@"
