#!/bin/sh
# Format, lint, types, import rules and the unit tests: what a commit has to pass.
set -eu
cd "$(dirname "$0")/.."
bunx biome check --error-on-warnings .
bunx tsc --noEmit
bun test unit --timeout 60000
