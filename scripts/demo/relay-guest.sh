#!/usr/bin/env bash
# Runs inside the guest for `scripts/run relay-guest`, on the pair network: two instances of Isthmus, one by rxe0
# (conf/relay-verbs-a.toml) and one by rxe1 (conf/relay-verbs-b.toml), for the seconds given.
set -euo pipefail
duration_s=$1
work=$(mktemp -d /run/demo.XXXXXX)

# start END: one instance, with the addresses of this guest, sharing its two CPUs, and a table for people.
start() {
  sed -e 's/10\.9\.0\./198.18.0./g' -e 's/^poll = .*/poll = "adaptive"/' -e 's/^\[stats\]/[stats]\nformat = "table"/' \
    "conf/relay-verbs-$1.toml" >"$work/$1.toml"
  grep -q '^\[stats\]' "$work/$1.toml" || printf '\n[stats]\nformat = "table"\n' >>"$work/$1.toml"
  "$ISTHMUS_BIN" run "$work/$1.toml" >"$work/$1.log" 2>&1 &
}

# finish PID END: waits for it, then shows its output, because the two at once would be unreadable.
finish() {
  local status=0
  wait "$1" || status=$?
  printf '\n---- relay-%s\n' "$2"
  cat "$work/$2.log"
  [ $status = 0 ] || echo "relay-$2 ended with status $status"
  return $status
}

start b
b=$!
start a
a=$!
sleep "$duration_s"
kill -TERM $a $b 2>/dev/null || true
status=0
finish $a a || status=$?
finish $b b || status=$?
exit $status
