#!/bin/bash
# The shared shell parts without a launcher: signals and exit codes of supervise.sh, SLURM's times,
# the decisions of trireme_job_end.
source "$(dirname "$0")/support.sh"
work=$(mktemp -d /var/tmp/trireme-supervise.XXXXXX)
trap 'rm -rf "$work"' EXIT
supervise=$root/jobscripts/common/supervise.sh
cat > "$work/ranks" << 'END'
#!/bin/bash
# Stands for a launcher: notes signals, ends with 75 half a second after USR1.
trap 'echo USR1 >> "$1"; sleep 0.5; exit 75' USR1
trap 'echo USR2 >> "$1"' USR2
trap 'echo TERM >> "$1"; exit 1' TERM
touch "$1.ready"
while :; do sleep 0.1; done
END
chmod +x "$work/ranks"
catching_int() { # what a shell starts in the background ignores INT from its start, and so do its children
  exec python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])' "$@"
}
run() { # run NAME SIGNAL...: signals to the supervisor, then its exit code
  local name=$1 signal pid code=0
  shift
  catching_int "$supervise" "$work/ranks" "$work/$name" 2> "$work/$name.err" &
  pid=$!
  until_true 10 test -e "$work/$name.ready"
  sleep "${settle:-0}"
  for signal; do kill -s "$signal" "$pid" && sleep 0.4; done
  wait "$pid" || code=$?
  echo "$code $(tr '\n' ' ' < "$work/$name" 2> /dev/null)"
}
for code in 0 1 75 78 127 137; do
  "$supervise" bash -c "exit $code"
  check "exit code $code passes" [ $? -eq $code ]
done
check "USR1 becomes USR1" equals "$(run usr1 USR1)" "75 USR1 "
check "TERM becomes USR1" equals "$(run term TERM)" "75 USR1 "
check "INT becomes USR1" equals "$(run int INT)" "75 USR1 "
check "USR2 passes, and the launcher lives on" equals "$(settle=2 run usr2 USR2 USR2 USR1)" "75 USR2 USR2 USR1 "
early() { # early SIGNAL: to a script that has read supervise.sh and not yet started its ranks
  local code=0
  (catching_int timeout 60 bash -c 'source "$1"; kill -s "$3" $$; supervise "$2" "$4"' - \
    "$supervise" "$work/ranks" "$1" "$work/early_$1" 2> "$work/early.err") || code=$?
  echo "$code $(ls "$work/early_$1.ready" 2> /dev/null)"
}
for signal in USR1 TERM INT; do
  check "$signal before the start: nothing starts, 75" equals "$(early $signal)" "75 "
  check "and it says so" has "$work/early.err" "$signal received before the start"
done
check "USR2 before the start: there is nothing to save" bash -c 'source "$1"; kill -s USR2 $$; supervise true' - "$supervise"
printf '#!/bin/bash\ntouch "$1.ready"\nwhile :; do sleep 0.1; done\n' > "$work/bare" # as ranks before they can catch a signal
chmod +x "$work/bare"
"$supervise" "$work/bare" "$work/bare_usr1" 2> /dev/null &
until_true 10 test -e "$work/bare_usr1.ready"
kill -USR1 $!
code=0
wait $! || code=$?
check "ranks that die of USR1 before they can catch it: 75" equals $code 75
check "it says what it does" has "$work/term.err" "TERM received; USR1 to the ranks"
cat > "$work/deaf" << 'END'
#!/bin/bash
trap '' USR1
touch "$1.ready"
while :; do sleep 0.1; done
END
chmod +x "$work/deaf"
TRIREME_GRACE=2 "$supervise" "$work/deaf" "$work/deaf" 2> /dev/null &
pid=$!
until_true 10 test -e "$work/deaf.ready"
kill -TERM $pid
code=0
wait $pid || code=$?
check "ranks that do not end in TRIREME_GRACE seconds are ended" equals $code 143

export TRIREME_JOBSCRIPTS=$root/jobscripts
times() { bash -c 'source "$TRIREME_JOBSCRIPTS/slurm/job.sh"; trireme_seconds "$1" || echo unknown' - "$1"; }
for pair in 0:59=59 12:05=725 1:02:03=3723 2-00:00:01=172801 08:09=489 45=45 UNLIMITED=unknown NOT_SET=unknown 1:2:3:4=unknown ''=unknown; do
  check "squeue's '${pair%=*}'" equals "$(times "${pair%=*}")" "${pair#*=}"
done
# SLURM's commands, as far as the scripts use them.
mkdir -p "$work/bin" "$work/done" "$work/undone"
touch "$work/done/complete.json"
cat > "$work/bin/scontrol" << 'END'
#!/bin/bash
case "$*" in
  "show config") echo "RequeueExit             = ${FAKE_REQUEUE_EXIT:-(null)}" ;;
  requeue*) echo "requeued $2" >> "$FAKE_LOG" ;;
  "show job"*) echo "JobId=7 EndTime=2030-01-02T03:04:05 Deadline=N/A" ;;
esac
END
printf '#!/bin/bash\n[ -n "${FAKE_LEFT:-}" ] && echo "$FAKE_LEFT"\n' > "$work/bin/squeue"
printf '#!/bin/bash\n' > "$work/bin/sleep"
chmod +x "$work/bin"/*
decide() { # decide CODE DIRECTORY [VARIABLE=VALUE...]: "exit code requeues"
  local code=$1 directory=$2 status=0
  shift 2
  : > "$work/requeued"
  env PATH="$work/bin:$PATH" FAKE_LOG="$work/requeued" SLURM_JOB_ID=7 "$@" bash -c \
    'source "$TRIREME_JOBSCRIPTS/slurm/job.sh"; trireme_job_end "$1" "$2"' - "$code" "$directory" 2> "$work/decide.err" || status=$?
  echo "$status $(wc -l < "$work/requeued")"
}
check "0 with a completion record ends the job" equals "$(decide 0 "$work/done")" "0 0"
check "0 without one was a kill: requeue" equals "$(decide 0 "$work/undone")" "75 1"
check "75 requeues by scontrol" equals "$(decide 75 "$work/undone")" "75 1"
check "75 where the site lists it: exit code alone" equals "$(decide 75 "$work/undone" FAKE_REQUEUE_EXIT=16,75)" "75 0"
check "a site that lists 175 does not list 75" equals "$(decide 75 "$work/undone" FAKE_REQUEUE_EXIT=175)" "75 1"
check "a lost rank (137) requeues" equals "$(decide 137 "$work/undone")" "75 1"
check "a rank that USR2 met before it could catch it (140) requeues" equals "$(decide 140 "$work/undone")" "75 1"
check "a lost peer (76) requeues" equals "$(decide 76 "$work/undone" FAKE_REQUEUE_EXIT=75)" "75 0"
check "a bad deck (78) does not" equals "$(decide 78 "$work/undone")" "78 0"
check "a failed check (70) does not" equals "$(decide 70 "$work/undone")" "70 0"
check "too many starts: left alone" equals "$(decide 76 "$work/undone" SLURM_RESTART_COUNT=20)" "70 0"
check "a link of a chain leaves it to the next" equals "$(decide 75 "$work/undone" TRIREME_MAX_RESTARTS=0)" "0 0"
deadline() { env PATH="$work/bin:$PATH" SLURM_JOB_ID=7 "$@" bash -c 'source "$TRIREME_JOBSCRIPTS/slurm/job.sh"; trireme_deadline'; }
check "the end of the job from a newer SLURM" equals "$(deadline SLURM_JOB_END_TIME=1900000000)" 1900000000
left=$(($(deadline FAKE_LEFT=1:00:00) - $(date +%s)))
check "from squeue of an older one" [ $left -ge 3590 -a $left -le 3600 ]
check "from scontrol where squeue says nothing" equals "$(deadline)" "$(date -d 2030-01-02T03:04:05 +%s)"
finish
