#!/bin/bash
# The shipped SLURM scripts on a real SLURM of eight hosts on this machine (slurm_cluster.sh): sbatch
# with srun and with mpirun, 2 hosts x 2 ranks at tp=2 x pp=2; signals, the end of the time, requeue,
# preemption, arrays and chains; what is refused, and in which words. Skips without root or SLURM.
source "$(dirname "$0")/support.sh"
source "$here/slurm_cluster.sh"
[ "$(id -u)" -eq 0 ] || skip "root is needed for namespaces"
for program in slurmctld slurmd sbatch munged unshare; do
  command -v "$program" > /dev/null || skip "$program is missing: tools/setup.sh launchers"
done
trap '[ -z "${keep_logs:-}" ] || cp "$cluster"/*.out "$keep_logs"; cluster_stop' EXIT
cluster_start || { cluster_tell; bad "SLURM starts"; finish; exit 1; }
ok "SLURM $(sinfo --version | cut -d ' ' -f 2) runs: $(sinfo -h -o '%P %D' | tr '\n' ' ')"

# The hosts have a /tmp of their own: program and scripts are installed where all see them.
mkdir -p "$cluster/bin" "$cluster/runs"
cp "$TRIREME" "$cluster/bin/trireme"
cp -r "$root/jobscripts" "$cluster/jobscripts"
export TRIREME=$cluster/bin/trireme
cd "$cluster" || exit 1
make_data "$cluster/data" || bad "tokenize"
deck() { write_deck "$cluster/$1.ini" "$2" "$cluster/data"; }
submit() { # submit NAME SCRIPT OPTION... -- WORD...: prints the job's number
  local name=$1 script=$2 options=()
  shift 2
  while [ "$1" != -- ]; do options+=("$1") && shift; done
  shift
  TRIREME_RUN_DIRECTORY=$cluster/runs/$name sbatch --parsable --job-name="$name" --output="$cluster/$name.out" \
    --ntasks-per-node=2 --gpus-per-node=2 --cpus-per-task=1 "${options[@]}" "jobscripts/slurm/$script" "$@"
}
state() { scontrol -o show job "$1" | grep -o 'JobState=[A-Z]*' | cut -d = -f 2; }
ended() { case $(state "$1") in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) true ;; *) false ;; esac; }
exit_of() { scontrol -o show job "$1" | grep -o ' ExitCode=[0-9]*' | cut -d = -f 2; }
restarts_of() { scontrol -o show job "$1" | grep -o 'Restarts=[0-9]*' | cut -d = -f 2; }
# Once run NAME has stopped and waits in the queue again, lets it end 15 steps later (decks are read at
# each start), with time enough.
let_end() {
  until_true 150 grep -q "exit 75: SLURM requeues" "$1.out" || return
  deck "$1" $(($(stopped_step "$1.out") + 15))
  until_true 20 scontrol update JobId="$2" TimeLimit=60
}
straight() { # the same run, never stopped
  local steps
  steps=$(grep -o '^steps = .*' "$1.ini" | grep -o '[0-9]*')
  mpirun -n 4 --bind-to none "$TRIREME" train "$1.ini" --run.directory="runs/$1.straight" > "$1.straight.out" 2>&1 &&
    same_run "runs/$1.straight" "runs/$1" "$steps"
}

# Three long runs at once: one ended by the signal before the limit, one by the end of the time alone,
# one by preemption. SLURM sends the signal up to a minute earlier than it is asked to, so the time of the
# signal leaves the run a minute for its first steps.
for name in signal limit preempted; do deck $name 10000000; done
signal=$(submit signal multi_node.sbatch --time=2 --signal=B:USR1@20 -- signal.ini --fault.stop_before=1)
limit=$(submit limit multi_node_mpirun.sbatch --time=3 --signal=B:USR1@1 -- limit.ini --fault.stop_before=120)
preempted=$(submit preempted multi_node.sbatch --partition=low --time=30 --signal=B:USR1@20 -- preempted.ini)

watchers=()
for name in signal limit preempted; do
  let_end $name "${!name}" > "$cluster/$name.watch" 2>&1 &
  watchers+=($!)
done

# Meanwhile what must be refused, each within seconds and never requeued.
job=()
for mpi in none pmi2 pmix_v9; do
  deck "mpi_$mpi" 5
  export TRIREME_MPI=$mpi
  job[${#job[@]}]=$(submit "mpi_$mpi" multi_node.sbatch --partition=short --time=20 -- "mpi_$mpi.ini")
  unset TRIREME_MPI
done
deck silent 5
silent=$(sbatch --parsable --partition=short --nodes=2 --ntasks-per-node=2 --output=silent.out --time=5 \
  --wrap "mpirun -n 2 --map-by slot --bind-to none $TRIREME train $cluster/silent.ini --grid.pp=1 --run.directory=runs/silent")
alone=$(sbatch --parsable --partition=short --nodes=2 --ntasks-per-node=2 --output=alone.out --time=5 \
  --wrap "$TRIREME train $cluster/silent.ini --run.directory=runs/alone")
deck split 5
split=$(submit split multi_node.sbatch --partition=short --time=20 -- split.ini --grid.tp=4 --grid.pp=1)

check "the run by srun is under way" until_true 60 reached runs/preempted 5
check "the table of ranks names both hosts" has preempted.out "n5" "n6" "processors" "rank  host"
scancel -b -s USR2 "$preempted"
check "USR2: a checkpoint is saved" until_true 60 grep -q "^saved step" preempted.out
saved_at=$(steps_of runs/preempted)
check "USR2: and the run goes on" until_true 60 reached runs/preempted $((saved_at + 2))
check "USR2: the job still runs" equals "$(state "$preempted")" RUNNING

high=$(sbatch --parsable --partition=high --nodes=2 --exclusive --output=/dev/null --wrap 'sleep 1')
check "preemption: the run saves and leaves with 75" until_true 60 grep -q "asked to stop, saved" preempted.out
check "preemption: the other job got the hosts" until_true 90 ended "$high"

for i in 0 1 2; do until_true 60 ended "${job[$i]}"; done
check "--mpi=none is refused in words" has mpi_none.out "srun started 4 tasks but offers no PMI" "srun --mpi=pmix"
check "--mpi=pmi2 is refused in words" has mpi_pmi2.out "offers PMI-1 or PMI-2 only, no PMIx" "srun --mpi=pmix"
check "an --mpi that SLURM lacks is refused in words" has mpi_pmix_v9.out "this SLURM has no --mpi=pmix_v9" "pmi2"
for i in 0 1 2; do
  check "and the job ends with 78" equals "$(exit_of "${job[$i]}")" 78
  check "and is not started again" equals "$(restarts_of "${job[$i]}")" 0
done
check "a silent host is refused" until_true 60 ended "$silent"
check "a silent host is named as such" has silent.out "SLURM_JOB_NUM_NODES says 2 hosts, the 2 ranks are on 1" "grid.nodes=1"
check "a silent host: 78" equals "$(exit_of "$silent")" 78
check "a program without launcher is refused" until_true 60 ended "$alone"
check "a program without launcher: words" has alone.out "SLURM_NTASKS says 4 ranks, MPI gives 1"
check "tp over two hosts is refused" until_true 60 ended "$split"
check "tp over two hosts: words" has split.out "a tensor-parallel group is on two hosts" "grid.tp_across_nodes=true"
check "tp over two hosts: 78" equals "$(exit_of "$split")" 78

# An array and a chain of short runs.
deck array 12
deck chain 8
array=$(submit array array.sbatch --partition=short --array=0-1 --time=20 --output="$cluster/array.%a.out" -- array.ini --grid.pp=1)
TRIREME_RUN_DIRECTORY=$cluster/runs/chain TRIREME_SBATCH_ARGS="--ntasks-per-node=2 --gpus-per-node=2 --cpus-per-task=1 --time=20 --partition=short" \
  jobscripts/slurm/chain.sh 2 jobscripts/slurm/multi_node.sbatch \
  chain.ini > chain.jobs 2>&1 || true
check "the end of the time, without a signal: saved, 75" until_true 100 grep -q "exit 75: SLURM requeues" limit.out
check "the end of the time: from the batch script, then asked again" has limit.out "left (TRIREME_DEADLINE)" "s left (squeue): the run saves and stops"
check "USR1 before the limit: saved, 75" until_true 130 grep -q "exit 75: SLURM requeues" signal.out
for watcher in "${watchers[@]}"; do wait "$watcher"; done
for name in signal limit preempted; do
  check "$name: queued again and completed" until_true 90 ended "${!name}"
  check "$name: exit code 0" equals "$(exit_of "${!name}")" 0
  check "$name: one more start" equals "$(restarts_of "${!name}")" 1
  check "$name: resumed" has "$name.out" "resumed from" "all steps are done"
  check "$name: bit-equal to a run that was never stopped" straight "$name"
done
check "array: both runs are complete" until_true 90 test -e runs/array/rate_1e-4/complete.json -a -e runs/array/rate_3e-4/complete.json
check "chain: complete" until_true 90 test -e runs/chain/complete.json
finish
