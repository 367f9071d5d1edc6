#!/bin/bash
# The shipped MPIJob (mpijob-cpu.yaml) as the operator lays it out, in namespaces instead of pods: sshd
# without root on 2222, the operator's host file, key and variables, names that resolve late. Then what
# users met: late, lost and killed workers, wrong counts, another build, unread host files. Skips
# without root.
source "$(dirname "$0")/support.sh"
source "$here/pods.sh"
python=${TRIREME_PYTHON:-python3}
[ "$(id -u)" -eq 0 ] || skip "root is needed for namespaces"
for program in sshd ssh-keygen ip unshare nsenter setpriv; do
  command -v "$program" > /dev/null || skip "$program is missing: tools/setup.sh launchers"
done
"$python" -c 'import yaml' 2> /dev/null || skip "python3-yaml is missing: tools/setup.sh launchers"
trap pods_end EXIT
pods_begin "$root/jobscripts/kubeflow/mpijob-cpu.yaml" team || { bad "namespaces can be made"; finish; exit 1; }
# The manifest's deck, endless at first and on random windows: these do not depend on its length.
make_data "$pods/image/data" || bad "tokenize"
chmod a+r "$pods"/image/data*
sed -i "s|^kind = mock|kind = indexed\npath = /opt/trireme/data\norder = random|; s/^every = .*/every = 20/" "$pods/deck/deck.ini"
echo "[schedule]
decay = 100000" >> "$pods/deck/deck.ini"
set_steps() { sed -i "s/^steps = .*/steps = $1/" "$pods/deck/deck.ini"; }
set_steps 10000000
run=$pods/runs/trireme-cpu
log=$pods/logs/$plan_launcher
launch() { # launch WORD...: the launcher pod with the manifest's command and more words
  pod_start "$plan_launcher" launcher "${plan_launcher_env[@]}" "${plan_launcher_command[@]}" "$@"
}
launch_words() { # launch_words WORD...: the launcher pod with another command line
  pod_start "$plan_launcher" launcher "${plan_launcher_env[@]}" "$@"
}
work() { pod_start "$1" worker "${plan_worker_env[@]}" "${plan_worker_command[@]}"; }
ends() { # ends CODE SECONDS: the launcher pod
  local code=0
  pod_wait "$plan_launcher" "$2" || code=$?
  [ "$code" -eq "$1" ] || { echo "    ended with $code, expected $1"; tail -20 "$log" | sed 's/^/    | /'; return 1; }
}
one=${plan_workers[0]} two=${plan_workers[1]}
for pod in "$plan_launcher" "$one" "$two"; do pod_create "$pod"; done

work "$one"
check "sshd without root answers on 2222" until_true 20 pod_ready "$one"
pod_resolves "$one" "${plan_names[0]}"
launch_words NCCL_SOCKET_IFNAME=eth0 "${plan_launcher_command[@]}"
sleep 4
check "the launcher waits for the second worker" kill -0 "${pod_process[$plan_launcher]}"
work "$two"
until_true 20 pod_ready "$two"
pod_resolves "$two" "${plan_names[1]}"
check "a late worker is waited for, and training starts on both" until_true 60 reached "$run" 25
check "the table names both workers" has "$log" "2 hosts answer" "$one" "$two" "4 ranks on 2 hosts"
check "the hosts call each other" has "$log" "network: 2 hosts reach each other by TCP (eth0 here)"
check "variables of the launcher reach the ranks" has "$log" "variable: NCCL_SOCKET_IFNAME=eth0"

killed_at=$SECONDS
pod_signal "$two" KILL
code=0
pod_wait "$plan_launcher" 30 || code=$?
check "a killed worker ends the job within 30 s ($((SECONDS - killed_at)) s, exit code $code)" [ "$code" -ne 0 -a "$code" -ne 124 ]
check "and the launcher says what its exit code means" has "$log" "a worker pod was lost"
work "$two" # restartPolicy OnFailure
until_true 20 pod_ready "$two"
launch
check "the restart resumes" until_true 40 grep -q "resumed from" "$log"
at=$(steps_of "$run")
until_true 40 reached "$run" $((at + 5))
pod_signal "$plan_launcher" TERM
check "TERM to the launcher pod (a drain) saves and ends with 75" ends 75 40
check "and says so" has "$log" "USR1 to the ranks" "stopped after step" "asked to stop, saved"
launch
until_true 40 grep -q "resumed from" "$log"
at=$(steps_of "$run")
until_true 40 reached "$run" $((at + 5))
pod_exec "$one" /opt/trireme/jobscripts/kubeflow/worker-stop.sh 30
check "the preStop hook of one worker saves and stops all" ends 75 30
steps=$(($(stopped_step "$log") + 15))
set_steps $steps
launch
check "the last start completes" ends 0 180
check "with a completion record" has "$run/complete.json" "\"step\":$steps"
# In a pod, too: checkpoints hold the path of the data.
launch_words mpirun --host localhost:4 -n 4 --bind-to none /opt/trireme/bin/trireme train /etc/trireme/deck.ini \
  --grid.nodes=1 --run.directory=/runs/straight
check "a run on one host that was never stopped" ends 0 180
check "killed, stopped twice, resumed three times: bit-equal to a run that was not" same_run "$pods/runs/straight" "$run" $steps

launch_words mpirun --host localhost:4 -n 4 /opt/trireme/bin/trireme train /etc/trireme/deck.ini --run.directory=/runs/alone
check "a host file that mpirun does not read (Open MPI 5) is noticed: 78" ends 78 30
check "in words" has "$log" "/etc/mpi/hostfile (OMPI_MCA_orte_default_hostfile) says 2 hosts, the 4 ranks are on 1"
launch_words /opt/trireme/jobscripts/kubeflow/launch.sh --nodes 2 --per-node 4 -- train /etc/trireme/deck.ini
check "more ranks than slots: 78 and words" ends 78 20
has "$log" "raise slotsPerWorker" || bad "words about slots"
launch_words /opt/trireme/jobscripts/kubeflow/launch.sh --nodes 1 --per-node 2 -- train /etc/trireme/deck.ini --grid.pp=1 --run.steps=3 --run.directory=/runs/one
check "fewer hosts than the host file, on purpose: runs" ends 0 40
check "with a warning that names the unused host" has "$log" "1 of 2 hosts stay unused: ${plan_names[1]}"
for pod in "$one" "$two"; do # a container engine's bridge: up, with the same address on every host
  ip -n "$(pod_space "$pod")" link add docker0 type bridge
  ip -n "$(pod_space "$pod")" addr add 172.17.0.1/16 dev docker0
  ip -n "$(pod_space "$pod")" link set docker0 up
done
bridged() { # bridged VARIABLE...: three steps
  launch_words "$@" /opt/trireme/jobscripts/kubeflow/launch.sh --nodes 2 --per-node 2 -- \
    train /etc/trireme/deck.ini --run.steps=3 --run.directory=/runs/bridge
}
bridged TRIREME_START_SECONDS=6
check "MPI on a bridge of containers: 76, no hang" ends 76 40
check "with the addresses and the cure" has "$log" "not brought all 4 ranks together within 6 s" "docker0 172.17.0.1" "btl_tcp_if_include"
bridged OMPI_MCA_btl_tcp_if_include=eth0 NCCL_SOCKET_IFNAME=docker0
check "an interface that leads nowhere: the run ends, MPI takes another" ends 0 40
check "and the pair of hosts is named" has "$log" "$one (docker0 172.17.0.1) does not reach $two at 172.17.0.1" "NCCL_SOCKET_IFNAME=eth0"
for pod in "$one" "$two"; do ip -n "$(pod_space "$pod")" link del docker0; done
chmod 600 "$pods/ssh/id_rsa"
launch
check "a key that the user cannot read: 78 and words" ends 78 20
has "$log" "cannot be read by uid 1000" "runAsUser" || bad "words about the key"
chmod 644 "$pods/ssh/id_rsa"

python3 - "$pods/image" "$pods/other" << 'END'
import pathlib, shutil, subprocess, sys
shutil.copytree(sys.argv[1], sys.argv[2])
program = pathlib.Path(sys.argv[2]) / "bin/trireme"
notes = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout
build = bytes.fromhex(notes.split("Build ID:")[1].split()[0])
program.write_bytes(program.read_bytes().replace(build, bytes(20)))
END
pod_signal "$two" KILL
pod_wait "$two" 10
image=$pods/other work "$two"
until_true 20 pod_ready "$two"
launch --run.directory=/runs/other
check "another build on one worker: 78" ends 78 40
check "with the ranks' names" has "$log" "other builds of the program run on rank 2 on $two, rank 3 on $two" "same image"

pod_signal "$two" KILL
pod_wait "$two" 10
launch_words "${plan_launcher_command[0]}" --wait 4 -- train /etc/trireme/deck.ini
check "a worker that never comes: 76 within its limit" ends 76 30
check "and its name" has "$log" "worker ${plan_names[1]} did not come within 4 s: port 2222 is closed"
finish
