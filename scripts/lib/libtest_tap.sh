# shellcheck shell=bash
# Compiled tests in test scripts. Sourced by them, never run.

# libtest_tap PREFIX COMMAND...: runs compiled tests one after the other and says in TAP how each ended. A test that
# skips says so on a line of its own, in the middle of the line about itself.
libtest_tap() {
  local prefix=$1
  shift
  "$@" --test-threads=1 2>&1 | awk -v prefix="$prefix" '
    function say(result) {
      print (result == "ok" ? "ok " : "not ok ") prefix name (why == "" ? "" : " # SKIP " why)
      fflush()
      name = ""
    }
    /^test .* \.\.\. / { name = $2; why = ""; sub(/^test [^ ]+ \.\.\. /, "") }
    name != "" && /^SKIPPED / { why = $0; sub(/^SKIPPED [^:]*: /, "", why); next }
    name != "" && /^(ok|FAILED)$/ { say($0); next }
    { print "# " $0; fflush() }
    END { if (name != "") say("died") }'
}
