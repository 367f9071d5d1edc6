# shellcheck shell=bash
# Shared by the launcher tests: a scratch folder, a small deck, checks with words, and an end that
# leaves nothing running. To be sourced; TRIREME names the program.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
TRIREME=${TRIREME:-$root/build/bin/trireme}
test_name=$(basename "$0" .sh)
passed=0 failed=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1

skip() { # visibly, and with an end that counts as no failure
  echo "SKIPPED $test_name: $*"
  exit 77
}
ok() {
  passed=$((passed + 1))
  printf '  ok      %5ss  %s\n' "$SECONDS" "$*"
}
bad() {
  failed=$((failed + 1))
  printf '  FAILED  %5ss  %s\n' "$SECONDS" "$*"
}
# check WORDS COMMAND...: the command decides
check() {
  local words=$1
  shift
  if "$@"; then ok "$words"; else bad "$words (failed: $*)"; fi
}
# has FILE TEXT...: all texts are in the file
has() {
  local file=$1 text
  shift
  for text; do
    grep -qF -- "$text" "$file" || { echo "    not in $file: $text"; tail -25 "$file" | sed 's/^/    | /'; return 1; }
  done
}
equals() { [ "$1" = "$2" ] || { echo "    is '$1', expected '$2'"; return 1; }; }
# until_true SECONDS COMMAND...
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@" > /dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { echo "    never true: $*"; return 1; }
    sleep 0.2
  done
}
make_data() { # make_data PREFIX: tokens for write_deck
  seq 1 30000 > "$1.text"
  "$TRIREME" tokenize --input "$1.text" --tokenizer bytes --output "$1" > "$1.out" 2>&1 || { cat "$1.out"; return 1; }
}
# A tiny deck on random windows of PREFIX: these do not depend on the length of the run, so that a run can
# be told to end soon, wherever it is, and still be compared with one that was never stopped.
write_deck() { # write_deck FILE STEPS PREFIX
  cat > "$1" << END
[run]
steps = $2
[grid]
tp = 2
pp = 2
[model]
family = llama
layers = 2
hidden = 32
heads = 4
kv_heads = 2
ffn = 48
vocab = 257
tied = false
bias = false
[batch]
sequence = 16
global = 4
micro = 2
[optimizer]
learning_rate = 1e-3
[schedule]
decay = 100000
[data]
kind = indexed
path = $3
order = random
[checkpoint]
every = 20
[log]
every = 1000
END
}
stopped_step() { grep -o 'stopped after step [0-9]*' "$1" | tail -1 | grep -o '[0-9]*$'; }
steps_of() { # finished steps of a run directory
  [ -e "$1/metrics.jsonl" ] && grep -c '"loss"' "$1/metrics.jsonl" || echo 0
}
reached() { [ "$(steps_of "$1")" -ge "$2" ]; }
# same_run A B STEPS: metrics without times and the last checkpoint are equal bit by bit
same_run() {
  python3 - "$@" << 'END'
import json, pathlib, sys
one, two, steps = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
keys = ("step", "loss", "grad_norm", "learning_rate", "consumed_samples")
def metrics(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [tuple(row[key] for key in keys) for row in rows if "grad_norm" in row]
a, b = metrics(one), metrics(two)
name = f"checkpoints/step_{steps:09}.h5"
if len(a) != steps or a != b:
    sys.exit(f"    metrics differ: {len(a)} and {len(b)} steps")
if (one / name).read_bytes() != (two / name).read_bytes():
    sys.exit(f"    {name} differs")
END
}
finish() {
  echo "$passed passed, $failed failed ($test_name, $SECONDS s)"
  [ $failed -eq 0 ]
}
