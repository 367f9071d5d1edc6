# shellcheck shell=bash
# A real SLURM of eight hosts on one machine: munged, slurmctld and eight slurmd, each of these in a
# host-name and mount namespace of its own, with its own /tmp and /dev/shm, so that MPI sees eight
# machines. Everything lives in $cluster and ends with cluster_stop. To be sourced; needs root.
cluster=/var/tmp/trireme-slurm.$$
export SLURM_CONF=$cluster/slurm.conf
daemons=()

cluster_configure() {
  local gpu node
  mkdir -p "$cluster"/{state,log} && chmod 755 "$cluster"
  for gpu in {0..15}; do mknod "$cluster/gpu$gpu" c 1 3; done # device files are all that SLURM looks at
  (umask 077 && head -c 128 /dev/urandom > "$cluster/munge.key")
  cat > "$SLURM_CONF" << END
ClusterName=trireme
SlurmctldHost=localhost
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$cluster/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
SlurmctldParameters=preempt_send_user_signal
GresTypes=gpu
ReturnToService=2
RequeueExit=75
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=5
MpiDefault=none
StateSaveLocation=$cluster/state
SlurmctldPidFile=$cluster/slurmctld.pid
SlurmctldLogFile=$cluster/log/slurmctld
SlurmdSpoolDir=$cluster/%n
SlurmdPidFile=$cluster/%n.pid
SlurmdLogFile=$cluster/log/%n
TmpFS=$cluster/%n
NodeName=n[1-8] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 8))] CPUs=8 Gres=gpu:16
PartitionName=main Nodes=n[1-4] Default=YES MaxTime=INFINITE
PartitionName=low Nodes=n[5-6] PriorityTier=1 PreemptMode=REQUEUE GraceTime=30
PartitionName=high Nodes=n[5-6] PriorityTier=10 PreemptMode=OFF
PartitionName=short Nodes=n[7-8] MaxTime=60
END
  echo "Name=gpu File=$cluster/gpu[0-15]" > "$cluster/gres.conf"
  for node in n{1..8}; do mkdir -p "$cluster/$node"; done
}

cluster_start() {
  port=$((20000 + $$ % 9000))
  cluster_configure
  munged --foreground --force --key-file="$cluster/munge.key" --socket="$cluster/munge.socket" \
    --pid-file="$cluster/munge.pid" --log-file="$cluster/log/munged" --seed-file="$cluster/munge.seed" 2> "$cluster/log/munged.err" &
  daemons+=($!)
  until_true 10 test -S "$cluster/munge.socket" || return 1
  slurmctld -D -c > "$cluster/log/slurmctld.out" 2>&1 &
  daemons+=($!)
  local node
  for node in n{1..8}; do
    unshare --uts --mount --propagation private bash -c "
      cd / && hostname $node && mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /dev/shm && chmod 1777 /tmp /dev/shm &&
      exec slurmd -D -c -N $node" > "$cluster/log/$node.out" 2>&1 &
    daemons+=($!)
  done
  until_true 40 bash -c '[ "$(sinfo -h -N -o "%N %t" | sort -u | grep -c idle)" -eq 8 ]'
}

cluster_stop() {
  local daemon
  scancel --full -s KILL -u root 2> /dev/null
  scancel -u root 2> /dev/null
  until_true 10 bash -c '[ -z "$(squeue -h)" ]'
  timeout 10 scontrol shutdown 2> /dev/null
  sleep 1
  for daemon in "${daemons[@]}"; do kill "$daemon" 2> /dev/null; done
  sleep 1
  for daemon in "${daemons[@]}"; do kill -KILL "$daemon" 2> /dev/null; done
  for daemon in $(grep -lzxF "SLURM_CONF=$SLURM_CONF" /proc/[0-9]*/environ 2> /dev/null | cut -d / -f 3); do
    [ "$daemon" = $$ ] || [ "$daemon" = "$BASHPID" ] || kill -KILL "$daemon" 2> /dev/null # steps that outlived their job
  done
  wait 2> /dev/null
  rm -rf "$cluster"
}

cluster_tell() { # what went wrong
  sinfo -N -o '%N %P %t %E' 2>&1 | sed 's/^/    | /'
  local file
  for file in "$cluster"/log/*; do echo "    $file" && tail -n 4 "$file" | sed 's/^/    | /'; done
}
