#!/bin/bash
# The main job of `make run`: bytes of real text to a dataset, training on several ranks, and two
# counting models of the same text to compare with. usage: demo.sh PROGRAM MPIRUN RANKS RUN_DIR [TEXT]
set -euo pipefail
program=$1 mpirun=$2 ranks=$3 run=$4 text=${5:-}

data=runs/text
mkdir -p "$data"
if [ -n "$text" ]; then
  prefix=$data/$(basename "$text" | tr -c 'A-Za-z0-9\n' '_')
  run=$run-$(basename "$prefix")
  "$program" tokenize --input "$text" --tokenizer bytes --output "$prefix"
else
  # The plain files of the fortunes packages, in C-locale order; documents are parted by a % line.
  folder=/usr/share/games/fortunes
  if [ ! -e $folder/wisdom ]; then
    sudo=$([ "$(id -u)" -eq 0 ] || echo sudo)
    command -v apt-get > /dev/null ||
      { echo "no text: give one with make run TEXT=file.txt" >&2; exit 66; }
    $sudo apt-get update -qq
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      fortunes fortunes-min > /dev/null
  fi
  prefix=$data/fortunes
  mapfile -t files < <(cd $folder && LC_ALL=C ls | grep -v '\.')
  "$program" tokenize --input "${files[@]/#/$folder/}" --document-mark % --tokenizer bytes --output "$prefix"
fi

grid=()
[ "$ranks" -eq 4 ] || grid=(--grid.tp=1 --grid.pp=1)
status=0
$mpirun -n "$ranks" "$program" train inputs/tiny.ini --run.directory="$run" --data.path="$prefix" "${grid[@]}" || status=$?
[ $status -eq 0 ] || exit $status
python3 tools/ngram.py "$prefix" --split 90,10,0
echo "run directory: $run (delete it to start over; the same command resumes an unfinished run)"
