#!/bin/sh
# The whole suite: static checks, the build, every test. The last line counts them, from the runner's own report.
set -eu
cd "$(dirname "$0")/.."
bunx biome check --error-on-warnings .
bunx tsc --noEmit
sh scripts/build.sh
mkdir -p .tmp
report=".tmp/junit.$$.xml"
trap 'rm -f "$report"' EXIT
status=0
bun test --timeout 60000 --reporter=junit --reporter-outfile="$report" "$@" || status=$?
bun scripts/count-tests.ts "$report" || status=1
exit "$status"
