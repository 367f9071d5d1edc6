# shellcheck shell=bash
# What all SLURM scripts of this folder share: the end of the job's time, starting under srun or
# mpirun, signals, and what to do with the exit code. To be sourced by a batch script, in bash.
#
#   trireme_job_begin           checks, exports, TRIREME_DEADLINE
#   trireme_srun WORDS...       srun --mpi=pmix ... trireme WORDS
#   trireme_mpirun WORDS...     mpirun ... trireme WORDS
#   trireme_job_end CODE DIR    0: done if DIR/complete.json exists; 75, 76, 74...: requeue or stop
#
# Settings, all optional: TRIREME (the program), TRIREME_MPI (pmix), TRIREME_MPIRUN_ARGS,
# TRIREME_SRUN_ARGS, TRIREME_MAX_RESTARTS (20), TRIREME_CONTAINER (words that go in front of the
# program, as `apptainer exec --nv image.sif`).

# shellcheck source=../common/supervise.sh
source "${TRIREME_JOBSCRIPTS:?set it to the folder jobscripts of Trireme}/common/supervise.sh"

trireme_say() { echo "job ${SLURM_JOB_ID:-?} start ${SLURM_RESTART_COUNT:-0}: $*" >&2; }

# Seconds of squeue's TimeLeft: [days-][[hours:]minutes:]seconds; nothing for UNLIMITED and the like.
trireme_seconds() {
  local text=$1 days=0 part seconds=0
  [[ $text =~ ^([0-9]+-)?[0-9]+(:[0-9]+){0,2}$ ]] || return 1
  case $text in *-*) days=${text%%-*} text=${text#*-} ;; esac
  for part in ${text//:/ }; do seconds=$((seconds * 60 + 10#$part)); done
  echo $((10#$days * 86400 + seconds))
}

# The end of this job in seconds since 1970. SLURM 23.02 and newer say it in SLURM_JOB_END_TIME, older
# ones when asked; containers often lack the commands, so the batch script computes it for the ranks.
trireme_deadline() {
  local left
  if [[ ${SLURM_JOB_END_TIME:-} =~ ^[0-9]+$ ]]; then
    echo "$SLURM_JOB_END_TIME"
  elif left=$(timeout 20 squeue -h -j "$SLURM_JOB_ID" -o %L 2> /dev/null) && left=$(trireme_seconds "$left"); then
    echo $(($(date +%s) + left))
  elif left=$(timeout 20 scontrol show job "$SLURM_JOB_ID" 2> /dev/null | grep -o 'EndTime=[^ ]*') &&
       left=$(date -d "${left#EndTime=}" +%s 2> /dev/null); then
    echo "$left"
  else
    return 1
  fi
}

trireme_job_begin() {
  [ -n "${SLURM_JOB_ID:-}" ] || { echo "this is no SLURM job: submit it with sbatch" >&2; exit 64; }
  TRIREME=${TRIREME:-trireme}
  export TRIREME_NODES=$SLURM_JOB_NUM_NODES TRIREME_RANKS=$SLURM_NTASKS
  # srun does not take --cpus-per-task from sbatch in 22.05 and later: ranks would share one core.
  [ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  export CUDA_DEVICE_ORDER=PCI_BUS_ID
  if TRIREME_DEADLINE=$(trireme_deadline); then
    export TRIREME_DEADLINE
    trireme_say "time until $(date -d "@$TRIREME_DEADLINE")"
  else
    unset TRIREME_DEADLINE
    trireme_say "no time limit is known"
  fi
}

trireme_srun() {
  local mpi=${TRIREME_MPI:-pmix}
  if ! srun --mpi=list 2>&1 | grep -qw "$mpi"; then
    trireme_say "this SLURM has no --mpi=$mpi: $(srun --mpi=list 2>&1 | tr -s '\n\t ' ' ')"
    trireme_say "use one that it lists and that the MPI library knows (pmix), or multi_node_mpirun.sbatch"
    return 78
  fi
  # A rank that dies must end the others.
  # shellcheck disable=SC2086
  supervise srun --mpi="$mpi" --kill-on-bad-exit=1 ${TRIREME_SRUN_ARGS:-} ${TRIREME_CONTAINER:-} "$TRIREME" "$@"
}

# SLURM_* of the ranks are those of mpirun's daemons, so the counts travel by -x.
trireme_mpirun() {
  local per_node=$((SLURM_NTASKS / SLURM_JOB_NUM_NODES)) name export=()
  for name in TRIREME_RANKS TRIREME_NODES TRIREME_DEADLINE CUDA_DEVICE_ORDER OMP_NUM_THREADS LD_LIBRARY_PATH \
              ${!NCCL_*} ${!UCX_*}; do
    [ -z "${!name+set}" ] || export+=(-x "$name")
  done
  # shellcheck disable=SC2086
  supervise mpirun -n "$SLURM_NTASKS" --map-by "ppr:$per_node:node" --bind-to none "${export[@]}" \
    ${TRIREME_MPIRUN_ARGS:-} ${TRIREME_CONTAINER:-} "$TRIREME" "$@"
}

# Ends the script. The job is started again where that helps and not more often than
# TRIREME_MAX_RESTARTS: by the site's RequeueExit where it lists the code, else by scontrol.
trireme_job_end() {
  local code=$1 directory=$2 restarts=${SLURM_RESTART_COUNT:-0} again=no
  if [ "$code" -eq 0 ] && [ ! -e "$directory/complete.json" ]; then
    trireme_say "exit code 0, but $directory/complete.json is missing: the launcher was killed"
    code=76
  fi
  if [ "$code" -eq 0 ]; then
    trireme_say "all steps are done"
  elif [ "$code" -eq 75 ]; then
    again=yes && trireme_say "asked to stop, saved"
  elif rank_was_lost "$code"; then
    again=yes && trireme_say "a rank or host was lost ($code)"
  else
    trireme_say "ended with $code: see doc/exit_codes.md; not started again"
  fi
  [ $again = yes ] || exit "$code"
  if [ "${TRIREME_MAX_RESTARTS:-20}" -eq 0 ]; then
    trireme_say "a link of a chain: the next one goes on"
    exit 0 # not 75, which would requeue this one, too
  fi
  if [ "$restarts" -ge "${TRIREME_MAX_RESTARTS:-20}" ]; then
    trireme_say "started $restarts times again already (TRIREME_MAX_RESTARTS): left alone"
    exit 70
  fi
  # Every requeue goes by 75, so that one line of slurm.conf (RequeueExit=75) serves them all.
  if scontrol show config 2> /dev/null | grep -E '^RequeueExit +=' | grep -qE '(=|,) *75(,|$|[^0-9])'; then
    trireme_say "exit 75: SLURM requeues (RequeueExit)"
    exit 75
  fi
  trireme_say "requeue"
  scontrol requeue "$SLURM_JOB_ID" && sleep 60  # the requeue ends this script
  exit 75
}
