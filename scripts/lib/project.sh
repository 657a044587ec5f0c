# shellcheck shell=bash disable=SC2034
# Where things are: the project, its build directory, the Rust toolchain. Sourced after say.sh, never run.

project=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)

# The build directory, which also holds what the scripts leave behind.
target=${CARGO_TARGET_DIR:-$project/target}
[[ $target = /* ]] || target=$project/$target

# What scripts/setup found out about memory; see remember_memory there.
memory_file=$target/memory.env

# rustup's default place is often not in the PATH of a fresh login or of root.
find_cargo() {
  command -v cargo >/dev/null || [ ! -x "${CARGO_HOME:-${HOME:-}/.cargo}/bin/cargo" ] ||
    PATH=${CARGO_HOME:-${HOME:-}/.cargo}/bin:$PATH
}

# rust_problem: prints one sentence when the toolchain cannot build the project, nothing when it can.
rust_problem() {
  local wanted have
  wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$project/Cargo.toml")
  find_cargo
  if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
    echo "Rust (cargo and rustc) is not installed: install version $wanted or newer, for example with rustup."
  elif ! have=$(cd "$project" && rustc --version 2>&1); then
    echo "rustc does not run: $have"
  else
    have=${have#rustc }
    have=${have%%[ -]*}
    [ "$(printf '%s\n' "$wanted" "$have" | sort -V | head -n 1)" = "$wanted" ] ||
      echo "Rust $have is too old: install version $wanted or newer, for example with rustup update."
  fi
}
