#!/usr/bin/env bash
# limit: 400
# A million GETs on virtual time, with READs that linger and tear, evictions and restarts: nobody may see what was not there.
set -uo pipefail
cd "$(dirname -- "${BASH_SOURCE[0]}")/../.." || exit 1
# On two CPUs: 200,000 GETs of each of seeds 0 to 2, and of seeds 3 and 4. Their number says what is special about each.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! cargo build --quiet --profile guest --example kv_race 2>&1 | sed 's/^/# /'; then
  echo "not ok the race between GETs and everything else can be built"
  exit 0
fi
race=${CARGO_TARGET_DIR:-target}/guest/examples/kv_race failed=0
"$race" 600_000 0 >"$work/0" 2>&1 &
other=$!
"$race" 400_000 3 >"$work/3" 2>&1 || failed=1
wait $other || failed=1
sed 's/^/# /' "$work"/*
if [ $failed = 0 ]; then
  echo "ok a million GETs see only what was there"
else
  echo "not ok a million GETs see only what was there"
fi
