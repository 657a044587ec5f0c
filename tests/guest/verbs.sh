#!/usr/bin/env bash
# The verbs transport against kernel rxe: two devices on one wire, the common suite and what is special about verbs.
# guest: --network pair
# limit: 400
set -uo pipefail

# tap PREFIX COMMAND...: runs compiled tests and says in TAP how each ended. A test that skips says so on a line of its
# own, in the middle of the line about itself.
tap() {
  local prefix=$1
  shift
  "$@" --test-threads=1 2>&1 | awk -v prefix="$prefix" '
    function say(result) {
      print (result == "ok" ? "ok " : "not ok ") prefix name (why == "" ? "" : " # SKIP " why)
      name = ""
    }
    /^test .* \.\.\. / { name = $2; why = ""; sub(/^test [^ ]+ \.\.\. /, "") }
    name != "" && /^SKIPPED / { why = $0; sub(/^SKIPPED [^:]*: /, "", why); next }
    name != "" && /^(ok|FAILED)$/ { say($0); next }
    { print "# " $0 }
    END { if (name != "") say("died") }'
}

tests=$ISTHMUS_TESTS/rdma-engine
tap verbs:: "$tests/verbs_guest" --skip locked_memory
tap verbs:: "$tests/verbs_suite"
# Locked memory is limited only for those without the right to exceed it.
tap verbs:: setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock \
  bash -c 'ulimit -l 64 && exec "$@"' sh "$tests/verbs_guest" locked_memory
