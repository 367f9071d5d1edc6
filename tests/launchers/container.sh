#!/bin/bash
# The steps of the Dockerfile without a container engine: the image's user and ssh settings in a folder, the
# built program with the image's layout, run as uid 1000, every library of it from a run-time package that
# the image installs. PBS and Flux scripts with stand-ins for their commands.
source "$(dirname "$0")/support.sh"
work=$(mktemp -d /var/tmp/trireme-container.XXXXXX)
trap 'rm -rf "$work"' EXIT
steps=$root/jobscripts/container/build_image.sh
for step in packages program setup; do
  check "the Dockerfile has the step $step" grep -q "build_image.sh $step" "$root/Dockerfile"
done
check "the image runs without root" grep -q '^USER 1000:1000' "$root/Dockerfile"
mkdir -p "$work/root/etc" && echo 'root:x:0:0:root:/root:/bin/bash' > "$work/root/etc/passwd" && echo 'root:x:0:' > "$work/root/etc/group"
touch "$work/root/etc/ssh_host_rsa_key"
if [ "$(id -u)" -eq 0 ]; then
  check "setup" "$steps" setup "$work/root"
  check "setup twice" "$steps" setup "$work/root"
  check "one user, uid 1000" equals "$(grep -c '^mpiuser:x:1000:1000:' "$work/root/etc/passwd")" 1
  check "ssh reaches port 2222" has "$work/root/etc/ssh/ssh_config.d/trireme.conf" "Port 2222" "StrictHostKeyChecking no"
  check "its home is its own" equals "$(stat -c %u:%a "$work/root/home/mpiuser/.ssh")" 1000:700
  install -D "$TRIREME" "$work/opt/bin/trireme" && chmod -R a+rX "$work"
  check "the program runs as uid 1000 with an empty environment" \
    setpriv --reuid=1000 --regid=1000 --clear-groups env -i "$work/opt/bin/trireme" --version
fi
# Every library must come from a package of the image, or one that such a package needs.
if command -v dpkg-query > /dev/null; then
  mapfile -t wanted < <("$steps" list run)
  mapfile -t known < <(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
    --no-enhances "${wanted[@]}" 2> /dev/null | grep -oE '^[a-z0-9][a-z0-9.+-]*' | sort -u)
  mapfile -t libraries < <(ldd "$TRIREME" | grep -o '/[^ ]*' | while read -r library; do echo "$library"; readlink -f "$library"; done | sort -u)
  # One line for each file that a package owns; a file under two names needs one of them.
  missing=$(dpkg-query -S "${libraries[@]}" 2> /dev/null | cut -d : -f 1 | sort -u | grep -vxF -f <(printf '%s\n' "${known[@]}"))
  check "the image's packages bring every library of the program" equals "$missing" ""
fi

export TRIREME_JOBSCRIPTS=$root/jobscripts DECK=$work/deck.ini
make_data "$work/data" && write_deck "$work/deck.ini" 5 "$work/data"
mkdir -p "$work/bin" && printf 'hosta\nhosta\nhosta\nhosta\n' > "$work/nodes"
printf '#!/bin/bash\n[ "$1" != -f ] || echo "    Resource_List.walltime = 01:00:00"\n' > "$work/bin/qstat"
printf '#!/bin/bash\necho "$@" >> %q\n' "$work/qsub.log" > "$work/bin/qsub"
# mpirun on this machine instead of the host of the file
cat > "$work/bin/mpirun" << END
#!/bin/bash
words=()
while [ \$# -gt 0 ]; do
  case \$1 in --hostfile | --map-by) shift 2 ;; *) words+=("\$1") && shift ;; esac
done
exec $(command -v mpirun) "\${words[@]}"
END
chmod +x "$work/bin"/*
pbs() { env PATH="$work/bin:$PATH" PBS_O_WORKDIR="$work" PBS_JOBID=1.server PBS_JOBNAME=pbs PBS_NODEFILE="$work/nodes" \
  TRIREME_RUN_DIRECTORY="$work/runs" "$@" bash "$root/jobscripts/pbs/multi_node.pbs" > "$work/pbs.out" 2>&1; }
check "PBS: runs to the end" pbs
check "PBS: knows the end of its wall time" has "$work/pbs.out" "left (TRIREME_DEADLINE)" "4 ranks on 1 host"
check "PBS: no successor" [ ! -e "$work/qsub.log" ]
printf '#!/bin/bash\nexit 75\n' > "$work/bin/mpirun"
code=0
pbs TRIREME_STARTS=3 || code=$?
check "PBS: stopped with steps left: 75 and a successor" equals "$code $(cat "$work/qsub.log")" \
  "75 -v DECK=$work/deck.ini,TRIREME_STARTS=4,TRIREME_RUN_DIRECTORY=$work/runs $root/jobscripts/pbs/multi_node.pbs"
cat > "$work/bin/flux" << END
#!/bin/bash
case \$1 in
  resource) echo 1 ;;
  job) echo 3600 ;;
  run) while [ "\${1#-}" != "\$1" ] || [ "\$1" = run ] || [[ \$1 == gpu-affinity* ]]; do shift; done; exec $(command -v mpirun) -n 4 --bind-to none "\$@" ;;
  getattr) echo local:///parent ;;
  proxy) echo "\$@" >> "$work/flux.log" ;;
esac
END
chmod +x "$work/bin/flux"
flux_job() { env PATH="$work/bin:$PATH" TRIREME_RANKS_PER_NODE=4 TRIREME_RUN_DIRECTORY="$work/flux" bash "$root/jobscripts/flux/multi_node.sh" "$work/deck.ini" > "$work/flux.out" 2>&1; }
check "Flux: runs to the end" flux_job
check "Flux: knows the end of its time" has "$work/flux.out" "left (TRIREME_DEADLINE)" "4 ranks on 1 host"
check "Flux: no successor" [ ! -e "$work/flux.log" ]
finish
