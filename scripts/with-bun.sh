#!/bin/sh
# Runs a command with the pinned Bun first on PATH, after setting up whatever is missing.
set -eu
here="$(cd "$(dirname "$0")" && pwd)"
bin="$("$here/setup.sh" | tail -n 1)"
PATH="$bin:$PATH"
export PATH
cd "$here/.."
exec "$@"
