#!/usr/bin/env bash
# limit: 60
# What README.md has a newcomer type: scripts/run, the lines it prints, and its end by a signal to the script.
set -uo pipefail

[ "$(id -u)" = 0 ] || { echo "1..0 # SKIP making a network interface takes root" && exit 0; }
[ -c /dev/net/tun ] || { echo "1..0 # SKIP there is no /dev/net/tun" && exit 0; }
! ip link show dev isthmus0 >/dev/null 2>&1 || { echo "1..0 # SKIP there is an interface isthmus0 already" && exit 0; }

project=$(cd "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
: >"$work/err"
"$project/scripts/run" --no-setup >"$work/out" 2>"$work/err" &
script=$!
trap 'kill -KILL $script 2>/dev/null; rm -rf "$work"' EXIT

for _ in {1..300}; do
  ! grep -q "every memory node has answered" "$work/err" || break
  sleep 0.1
done
# The lines themselves, as they are printed.
sed -n '/kv() {/,/get greeting/p' "$work/err" >"$work/lines"
answers=$(bash "$work/lines" | tr -d '\r' | tr '\n' ' ')
if [ "$answers" = "STORED VALUE greeting 0 5 hello END " ]; then
  echo "ok the lines that are printed store and read a value"
else
  echo "not ok the lines that are printed store and read a value # $answers"
  sed 's/^/# /' "$work/err"
fi

kill -TERM "$script"
wait "$script"
status=$?
if [ $status = 0 ] && grep -q "^isthmus ran" "$work/out" && ! ip link show dev isthmus0 >/dev/null 2>&1; then
  echo "ok a signal to the script has it drain, report and end"
else
  echo "not ok a signal to the script has it drain, report and end # status $status"
  tail -n 30 "$work/out" "$work/err" | sed 's/^/# /'
fi
