#!/usr/bin/env bash
# limit: 400
# A million GETs on virtual time, with READs that linger and tear, evictions and restarts: nobody may see what was not there.
set -uo pipefail
cd "$(dirname -- "${BASH_SOURCE[0]}")/../.." || exit 1
if cargo run --quiet --profile guest --example kv_race -- 1_000_000 2>&1 | sed 's/^/# /'; then
  echo "ok a million GETs see only what was there"
else
  echo "not ok a million GETs see only what was there"
fi
