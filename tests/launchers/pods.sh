# shellcheck shell=bash
# Pods without Kubernetes: each a network, mount, host-name and process namespace on a bridge, with the
# image at /opt/trireme, uid 1000 without root, the operator's key, host file and variables. Names
# resolve when the test says so, as Kubernetes' do when a pod is Ready. To be sourced; needs root.
pods=/var/tmp/trireme-pods.$$
bridge=trb$(($$ % 100000))
declare -A pod_number=() pod_process=()

pods_begin() { # pods_begin MANIFEST ARGUMENT: reads the plan
  mkdir -p "$pods" && mount -t tmpfs -o mode=755 tmpfs "$pods" || return 1
  mkdir -p "$pods"/{image/bin,deck,mpi,ssh,runs,logs,home}
  plan=$("${python:-python3}" "$here/pods_of.py" "$1" "$2" "$pods/deck") || return 1
  eval "$plan"
  cp "$TRIREME" "$pods/image/bin/trireme"
  cp -r "$root/jobscripts" "$root/inputs" "$pods/image/"
  chmod -R a+rX "$pods/image"
  chown 1000:1000 "$pods/runs"
  printf '%s\n' "${plan_hostfile[@]}" > "$pods/mpi/hostfile"
  ssh-keygen -q -t ecdsa -b 521 -N '' -C '' -f "$pods/ssh/id_rsa"
  cp "$pods/ssh/id_rsa.pub" "$pods/ssh/authorized_keys"
  chown -R 0:1000 "$pods/ssh" && chmod 644 "$pods"/ssh/* # a Secret's default mode, root's files, fsGroup
  # What the image has in /etc (container/setup_image.sh).
  printf 'mpiuser:x:1000:1000::/home/mpiuser:/bin/bash\n' | cat - /etc/passwd > "$pods/passwd"
  cp "$root/jobscripts/container/ssh_config" "$pods/ssh_config"
  ip link add "$bridge" type bridge && ip addr add 10.231.0.254/24 dev "$bridge" && ip link set "$bridge" up
}

pod_space() { echo "trireme-$$-${pod_number[$1]}"; }
pod_address() { echo "10.231.0.$((${pod_number[$1]} + 1))"; }

pod_create() { # pod_create NAME: network and files, no process
  local name=$1 space number=${#pod_number[@]}
  pod_number[$name]=$number
  space=$(pod_space "$name")
  ip netns add "$space"
  ip link add "v$$-$number" type veth peer name eth0 netns "$space"
  ip link set "v$$-$number" master "$bridge" up
  ip -n "$space" addr add "$(pod_address "$name")/24" dev eth0
  ip -n "$space" link set eth0 up
  ip -n "$space" link set lo up
  printf '127.0.0.1 localhost\n%s %s\n' "$(pod_address "$name")" "$name" > "$pods/hosts.$name"
}

# NAME starts to resolve as WORDS... in all pods, as when it becomes Ready.
pod_resolves() {
  local name=$1 file
  shift
  for file in "$pods"/hosts.*; do echo "$(pod_address "$name") $*" >> "$file"; done
}

cat_inside() {
  cat << 'END'
set -e
hostname "$1"
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777,size="$shm" tmpfs /dev/shm
mkdir -p "$pods/etc.$1"/{up,work}
mount -t overlay -o "lowerdir=/etc,upperdir=$pods/etc.$1/up,workdir=$pods/etc.$1/work" overlay /etc
mkdir -p /etc/mpi /etc/trireme /etc/ssh/ssh_config.d
cp "$pods/passwd" /etc/passwd
cp "$pods/ssh_config" /etc/ssh/ssh_config.d/trireme.conf
mount --bind "$pods/hosts.$1" /etc/hosts
[ "$role" = worker ] || mount --bind "$pods/mpi" /etc/mpi
mount --bind "$pods/deck" /etc/trireme
mkdir -p "$pods/root.$1"/opt/trireme "$pods/root.$1"/home/mpiuser/.ssh "$pods/root.$1"/runs
chown 1000:1000 "$pods/root.$1"/home/mpiuser
mount --bind "$pods/root.$1/home" /home
mount --bind "$pods/ssh" "$ssh_path"
mount --bind "$pods/root.$1/opt" /opt
mount --bind "$image" /opt/trireme
[ -d /runs ] || mkdir /runs
mount --bind "$pods/runs" /runs
cd /home/mpiuser
shift
exec setpriv --reuid=1000 --regid=1000 --groups=1000 --bounding-set=-all --inh-caps=-all --no-new-privs \
  env -i PATH=/opt/trireme/bin:/usr/local/bin:/usr/bin:/bin HOME=/home/mpiuser TRIREME=/opt/trireme/bin/trireme \
  OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 "$@"
END
}

# pod_start NAME ROLE WORD...: the pod's first process, in the background; output in logs/NAME.
pod_start() {
  local name=$1 role=$2 space
  shift 2
  space=$(pod_space "$name")
  [ -e "$pods/inside" ] || cat_inside > "$pods/inside"
  image=${image:-$pods/image} pods=$pods role=$role ssh_path=$plan_ssh_path \
    shm=$([ "$role" = worker ] && echo "$plan_worker_shm" || echo "$plan_launcher_shm") \
    ip netns exec "$space" unshare --uts --mount --pid --fork --kill-child --mount-proc --propagation private \
    bash "$pods/inside" "$name" "$@" > "$pods/logs/$name" 2>&1 &
  pod_process[$name]=$!
}
pod_first() { pgrep -P "${pod_process[$1]}" | head -1; } # its PID 1, as seen from outside
pod_signal() { kill -s "$2" "$(pod_first "$1")"; }
pod_wait() { # pod_wait NAME SECONDS: its exit code, or 124
  local end=$((SECONDS + $2))
  while kill -0 "${pod_process[$1]}" 2> /dev/null; do
    [ $SECONDS -lt $end ] || return 124
    sleep 0.2
  done
  wait "${pod_process[$1]}"
}
pod_exec() { # pod_exec NAME WORD...: another process of a running pod, as its user
  local name=$1
  shift
  nsenter -t "$(pod_first "$name")" --all setpriv --reuid=1000 --regid=1000 --groups=1000 "$@"
}
pod_ready() { ip netns exec "$(pod_space "$1")" bash -c ': < /dev/tcp/127.0.0.1/2222' 2> /dev/null; }

pods_end() {
  local name
  for name in "${!pod_process[@]}"; do # its first process ends the whole pod
    kill -KILL $(pgrep -P "${pod_process[$name]}") "${pod_process[$name]}" 2> /dev/null
  done
  wait 2> /dev/null
  for name in "${!pod_number[@]}"; do ip netns del "$(pod_space "$name")" 2> /dev/null; done
  ip link del "$bridge" 2> /dev/null
  [ -n "${keep_logs:-}" ] && cp -r "$pods/logs" "$keep_logs"
  umount -l "$pods" 2> /dev/null
  rmdir "$pods"
  rmdir /runs 2> /dev/null
}
