#!/bin/bash
# Formatting, layers and clang-tidy's short allow list.
#   all     every source; files that passed before, unchanged, are not checked by clang-tidy again
#   recent  clang-tidy only for what the last commits and uncommitted edits touch: on a fresh clone the
#           whole tree takes 4 minutes on two cores, more than its share of `make test`
#   format  formats the sources in place instead
# usage: lint.sh BUILD_FOLDER [all|recent|format]
set -uo pipefail
build=$(realpath "${1:-build}") what=${2:-all}
commits=10
status=0

# Versions of clang-format differ in what they print: the sources follow version 14.
mapfile -t sources < <(git ls-files '*.hpp' '*.cpp' '*.cu' '*.cuh')
format=$(command -v clang-format-14 || command -v clang-format || true)
if ! { [ -n "$format" ] && "$format" --version | grep -q 'version 14'; }; then
  echo "lint: formatting SKIPPED, clang-format 14 is not here"
  [ "$what" != format ] || exit 1
elif [ "$what" = format ]; then
  exec "$format" -i "${sources[@]}"
else
  # Texts are compared: --dry-run also reports changes that change nothing.
  printf '%s\0' "${sources[@]}" | xargs -0 -P "$(nproc)" -n 20 bash -c 'fault=0
    for file; do
      "$0" "$file" | cmp -s - "$file" || { echo "$file: not formatted; run: make format" >&2; fault=1; }
    done
    exit $fault' "$format" || status=1
fi

python3 tools/check_layers.py || status=1

# Version 14 cannot parse std::source_location as libstdc++ 12 has it.
tidy=
for name in clang-tidy-{15..25} clang-tidy; do
  "$name" --version 2> /dev/null | grep -qE 'version (1[5-9]|[2-9][0-9])' && tidy=$name && break
done

# Sources of the CPU build that clang-tidy must look at; a changed header stands for one source that includes it.
candidates() {
  git ls-files 'src/*.cpp' | grep -v /cuda/ > "$build/tidy.all"
  if [ "$what" = all ] || ! git rev-parse -q --verify "HEAD~$commits" > /dev/null; then
    cat "$build/tidy.all"
    return
  fi
  git diff --name-only --diff-filter=d "HEAD~$commits" -- 'src/*.cpp' 'src/*.hpp' 'include/*.hpp' | while read -r file; do
    case $file in
      *.cpp) grep -xF "$file" "$build/tidy.all" ;;
      *) xargs grep -lF "\"${file#*/}\"" < "$build/tidy.all" | head -1 ;;
    esac
  done | sort -u
}

# Passes are remembered by the file's, the headers' and the list's contents.
check() { # check BUILD CLANG_TIDY FILE HEADERS_SUM
  local pass output
  pass="$3 $(sha256sum "$3" | cut -d' ' -f1) $4"
  grep -qxF "$pass" "$1/tidy.passed" && return 0
  output=$("$2" -p "$1" --quiet --warnings-as-errors='*' --extra-arg=-isystem"$1/tidy.include" \
    --extra-arg=-Wno-c99-extensions "$3" 2>&1) || { echo "$output" | grep -v 'warnings generated'; return 1; }
  echo "$pass" >> "$1/tidy.passed"
}
export -f check

if [ -z "$tidy" ]; then
  echo "lint: clang-tidy SKIPPED, version 15 or newer is not here"
elif [ ! -e "$build/compile_commands.json" ]; then
  echo "lint: $build is not configured; run: make build" >&2
  status=1
else
  # The compile commands are g++'s: clang is shown its OpenMP header without the one attribute that
  # clang does not know, and none of its other headers.
  mkdir -p "$build/tidy.include"
  sed 's/__malloc__ (omp_free), *//' "$("${CXX:-g++}" -print-file-name=include/omp.h)" > "$build/tidy.include/omp.h"
  touch "$build/tidy.passed"
  headers=$(git ls-files '*.hpp' .clang-tidy | xargs cat | sha256sum | cut -d' ' -f1)
  candidates > "$build/tidy.files"
  xargs -P "$(nproc)" -I{} bash -c 'check "$@"' _ "$build" "$tidy" {} "$headers" < "$build/tidy.files" || status=1
  echo "lint: $tidy on $(wc -l < "$build/tidy.files") of $(wc -l < "$build/tidy.all") sources"
fi
[ $status -eq 0 ] && echo "lint: clean"
exit $status
