#!/bin/bash
# What the tests measured, from the log of the last `ctest`: the layout table, memory by policy and layout.
# usage: print_measured.sh BUILD_FOLDER
log=$1/Testing/Temporary/LastTest.log
[ -e "$log" ] || exit 0
echo "== measured by the tests"
sed -nE '/^\|.*\|$/p; /largest relative difference/p; /bytes a token and layer$/p; /12 P \/ dp/p; /^[0-9]+ ranks .*bytes$/p; /^planned .* resident/p' "$log"
