#!/bin/bash
# preStop hook of worker pods: a drain ends sshd and with it the ranks, so the ranks are asked to save
# and stop first (any rank's request counts for all). Returns when they are gone or after SECONDS.
# usage: worker-stop.sh [SECONDS]
set -u
ranks() {
  local process
  for process in /proc/[0-9]*; do
    case $(readlink "$process/exe" 2> /dev/null) in */trireme | */trireme-cpu) echo "${process#/proc/}" ;; esac
  done
}
for process in $(ranks); do kill -s USR1 "$process"; done
for ((second = 0; second < ${1:-100}; second++)); do
  [ -n "$(ranks)" ] || exit 0
  sleep 1
done
