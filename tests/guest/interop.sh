#!/usr/bin/env bash
# RoCEv2 of our own against kernel rxe, over the free end of rxe0's wire: every operation by itself, and the relay with one
# end of each.
# guest: --network veth
# limit: 600
# tests: interop relay
set -uo pipefail
# shellcheck source=scripts/lib/libtest_tap.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../scripts/lib/libtest_tap.sh"

libtest_tap interop:: "$ISTHMUS_TESTS/rdma-engine/interop"
libtest_tap relay:: "$ISTHMUS_TESTS/isthmus/relay" interop::
