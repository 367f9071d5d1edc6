#!/bin/bash
# The command of a launcher pod (MPIJob or TrainJob), and its first process: waits for the workers
# within a limit, starts mpirun with everything said explicitly, saves and stops when the pod is asked
# to end, and says what a failure means.
#   launch.sh [--nodes N] [--per-node S] [--wait SECONDS] -- train DECK [--section.key=value ...]
# --nodes, --per-node   hosts and ranks on each; default: what the host file says
# --wait                for all workers together, default 300
# Without a host file all ranks run here. TRIREME: the program; TRIREME_MPIRUN_ARGS: more for mpirun.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../common/supervise.sh"
TRIREME=${TRIREME:-trireme}

say() { echo "launch: $*" >&2; }
usage() { say "$1; usage: launch.sh [--nodes N] [--per-node S] [--wait SECONDS] -- train DECK ..."; exit 64; }

trap 'exit 143' TERM INT # as the first process of a pod, bash would not hear them
nodes='' per_node='' patience=300
while [ $# -gt 0 ]; do
  case $1 in
    --nodes) nodes=${2:-} && shift 2 ;;
    --per-node) per_node=${2:-} && shift 2 ;;
    --wait) patience=${2:-} && shift 2 ;;
    --) shift && break ;;
    *) usage "unknown word $1" ;;
  esac
done
[ $# -gt 0 ] || usage "no command"
[[ "${nodes:-1}${per_node:-1}$patience" =~ ^[0-9]+$ ]] || usage "counts and seconds are whole numbers"

hostfile=${OMPI_MCA_orte_default_hostfile:-${PRTE_MCA_prte_default_hostfile:-/etc/mpi/hostfile}}
hosts=()
if [ -r "$hostfile" ]; then
  mapfile -t hosts < <(awk 'NF && $1 !~ /^#/ { print $1 }' "$hostfile")
  slots=$(awk 'NF && $1 !~ /^#/ { for (i = 2; i <= NF; i++) if ($i ~ /^slots=/) { print substr($i, 7); exit } }' "$hostfile")
  nodes=${nodes:-${#hosts[@]}} per_node=${per_node:-${slots:-1}}
  if [ "$nodes" -gt "${#hosts[@]}" ]; then
    say "--nodes $nodes, but $hostfile names ${#hosts[@]} hosts: give the job as many workers"
    exit 78
  fi
  if [ "$nodes" -lt "${#hosts[@]}" ]; then
    say "warning: $((${#hosts[@]} - nodes)) of ${#hosts[@]} hosts stay unused: ${hosts[*]:$nodes} (a TrainJob with numNodes 1" \
      "and runLauncherAsNode starts two hosts: use the runtime trireme-single-node)"
    hosts=("${hosts[@]:0:$nodes}")
  fi
  if [ -n "${slots:-}" ] && [ "$per_node" -gt "$slots" ]; then
    say "--per-node $per_node, but $hostfile has slots=$slots: raise slotsPerWorker (TrainJob: numProcPerNode)"
    exit 78
  fi
fi
nodes=${nodes:-1} per_node=${per_node:-1}
ranks=$((nodes * per_node))

# The operators write Open MPI 4's variables; Open MPI 5 reads these. --hostfile below serves both.
if [ ${#hosts[@]} -gt 0 ]; then
  export PRTE_MCA_prte_default_hostfile=$hostfile PRTE_MCA_prte_keep_fqdn_hostnames=false
  export PRTE_MCA_plm_ssh_args=${OMPI_MCA_plm_rsh_args:--o ConnectionAttempts=10}
fi
is_here() { [ "$1" = "$(hostname)" ] || [ "${1%%.*}" = "$(hostname)" ]; }

# Each step names the host that fails, since Open MPI's own text does not. One limit for all hosts: a
# launcher that waits for ever would hold the GPUs of the workers that did come.
wait_for_workers() {
  local host end=$((SECONDS + patience)) key=$HOME/.ssh/id_rsa why
  if [ ! -r "$key" ]; then
    say "$key cannot be read by uid $(id -u): set sshAuthMountPath to $HOME/.ssh and runAsUser and fsGroup to that user"
    return 78
  fi
  for host in "${hosts[@]}"; do
    is_here "$host" && continue
    while :; do
      if ! getent hosts "$host" > /dev/null; then
        why="its name does not resolve (the name appears when the pod is Ready)"
      elif ! timeout 5 bash -c ": < /dev/tcp/$host/${TRIREME_SSH_PORT:-2222}" 2> /dev/null; then
        why="port ${TRIREME_SSH_PORT:-2222} is closed (is sshd the worker's command?)"
      elif ! why=$(timeout 20 ssh -o BatchMode=yes -o ConnectTimeout=5 "$host" true 2>&1); then
        why="ssh fails: ${why##*$'\n'} (same key on both sides? same user?)"
      else
        break
      fi
      if [ $SECONDS -ge $end ]; then
        say "worker $host did not come within $patience s: $why"
        return 76
      fi
      sleep 1
    done
  done
  say "${#hosts[@]} hosts answer after $SECONDS s"
}

# Variables of this pod do not reach the ranks by themselves: ssh sessions start clean. Not
# NVIDIA_VISIBLE_DEVICES: it is empty here.
export TRIREME_RANKS=$ranks TRIREME_NODES=$nodes
words=(-n "$ranks" --map-by "ppr:$per_node:node" --bind-to none)
[ ${#hosts[@]} -eq 0 ] || words+=(--hostfile "$hostfile")
for name in ${!TRIREME_*} ${!NCCL_*} ${!UCX_*} LD_LIBRARY_PATH OMP_NUM_THREADS CUDA_DEVICE_ORDER; do
  [ -z "${!name+set}" ] || words+=(-x "$name")
done

if [ ${#hosts[@]} -gt 0 ]; then
  wait_for_workers || exit $?
fi
say "$(mpirun --version | head -1): $ranks ranks on $nodes host(s)"
directory=''
for word; do
  case $word in --run.directory=*) directory=${word#*=} ;; esac
done
# shellcheck disable=SC2086
supervise mpirun "${words[@]}" ${TRIREME_MPIRUN_ARGS:-} "$TRIREME" "$@"
code=$?
if [ "$code" -eq 0 ] && [ -n "$directory" ] && [ -d "$directory" ] && [ ! -e "$directory/complete.json" ]; then
  say "exit code 0, but $directory/complete.json is missing: the job was killed"
  code=76
fi
case $code in
  0) say "all steps are done" ;;
  64 | 65 | 66 | 78) say "ended with $code, a fault of input or layout: a restart will not help" ;;
  75) say "asked to stop, saved: a restart goes on" ;;
  1 | 1[0-9][0-9] | 2[0-9][0-9]) # mpirun's own codes (205: lost communication), or a rank's signal
    say "ended with $code: a worker pod was lost, or mpirun could not start a rank there (its text about daemons means" \
      "that, even hours into a run); a restart goes on from the last checkpoint" ;;
  *) say "ended with $code: see doc/exit_codes.md" ;;
esac
exit "$code"
