#!/bin/bash
# jobscripts/ray on a real Ray of two nodes (raylets) on this machine: 2 agents, 4 ranks at tp=2 x pp=2; an
# agent that is killed costs a resume; a stop saves. Skips without ray (pip install ray) or root.
# TRIREME_PYTHON: a Python that has it.
source "$(dirname "$0")/support.sh"
python=${TRIREME_PYTHON:-python3}
"$python" -c 'import ray' 2> /dev/null || skip "Python's ray is missing: tools/setup.sh launchers"
binaries=$(dirname "$("$python" -c 'import sys; print(sys.executable)')")
export PATH=$binaries:$PATH RAY_USAGE_STATS_ENABLED=0
export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=1 # nodes on loopback
work=$(mktemp -d /var/tmp/trireme-ray.XXXXXX)
leave() {
  [ -z "${driver:-}" ] || kill "$driver" 2> /dev/null
  exec 9>&-
  [ -z "${cluster:-}" ] || { timeout 30 tail --pid="$cluster" -f /dev/null || kill -KILL "$cluster"; } 2> /dev/null
  for process in $(grep -lzxF "TRIREME_RAY_TEST=$work" /proc/[0-9]*/environ 2> /dev/null | cut -d / -f 3); do
    [ "$process" = $$ ] || [ "$process" = "$BASHPID" ] || kill -KILL "$process" 2> /dev/null
  done
  wait 2> /dev/null
  rm -rf "$work"
}
export TRIREME_RAY_TEST=$work
trap leave EXIT
# Both nodes are one machine: MPI's shared memory would take their ranks for neighbours.
export OMPI_MCA_btl=tcp,self TRIREME_THREADS=1
mkfifo "$work/alive"
"$python" "$here/ray_cluster.py" "$work/ray" "$work/address" < "$work/alive" > "$work/cluster.out" 2>&1 &
cluster=$!
exec 9> "$work/alive" # closed at our end, whatever ends us
until_true 120 test -s "$work/address" || { tail -n 20 "$work/cluster.out"; bad "Ray starts"; finish; exit 1; }
RAY_ADDRESS=$(cat "$work/address")
export RAY_ADDRESS
ok "$(ray --version) with two nodes"

make_data "$work/data" || bad "tokenize"
endless=10000000
write_deck "$work/deck.ini" $endless "$work/data"
drive() { # drive NAME WORD...: the driver, in the background
  local name=$1
  shift
  "$python" "$root/jobscripts/ray/trireme_ray.py" --nodes 2 --ranks-per-node 2 --wait 60 --program "$TRIREME" -- \
    train "$work/deck.ini" --run.directory="$work/$name" "$@" > "$work/$name.out" 2>&1 &
  driver=$!
}
ends() { # ends CODE SECONDS: the driver
  local code=0 end=$((SECONDS + $2))
  while kill -0 "$driver" 2> /dev/null && [ $SECONDS -lt $end ]; do sleep 0.5; done
  kill -0 "$driver" 2> /dev/null && code=124 || { wait "$driver" || code=$?; }
  [ $code -eq "$1" ] || { echo "    ended with $code, expected $1"; tail -30 "$work/$name.out" | sed 's/^/    | /'; return 1; }
}

name=killed
drive killed
check "2 agents, 4 ranks train" until_true 180 reached "$work/killed" 25
check "the agents are on two nodes" has "$work/killed.out" "agent 0 on" "agent 1 on" "4 ranks on 2 hosts"
ranks_gone() { ! pgrep -f "^$TRIREME train .*$work/killed"; }
kill -STOP "$driver" # no new start before the deck, which each start reads, says where to end
kill -KILL "$(grep -o 'agent 1 .*process [0-9]*' "$work/killed.out" | grep -o '[0-9]*$')"
check "a killed agent ends all ranks" until_true 40 ranks_gone
steps=$(($(steps_of "$work/killed") + 40))
write_deck "$work/deck.ini" $steps "$work/data"
kill -CONT "$driver"
check "a killed agent ends this start" until_true 40 grep -q "start 0 ended with" "$work/killed.out"
check "the driver takes a new group and the run resumes" until_true 90 grep -q "resumed from" "$work/killed.out"
check "and completes" ends 0 180
mpirun -n 4 --bind-to none "$TRIREME" train "$work/deck.ini" --run.directory="$work/straight" > "$work/straight.out" 2>&1
check "bit-equal to a run that lost nothing" same_run "$work/straight" "$work/killed" $steps

name=stopped
drive stopped --run.steps=$endless
until_true 90 reached "$work/stopped" 5
kill -TERM "$driver"
check "TERM to the driver (ray job stop): saved, 75, no restart" ends 75 60
check "and says so" has "$work/stopped.out" "asked to stop: USR1" "stopped after step"
grep "trireme_ray: start [0-9]" "$work/stopped.out" > "$work/starts" || true
[ "$(wc -l < "$work/starts")" -eq 1 ] || sed 's/^/    | /' "$work/starts" # an agent that is lost costs a start
check "the start that was asked to stop is the last one" grep -q "ended with 75" <(tail -n 1 "$work/starts")
name=big
"$python" "$root/jobscripts/ray/trireme_ray.py" --nodes 3 --wait 3 --max-restarts 0 --program "$TRIREME" -- train x > "$work/big.out" 2>&1
check "too many nodes: 76 and words" [ $? -eq 76 ]
has "$work/big.out" "no 3 different nodes with {'CPU': 1} each became free" || bad "words about missing nodes"
finish
