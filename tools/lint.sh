#!/bin/bash
# Formatting, layers and clang-tidy's short allow list. usage: lint.sh BUILD_FOLDER
set -uo pipefail
build=${1:-build}
status=0

mapfile -t sources < <(git ls-files '*.hpp' '*.cpp' '*.cu' '*.cuh')
# Versions of clang-format differ in their output: the sources follow that of version 14.
format=$(command -v clang-format-14 || command -v clang-format)
if "$format" --version | grep -q 'version 14'; then
  for file in "${sources[@]}"; do
    "$format" "$file" | cmp -s - "$file" || { echo "$file: not formatted; run: make format" >&2; status=1; }
  done
else
  echo "lint: skipped formatting, clang-format 14 is not here"
fi
python3 tools/check_layers.py || status=1

# clang-tidy needs the compile commands; only files that differ from the last clean pass are checked.
if [ -e "$build/compile_commands.json" ]; then
  stamp=$build/tidy.sums
  touch "$stamp"
  headers=$(cat $(git ls-files '*.hpp') .clang-tidy | sha256sum)
  check() {
    sum=$(sha256sum "$2" | cut -d' ' -f1)-${3%% *}
    grep -qxF "$2 $sum" "$1/tidy.sums" && return 0
    clang-tidy -p "$1" --quiet --warnings-as-errors='*' "$2" 2> /dev/null || return 1
    echo "$2 $sum" >> "$1/tidy.sums"
  }
  export -f check
  git ls-files 'src/*.cpp' | grep -v '/cuda/' |
    xargs -P "$(nproc)" -I{} bash -c 'check "$@"' _ "$build" {} "$headers" || status=1
fi
[ $status -eq 0 ] && echo "lint: clean"
exit $status
