# shellcheck shell=bash
# Words to the person at the terminal, and the clock. Sourced, never run.
# Everything here goes to stderr, so that a script's stdout stays the output of what it runs.

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# die STATUS SENTENCE...: says the sentence and ends the script with STATUS.
die() {
  local status=$1
  shift
  say "$*"
  exit "$status"
}

# Milliseconds since the epoch, without starting a process.
now_ms() {
  local us=${EPOCHREALTIME/[.,]/}
  printf '%s' "$((us / 1000))"
}

# seconds_since START_MS: prints the time gone by as "12.3".
seconds_since() {
  local ms=$(($(now_ms) - $1))
  printf '%d.%d' $((ms / 1000)) $((ms % 1000 / 100))
}

# need_value OPTION COUNT: ends with status 2 unless OPTION is followed by a word.
need_value() { [ "$2" -ge 2 ] || die 2 "$1 needs a value; see --help"; }

# need_number OPTION VALUE MINIMUM: ends with status 2 unless VALUE is a whole number of at least MINIMUM.
need_number() {
  if ! [[ $2 =~ ^[0-9]{1,9}$ ]] || [ "$2" -lt "$3" ]; then
    die 2 "$1 needs a whole number of at least $3, not '$2'"
  fi
}
