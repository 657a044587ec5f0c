#!/usr/bin/env bash
# Runs inside the guest for `scripts/run relay`, on the pair network: two instances of Isthmus, one by rxe0
# (conf/relay-a.toml) and one by rxe1 (conf/relay-b.toml), for the seconds given.
set -euo pipefail
duration_s=$1

# start CONF NAME: one instance, in memory of its own, its output in a file of its own.
start() {
  "$ISTHMUS_BIN" --in-memory -m 128 --file-prefix "$2" -- run "$1" >"/run/$2.log" 2>&1 &
}

# finish PID NAME: waits for it, then shows its output, because the two at once would be unreadable.
finish() {
  local status=0
  wait "$1" || status=$?
  printf '\n---- %s\n' "$2"
  cat "/run/$2.log"
  [ $status = 0 ] || echo "$2 ended with status $status"
  return $status
}

start conf/relay-b.toml relay-b
b=$!
start conf/relay-a.toml relay-a
a=$!
sleep "$duration_s"
kill -TERM $a $b 2>/dev/null || true
status=0
finish $a relay-a || status=$?
finish $b relay-b || status=$?
exit $status
