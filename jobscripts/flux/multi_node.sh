#!/bin/bash
# Several hosts under Flux; Flux has PMIx (flux-pmix) or PMI-1 for the MPI library. Submit with
#   flux batch jobscripts/flux/multi_node.sh deck.ini [--section.key=value ...]
# The run saves and stops five minutes before the end and at `flux job kill -s USR1 JOB`; while steps are
# left, the job submits its successor.
#FLUX: --job-name=trireme
#FLUX: --nodes=2
#FLUX: --exclusive
#FLUX: --time-limit=24h
#FLUX: --output=trireme-{{id}}.out
set -uo pipefail
export TRIREME_JOBSCRIPTS=${TRIREME_JOBSCRIPTS:-$PWD/jobscripts}
source "$TRIREME_JOBSCRIPTS/common/supervise.sh"
deck=${1:?usage: flux batch multi_node.sh DECK [--section.key=value ...]}
shift
directory=${TRIREME_RUN_DIRECTORY:-$PWD/runs/trireme}
per_node=${TRIREME_RANKS_PER_NODE:-8}
starts=${TRIREME_STARTS:-0}

nodes=$(flux resource list --states=up --no-header --format='{nnodes}' | head -1)
export TRIREME_NODES=$nodes TRIREME_RANKS=$((nodes * per_node))
left=$(flux job timeleft 2> /dev/null) # seconds of this batch job
[[ ! $left =~ ^[0-9]+$ ]] || export TRIREME_DEADLINE=$(($(date +%s) + left))
supervise flux run --nodes="$nodes" --tasks-per-node="$per_node" ${TRIREME_FLUX_ARGS:---gpus-per-task=1 -o gpu-affinity=off} \
  "${TRIREME:-trireme}" train "$deck" --run.directory="$directory" --fault.stop_before=300 "$@"
code=$?
[ $code -ne 0 ] || [ -e "$directory/complete.json" ] || code=76
if [ $code -eq 75 ] || rank_was_lost $code; then
  [ "$starts" -lt "${TRIREME_MAX_RESTARTS:-20}" ] || { echo "started $starts times again already: left alone" >&2; exit 70; }
  # To the instance above: this one ends with the job.
  TRIREME_STARTS=$((starts + 1)) flux proxy "$(flux getattr parent-uri)" flux batch "$TRIREME_JOBSCRIPTS/flux/multi_node.sh" "$deck" "$@"
fi
exit $code
