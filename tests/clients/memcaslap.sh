#!/usr/bin/env bash
# limit: 60
# memcaslap, libmemcached's load generator, over UDP against a gateway and memory node of conf/kv-soft.toml, by way of a tap
# interface.
set -uo pipefail

command -v memcaslap >/dev/null || { echo "1..0 # SKIP memcaslap is not installed (libmemcached-tools)" && exit 0; }
[ "$(id -u)" = 0 ] || { echo "1..0 # SKIP making a network interface takes root" && exit 0; }
[ -c /dev/net/tun ] || { echo "1..0 # SKIP there is no /dev/net/tun" && exit 0; }

project=$(cd "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
interface=slap$$
net=198.18.$(($$ % 200 + 20))
sed -e "s/isthmus0/$interface/" -e "s/198\.51\.100/$net/g" "$project/conf/kv-soft.toml" >"$work/kv.toml"

memory=(--in-memory)
[[ ${ISTHMUS_EAL_MEMORY:-} != *--no-huge* ]] || memory=(--no-huge)
"$ISTHMUS_BIN" "${memory[@]}" --file-prefix="slap$$" -- run "$work/kv.toml" >"$work/out" 2>"$work/err" &
server=$!
trap 'kill -KILL $server 2>/dev/null; rm -rf "$work"' EXIT

for _ in {1..200}; do
  ! ip link show dev "$interface" >/dev/null 2>&1 || break
  sleep 0.1
done
ip address add "$net.254/24" dev "$interface" && ip link set "$interface" up
sleep 1

timeout 30 memcaslap -s "$net.1:11211" -U -t 3s -c 4 -T 1 >"$work/slap" 2>&1
sed 's/^/# /' "$work/slap"
number() { sed -n "s/^$1: //p" "$work/slap"; }

if [ "$(number cmd_get)" -gt 200 ] 2>/dev/null && [ "$(number get_misses)" = 0 ] && [ "$(number packet_drop)" = 0 ]; then
  echo "ok memcaslap reads what it has written over UDP"
else
  echo "not ok memcaslap reads what it has written over UDP"
  sed 's/^/# /' "$work/err"
fi

kill -TERM "$server"
wait "$server"
status=$?
if [ $status = 0 ]; then
  echo "ok the gateway drains afterwards and leaves nothing behind"
else
  echo "not ok the gateway drains afterwards and leaves nothing behind # status $status"
  sed 's/^/# /' "$work/err"
fi
