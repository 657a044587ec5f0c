#!/usr/bin/env bash
# The verbs transport against kernel rxe: two devices on one wire, the common suite and what is special about verbs.
# guest: --network pair
# limit: 400
# tests: verbs_guest verbs_suite
set -uo pipefail

# shellcheck source=scripts/lib/libtest_tap.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../scripts/lib/libtest_tap.sh"

tests=$ISTHMUS_TESTS/rdma-engine
libtest_tap verbs:: "$tests/verbs_guest" --skip locked_memory
libtest_tap verbs:: "$tests/verbs_suite"
# Locked memory is limited only for those without the right to exceed it.
libtest_tap verbs:: setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock \
  bash -c 'ulimit -l 64 && exec "$@"' sh "$tests/verbs_guest" locked_memory
