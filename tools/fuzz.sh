#!/bin/bash
# Fuzzes every parser with libFuzzer, under the address and undefined-behaviour sanitizers: RUNS runs of each from the
# corpus in tests/fuzz/corpus, or with --seconds for so long. Findings stay in BUILD/fuzz/found. Where clang 15 or its
# libFuzzer is missing it says so and ends with 0: the tests fuzz.NAME replay the corpus and mutations of it anyway.
# usage: fuzz.sh BUILD [RUNS | --seconds N]
set -euo pipefail
build=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
limit=(-runs="${2:-2000}")
[ "${2:-}" != --seconds ] || limit=(-max_total_time="$3")

compiler=
for name in clang++-{15..25} clang++; do
  if echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    "$name" -fsanitize=fuzzer,address -x c++ - -o /dev/null 2> /dev/null; then
    compiler=$name
    break
  fi
done
if [ -z "$compiler" ]; then
  echo "fuzz: libFuzzer SKIPPED, clang 15 or newer with its compiler-rt is not here"
  exit 0
fi
launcher=()
command -v ccache > /dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
mkdir -p "$build/fuzz/found"
cmake -S tests/fuzz -B "$build/fuzz" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" "${launcher[@]}" > "$build/fuzz/log" 2>&1 &&
  cmake --build "$build/fuzz" >> "$build/fuzz/log" 2>&1 || { cat "$build/fuzz/log"; exit 1; }
status=0
for program in "$build"/fuzz/fuzz_*; do
  name=${program##*/fuzz_}
  grown=$build/fuzz/corpus_$name
  mkdir -p "$grown"
  if ! "$program" "$grown" "tests/fuzz/corpus/$name" "${limit[@]}" -seed=1 -timeout=60 -max_len=20000 \
    -artifact_prefix="$build/fuzz/found/${name}_" > "$build/fuzz/$name.log" 2>&1; then
    echo "fuzz: $name: a finding, see $build/fuzz/$name.log"
    tail -30 "$build/fuzz/$name.log"
    status=1
  fi
done
[ $status -ne 0 ] || echo "fuzz: $compiler, ${limit[*]} of each parser, no finding"
exit $status
