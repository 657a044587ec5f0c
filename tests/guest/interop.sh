#!/usr/bin/env bash
# RoCEv2 of our own against kernel rxe, over the free end of rxe0's wire: every operation by itself.
# guest: --network veth
# limit: 400
# tests: interop
set -uo pipefail
# shellcheck source=scripts/lib/libtest_tap.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../scripts/lib/libtest_tap.sh"

libtest_tap interop:: "$ISTHMUS_TESTS/rdma-engine/interop"
