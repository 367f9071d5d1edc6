#!/bin/bash
# Runs a launcher (mpirun, srun) and turns every way of asking for an end into the one that Trireme
# promises to save for: TERM, INT and USR1 to this script become USR1 to the launcher, USR2 is passed
# on. Ends with the launcher's exit code.
#
# mpirun kills its ranks two seconds after a TERM; this script, as the first process of a container or
# beside a batch script, lets them save first. usage: supervise.sh COMMAND...; or source it and call
# `supervise COMMAND...`.
#
# A request that comes before the launcher was started is kept, from the moment that this file is read:
# the launcher is not started then, and the code is 75. So is it where the request reached ranks that were
# still starting and could not catch it (138): there was nothing to save.
#
# TRIREME_GRACE: seconds that the ranks may take to end once asked (default 600); then the launcher
# gets TERM, and KILL ten seconds later.

supervise_asked=''
for signal in USR1 TERM INT; do
  # shellcheck disable=SC2064
  trap "supervise_asked=$signal" "$signal"
done
trap : USR2 # nothing to save yet

# Codes after which another start goes on from the last checkpoint: 76, 71, a rank's death by a signal
# (138 and 140: asked to stop or to save before it could catch it), 205 and 255 of the launchers.
rank_was_lost() {
  case $1 in
    71 | 76 | 129 | 134 | 135 | 137 | 138 | 139 | 140 | 143 | 205 | 255) true ;;
    *) false ;;
  esac
}

end_after_grace() { # ends by itself when the launcher does
  local second
  for ((second = 0; second < ${TRIREME_GRACE:-600}; second++)); do
    kill -0 "$1" || return
    sleep 1
  done
  kill -s TERM "$1"
  sleep 10
  kill -s KILL "$1"
}

supervise() {
  local code='' status fired=0 guard='' started=$SECONDS pid
  if [ -n "$supervise_asked" ]; then
    echo "supervise: $supervise_asked received before the start: nothing is started" >&2
    return 75
  fi
  "$@" &
  pid=$!
  pass_on() { # a launcher that has not installed its handlers yet would die: it is given two seconds
    fired=1
    [ $((SECONDS - started)) -ge 2 ] || sleep 2
    kill -s "$1" "$pid" 2> /dev/null
  }
  ask_to_stop() {
    echo "supervise: $1 received; USR1 to the ranks: they save and stop" >&2
    pass_on USR1
    [ -z "$guard" ] || return
    end_after_grace "$pid" > /dev/null 2>&1 &
    guard=$!
  }
  trap 'ask_to_stop USR1' USR1
  trap 'ask_to_stop TERM' TERM
  trap 'ask_to_stop INT' INT
  trap 'pass_on USR2' USR2
  [ -z "$supervise_asked" ] || ask_to_stop "$supervise_asked" # came while the launcher was being started
  # `wait` returns at every trap: go on until it returns because the launcher is gone.
  while :; do
    fired=0
    wait "$pid"
    status=$?
    [ "$status" -ne 127 ] || [ -z "$code" ] || break
    code=$status
    [ $fired -eq 1 ] || break
  done
  trap - USR1 TERM INT USR2
  if [ -n "$guard" ]; then
    kill "$guard" 2> /dev/null
    wait "$guard" 2> /dev/null
  fi
  [ -z "$guard" ] || [ "$code" -ne 138 ] || code=75
  return "$code"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  [ $# -gt 0 ] || { echo "usage: supervise.sh COMMAND..." >&2; exit 64; }
  supervise "$@"
  exit $?
fi
