#!/usr/bin/env bash
# guest: --network pair
# limit: 900
# tests: relay
# The relay over kernel soft-RoCE: two processes, rxe0 and rxe1, counted to the frame. The tests are in tests/relay.
set -uo pipefail
# shellcheck source=scripts/lib/libtest_tap.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../scripts/lib/libtest_tap.sh"

libtest_tap relay:: "$ISTHMUS_TESTS/isthmus/relay" guest::
