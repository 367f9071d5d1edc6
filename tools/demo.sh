#!/bin/bash
# The main job of `make run`: bytes of real text become a dataset, a small Llama is trained on them by
# several ranks, two counting models of the same text stand beside its validation loss, and the model
# writes some text.
# usage: demo.sh PROGRAM MPIRUN RANKS TEXT [--section.key=value ...]; TEXT "" is Debian's fortunes
set -euo pipefail
program=$1 mpirun=$2 ranks=$3 text=$4
shift 4
data=runs/text
mkdir -p "$data"

# Names a dataset after its text, so that another text is another run.
name_of() { # name_of NAME FILE...
  local name=$1
  shift
  echo "$(tr -c 'A-Za-z0-9\n' _ <<< "$name")_$(cat "$@" | sha256sum | cut -c 1-8)"
}

if [ -n "$text" ]; then
  [ -r "$text" ] || { echo "$text: no such file, or it cannot be read" >&2; exit 66; }
  name=$(name_of "$(basename "$text")" "$text")
  inputs=("$text") mark=()
else
  # The plain files of the fortunes packages, in C-locale order; a line with % parts documents.
  folder=/usr/share/games/fortunes
  [ -e $folder/wisdom ] || tools/setup.sh demo
  mapfile -t inputs < <(find $folder -maxdepth 1 -type f ! -name '*.*' | LC_ALL=C sort)
  name=$(name_of fortunes "${inputs[@]}") mark=(--document-mark %)
fi
"$program" tokenize --input "${inputs[@]}" "${mark[@]}" --tokenizer bytes --output "$data/$name"

# Ours unless the command line says otherwise: tp 2 x pp 2, and data parallelism over the rest, as far as
# the number of ranks allows.
words=("$@")
default() { # default SECTION.KEY VALUE
  [[ " ${words[*]} " == *" --$1="* ]] || words+=("--$1=$2")
}
default run.directory "runs/demo_$name"
default data.path "$data/$name"
default grid.tp $((ranks % 2 == 0 ? 2 : 1))
default grid.pp $((ranks % 4 == 0 ? 2 : 1))
$mpirun -n "$ranks" "$program" train inputs/tiny.ini "${words[@]}"
layout=() directory=
for word in "${words[@]}"; do
  case $word in
    --run.directory=*) directory=${word#*=} ;;
    --grid.tp=* | --grid.pp=*) layout+=("$word") ;;
  esac
done
python3 tools/ngram.py "$data/$name" --held-out 0.1
echo "What it writes:"
$mpirun -n "$ranks" "$program" generate "$directory" --prompt "The " --tokens 400 --temperature 0.7 \
  --top-k 40 --log.level=error "${layout[@]}"
echo "The same command goes on where it stopped, from the run directory in runs/; delete that to start over."
