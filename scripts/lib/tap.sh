# shellcheck shell=bash
# Runs test scripts that speak the Test Anything Protocol: lines `ok NAME` and `not ok NAME`, with
# `# SKIP REASON` behind the name where a test cannot run. Sourced, on the host and in the guest; never run.

readonly TAP_LIMIT_S=120

# header FILE KEY: prints what the line `# KEY: ...` near the top of the file says.
header() { sed -n "1,20s/^# $2: *//p" "$1" | head -n 1; }

# The seconds that a script may take: its header `# limit:`, else TAP_LIMIT_S.
tap_limit_s() {
  local limit
  limit=$(header "$1" limit)
  echo "${limit:-$TAP_LIMIT_S}"
}

# tap_run FILE: runs the script between lines `# begin FILE` and `# end FILE`, and adds a `not ok` where it
# overran its time, failed without saying which test, said nothing, or left a process behind that its process
# group does not reach (the others are ended).
tap_run() {
  local file=$1 name=${1##*/} limit_s log pipe work reader runner status=0
  limit_s=$(tap_limit_s "$file")
  work=$(mktemp -d)
  log=$work/log pipe=$work/pipe
  mkfifo "$pipe"
  echo "# begin $file"
  tee "$log" <"$pipe" &
  reader=$!
  # `timeout` leads a process group of its own, so that its number reaches everything the script started.
  timeout --kill-after=5 "$limit_s" bash "$file" </dev/null >"$pipe" 2>&1 &
  runner=$!
  wait "$runner" || status=$?
  kill -KILL -- "-$runner" 2>/dev/null || true
  ended_soon "$reader" || echo "not ok $name: it left a process running that holds its output"
  kill "$reader" 2>/dev/null || true
  wait "$reader" 2>/dev/null || true
  case $status in
    0) grep -qE '^(not )?ok\b|^1\.\.0 # SKIP' "$log" || echo "not ok $name: it reported no test" ;;
    124 | 137) echo "not ok $name: it did not end within $limit_s s" ;;
    *) grep -q '^not ok\b' "$log" || echo "not ok $name: it ended with status $status" ;;
  esac
  echo "# end $file"
  rm -rf "$work"
}

# ended_soon PID: whether this process ends within 3 s.
ended_soon() {
  local _
  for _ in {1..30}; do
    kill -0 "$1" 2>/dev/null || return 0
    sleep 0.1
  done
  return 1
}
