# shellcheck shell=bash disable=SC2154
# The stages of scripts/test, one function each, run in the project's directory. Sourced by it, never run.
# A stage ends with a status; `count PASSED FAILED SKIPPED` and `skip REASON` are in scripts/test.

# In CI the lock file must be what was committed.
locked=()
[ -z "${CI:-}" ] || locked=(--locked)

# What scripts/setup noted about hugepages, for every program that the tests start.
memory_environment() {
  [ ! -e "$memory_file" ] || {
    set -a
    # shellcheck source=/dev/null
    . "$memory_file"
    set +a
  }
}

# count_log FORMAT FILE: counts by tally.py and names what was skipped.
count_log() {
  local numbers
  {
    read -r -a numbers
    count "${numbers[@]}"
    sed 's/^/skipped: /'
  } < <("$scripts/lib/tally.py" "$1" "$2")
}

stage_setup() {
  local options=()
  [ "$quick" = 0 ] || options=(--no-guest)
  "$scripts/setup" ${options[@]+"${options[@]}"}
}

# ---- checks -------------------------------------------------------------------------------------

stage_format() {
  cargo fmt --version >/dev/null 2>&1 || { skip "this Rust toolchain has no rustfmt" && return 0; }
  cargo fmt --all --check
}

stage_lint() {
  cargo clippy --version >/dev/null 2>&1 || { skip "this Rust toolchain has no clippy" && return 0; }
  cargo clippy ${locked[@]+"${locked[@]}"} --workspace --all-targets -- -D warnings
}

# Every file that is shell, by its name or its first line, build products left out where git can tell.
stage_shell() {
  command -v shellcheck >/dev/null || { skip "shellcheck is not installed" && return 0; }
  local file files=()
  while IFS= read -r file; do
    [ ! -f "$file" ] || [[ $file != *.sh && $(head -c 80 "$file" | tr -d '\0' | head -n 1) != '#!'*sh ]] || files+=("$file")
  done < <(git ls-files --cached --others --exclude-standard -- scripts tests .ci 2>/dev/null || find scripts tests .ci -type f)
  shellcheck --external-sources "${files[@]}" && echo "${#files[@]} shell files are clean"
}

stage_licences() {
  cargo metadata ${locked[@]+"${locked[@]}"} --format-version 1 --all-features --filter-platform x86_64-unknown-linux-gnu |
    "$scripts/lib/licences.py" deny.toml
  if cargo deny --version >/dev/null 2>&1; then
    cargo deny --log-level error check licenses bans sources
  else
    echo "cargo-deny is not installed; the check above reads the same deny.toml"
  fi
}

# ---- Rust ---------------------------------------------------------------------------------------

stage_rust() {
  local status=0 report=$target/nextest/default/junit.xml log=$logs/rust.log.libtest
  if cargo nextest --version >/dev/null 2>&1; then
    rm -f "$report"
    cargo nextest run ${locked[@]+"${locked[@]}"} --workspace --no-tests pass --status-level fail --final-status-level fail ||
      status=$?
    [ ! -e "$report" ] || count_log junit "$report"
  else
    cargo test ${locked[@]+"${locked[@]}"} --workspace --lib --bins --tests --no-fail-fast -- --show-output 2>&1 |
      tee "$log" || status=$?
    count_log libtest "$log"
  fi
  return $status
}

stage_docs() {
  local status=0 log=$logs/docs.log.libtest
  cargo test ${locked[@]+"${locked[@]}"} --workspace --doc --no-fail-fast 2>&1 | tee "$log" || status=$?
  count_log libtest "$log"
  return $status
}

# Miri is some hundred times slower than the machine: few cases of each property, and a limit on the whole. An interpreter
# uses one CPU, so each CPU gets one with a share of the tests. Not by nextest, for every process under miri takes seconds
# to start.
stage_miri() {
  local status=0 cut=0 limit_s=${ISTHMUS_MIRI_LIMIT_S:-100} filter=(buf:: heap:: inflight:: mem:: loopback:: wire::)
  local share shares tests chosen pid one running=() log=$logs/miri.log.tests
  cargo +nightly miri --version >/dev/null 2>&1 ||
    { skip "there is no nightly toolchain with miri; rustup +nightly component add miri rust-src brings it" && return 0; }
  [ -z "${ISTHMUS_MIRI_FILTER:-}" ] || read -r -a filter <<<"$ISTHMUS_MIRI_FILTER"
  export CARGO_TARGET_DIR=$target/miri PROPTEST_CASES=${PROPTEST_CASES:-4}
  export MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}"
  cargo +nightly miri setup
  cargo +nightly miri test -p rdma-engine --lib --no-run
  mapfile -t tests < <(cargo +nightly miri test -q -p rdma-engine --lib -- --list "${filter[@]}" | sed -n 's/: test$//p')
  [ ${#tests[@]} != 0 ] || { echo "no test is chosen by: ${filter[*]}" && return 1; }
  rm -f "$log".*
  shares=$(nproc)
  for ((share = 0; share < shares && share < ${#tests[@]}; share++)); do
    mapfile -t chosen < <(printf '%s\n' "${tests[@]}" | awk -v of="$shares" -v share="$share" 'NR % of == share')
    timeout --kill-after=20 "$limit_s" cargo +nightly miri test -p rdma-engine --lib -- --exact "${chosen[@]}" \
      >"$log.$share" 2>&1 &
    running+=($!)
  done
  for pid in "${running[@]}"; do
    one=0
    wait "$pid" || one=$?
    case $one in
      0) ;;
      124 | 137) cut=$((cut + 1)) ;;
      *) status=$one ;;
    esac
  done
  cat "$log".*
  count "$(cat "$log".* | grep -c '^test .* ok$' || true)" "$(cat "$log".* | grep -c '^test .* FAILED$' || true)" "$cut"
  [ $cut = 0 ] || echo "SKIPPED: the rest, after $limit_s s (ISTHMUS_MIRI_LIMIT_S)"
  return $status
}

# ---- test scripts -------------------------------------------------------------------------------

# test_scripts STAGE: prints the scripts of tests/STAGE that are to run, a line each.
test_scripts() {
  local file
  for file in "$project/tests/$1"/*.sh; do
    [ -x "$file" ] || continue
    [ ${#chosen_scripts[@]} = 0 ] || [[ " ${chosen_scripts[*]} " = *" $file "* ]] || continue
    echo "$file"
  done
}

# build_programs SCRIPT...: builds what test scripts run, in the profile that Cargo.toml has for them: the command, and
# the compiled tests that their headers `# tests: NAME...` ask for. They find these by ISTHMUS_BIN and
# ISTHMUS_TESTS/PACKAGE/NAME.
build_programs() {
  local file name tests=()
  for file; do
    for name in $(header "$file" tests); do tests+=(--test "$name"); done
  done
  cargo build ${locked[@]+"${locked[@]}"} --bin isthmus --profile guest
  rm -rf "$target/guest-tests"
  [ ${#tests[@]} = 0 ] ||
    cargo test ${locked[@]+"${locked[@]}"} --workspace --no-run --message-format json --profile guest "${tests[@]}" |
    "$scripts/lib/link_tests.py" "$target/guest-tests"
  export ISTHMUS_BIN=$target/guest/isthmus ISTHMUS_TESTS=$target/guest-tests
}

# Runs the scripts of a stage on this machine.
run_scripts() {
  local file files log=$logs/$stage.log.tap
  mapfile -t files < <(test_scripts "$stage")
  [ ${#files[@]} != 0 ] || { echo "none yet" && count 0 0 0 && return 0; }
  build_programs "${files[@]}"
  for file in "${files[@]}"; do tap_run "$file"; done | tee "$log"
  count_log tap "$log"
}

stage_vdev() { run_scripts; }
stage_clients() { run_scripts; }

# Scripts that ask for the same guest, by their header `# guest: OPTIONS OF rxe-vm`, share a boot. When a guest is
# lost, the script that ran then has failed, and those after it get a new guest.
stage_guest() {
  local options pending log=$logs/guest.log.tap
  mapfile -t pending < <(test_scripts guest)
  [ ${#pending[@]} != 0 ] || { echo "none yet" && count 0 0 0 && return 0; }
  build_programs "${pending[@]}"
  : >"$log"
  while [ ${#pending[@]} != 0 ]; do
    options=$(header "${pending[0]}" guest)
    boot_with_scripts "$options" "$log"
    mapfile -t pending < <(not_begun "$log" "${pending[@]}")
  done
  count_log tap "$log"
}

# boot_with_scripts OPTIONS LOG: runs in one guest those of `pending` that ask for exactly these options.
boot_with_scripts() {
  local file files=() limit_s=60 options status=0
  for file in "${pending[@]}"; do
    [ "$(header "$file" guest)" = "$1" ] || continue
    files+=("$file")
    limit_s=$((limit_s + $(tap_limit_s "$file") + 40))
  done
  read -r -a options <<<"$1"
  mkdir -p "$logs/guest"
  ISTHMUS_HUGEPAGES=1 ISTHMUS_EAL_MEMORY=--in-memory \
    "$scripts/rxe-vm" --kernel-log --times --timeout "$limit_s" --output "$logs/guest" ${options[@]+"${options[@]}"} -- \
    "$scripts/guest/run-tests" "${files[@]}" </dev/null 2>&1 | tee -a "$2" || status=$?
  for file in "${files[@]}"; do
    if ! grep -qxF "# begin $file" "$2"; then
      # No guest got as far as the first: there is no use in another.
      [ "$file" != "${files[0]}" ] || fail_script "$file" "the guest did not start (status $status)" "$2"
    elif ! grep -qxF "# end $file" "$2"; then
      fail_script "$file" "the guest was lost while it ran (status $status)" "$2"
    fi
  done
}

fail_script() { # FILE REASON LOG
  printf '# begin %s\nnot ok %s: %s\n# end %s\n' "$1" "${1##*/}" "$2" "$1" | tee -a "$3"
}

# not_begun LOG FILE...: prints those of the scripts that the log does not show begun.
not_begun() {
  local log=$1 file
  shift
  for file; do grep -qxF "# begin $file" "$log" || echo "$file"; done
}
