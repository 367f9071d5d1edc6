#!/bin/bash
# Formatting, layers and clang-tidy's short allow list. usage: lint.sh BUILD_FOLDER
set -uo pipefail
build=${1:-build}
status=0

mapfile -t sources < <(git ls-files '*.hpp' '*.cpp' '*.cu' '*.cuh')
clang-format --dry-run -Werror "${sources[@]}" || { echo "run: make format" >&2; status=1; }
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
