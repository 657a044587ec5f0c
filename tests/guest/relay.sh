#!/usr/bin/env bash
# guest: --network pair
# limit: 900
# The relay over kernel soft-RoCE: two processes, rxe0 and rxe1, counted to the frame.
set -uo pipefail
here=$(cd "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)/relay
work=$(mktemp -d /run/relay.XXXXXX)

# start END: one process in the background.
start() {
  "$ISTHMUS_BIN" run "$work/$1.toml" >>"$work/$1.out" 2>>"$work/$1.err" &
}

# both_run: whether neither process has ended.
both_run() { kill -0 "$a" 2>/dev/null && kill -0 "$b" 2>/dev/null; }

# stop PID: SIGTERM, then its status.
stop() {
  kill -TERM "$1" 2>/dev/null
  wait "$1"
}

# verdict NAME: `ok` or `not ok` by the status of the command before it.
verdict() {
  if [ "$1" = 0 ]; then
    echo "ok $2"
  else
    echo "not ok $2"
    tail -n 15 "$work"/*.err
  fi
}

fresh() { rm -f "$work"/*; }

# Frames of zeros, 2 workers with 2 queue pairs each, at least a million.
fresh
"$here/make_conf.py" "$work" null
start b; b=$!
start a; a=$!
status=0
for _ in $(seq 100); do
  sleep 1
  both_run || break
  rx=$(tail -n 1 "$work/a.out" 2>/dev/null | grep -o '"rx_packets":[0-9]*' | head -n 1 | cut -d: -f2)
  [ "${rx:-0}" -lt 1200000 ] || break
done
stop $a || status=1
stop $b || status=1
"$here/balance.py" "$work/a.out" "$work/b.out" at_least=1000000 || status=1
verdict $status 'a million frames of net_null over RC, balanced to the frame'

# Flows of our own: nothing lost over RC, losses counted to the frame over UC and UD.
for qp in rc uc ud; do
  fresh
  case $qp in
    rc) keys=(count=300000 'sizes=[60, 128, 1000, 1514]' 'protocols=["udp4", "tcp6", "other"]') checks=(lossless verified=300000) ;;
    uc) keys=(count=100000 'sizes=[60, 1514]') checks=(sink_agrees) ;;
    ud) keys=(count=100000 message=4000) checks=(sink_agrees) ;;
  esac
  "$here/make_conf.py" "$work" flows qp=$qp "${keys[@]}"
  start b; b=$!
  start a; a=$!
  status=0
  for _ in $(seq 60); do
    sleep 1
    both_run || break
  done
  stop $a || status=1
  stop $b || status=1
  "$here/balance.py" "$work/a.out" "$work/b.out" "${checks[@]}" || status=1
  verdict $status "source to sink over $qp"
done

rm -rf "$work"
