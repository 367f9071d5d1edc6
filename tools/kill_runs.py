#!/usr/bin/env python3
"""Kills training jobs with SIGKILL at random moments and checks that nothing is lost.

A run of 4 ranks saves asynchronously without pause. It is killed (one rank, all ranks, or the
launcher), a good third of the kills inside a save, and started again by the same command, until it
has had its share of kills; then it goes to its end. After each kill every file with a checkpoint's
name must be, byte for byte, the one of a run that was never killed; so must the last checkpoint and
the metrics at the end, and no temporary file may be left.

  tools/kill_runs.py build/bin/trireme --kills 200      200 kills of each kind
Exit code 0 when every kill was survived.
"""
import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

RANKS = 4
ALONE = 30  # seconds that a launcher may outlive its ranks
KINDS = ("one rank", "all ranks", "the launcher")
DECK = """[run]
steps = {steps}
[grid]
tp = 2
dp = 2
[model]
family = gpt2
layers = 2
hidden = {hidden}
heads = 2
vocab = 61
dropout = 0.1
[batch]
sequence = 16
global = 4
micro = 1
[optimizer]
learning_rate = 1e-3
[schedule]
warmup = 5
[checkpoint]
every = 1
[log]
every = 1000
"""


class Job:
    def __init__(self, program, deck, directory, keep):
        environment = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1")
        self.output = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(RANKS), program, "train",
             deck, f"--run.directory={directory}", f"--checkpoint.keep={keep}"],
            stdout=self.output, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
        self.known = set()
        self.stuck = False

    def ranks(self):
        """Processes of the ranks that have been started."""
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            if parent == self.process.pid:
                self.known.add(int(entry))
        return sorted(self.known)

    def kill(self, kind):
        ranks = self.ranks()
        if kind == "the launcher" or not ranks:
            os.kill(self.process.pid, signal.SIGKILL)
            return
        for rank in ranks if kind == "all ranks" else [random.choice(ranks)]:
            try:
                os.kill(rank, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def wait(self, limit=1800):
        """Exit code of the launcher, once every rank is gone too; None at the limit, after saying
        who is left. A launcher that stays behind its ranks is killed and remembered: Open MPI's can
        lock itself out at its end where ranks died while it was starting them."""
        end = time.monotonic() + limit
        alone_since = None
        while time.monotonic() < end:
            ranks = any(is_alive(p) for p in self.known)
            if self.process.poll() is not None and not ranks:
                return self.process.returncode
            if ranks or not self.known:
                alone_since = None
            elif alone_since is None:
                alone_since = time.monotonic()
            elif time.monotonic() - alone_since > ALONE:
                self.stuck = True
                os.kill(self.process.pid, signal.SIGKILL)
            time.sleep(0.005)
        self.ranks()
        for process in [*self.known, self.process.pid]:
            if is_alive(process):
                print(f"left: {process} {describe(process)}", flush=True)
        print(self.text()[-1000:], flush=True)
        for process in [*self.known, self.process.pid]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return None

    def text(self):
        self.output.seek(0)
        return self.output.read().decode(errors="replace")


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def describe(process):
    words = []
    for name in ("comm", "wchan"):
        try:
            with open(f"/proc/{process}/{name}") as file:
                words.append(file.read().strip())
        except OSError:
            pass
    return " ".join(words)


def checkpoints(directory, suffix=".h5"):
    try:
        names = os.listdir(os.path.join(directory, "checkpoints"))
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.endswith(suffix))


def unfinished(directory):
    """Files of saves that are not committed, with their inodes: a new job's are not an old one's."""
    found = set()
    for name in checkpoints(directory, ".h5.tmp"):
        try:
            found.add((name, os.stat(os.path.join(directory, "checkpoints", name)).st_ino))
        except FileNotFoundError:
            pass
    return found


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def metrics(directory):
    """Records without times."""
    with open(os.path.join(directory, "metrics.jsonl")) as file:
        records = [json.loads(line) for line in file]
    names = ("step", "consumed_samples", "loss", "grad_norm", "learning_rate")
    return [tuple(record[name] for name in names) for record in records]


class Harness:
    def __init__(self, arguments, scratch):
        self.program = os.path.abspath(arguments.program)
        self.deck = os.path.join(scratch, "deck.ini")
        with open(self.deck, "w") as file:
            file.write(DECK.format(steps=arguments.steps, hidden=arguments.hidden))
        self.directory = os.path.join(scratch, "run")
        self.straight = os.path.join(scratch, "straight")
        start = time.monotonic()
        job = Job(self.program, self.deck, self.straight, 0)
        if job.wait() != 0:
            sys.exit("the straight run failed:\n" + job.text())
        self.length = time.monotonic() - start
        self.want = {name: digest(os.path.join(self.straight, "checkpoints", name))
                     for name in checkpoints(self.straight)}
        self.faults = []
        self.inside = 0
        self.resumed = 0
        self.stuck = 0
        self.counts = dict.fromkeys(KINDS, 0)

    def fault(self, text):
        self.faults.append(text)
        print("FAULT:", text, flush=True)

    def check_files(self, when):
        found = checkpoints(self.directory)
        for name in found:
            if digest(os.path.join(self.directory, "checkpoints", name)) != self.want.get(name):
                self.fault(f"{when}: {name} is not that of the straight run")
        return found

    def start(self, when):
        job = Job(self.program, self.deck, self.directory, 2)
        job.when = when
        return job

    def check_resumed(self, job):
        """A job that found a checkpoint says so, unless it was killed before it came to that. Only
        its launcher may complain."""
        text = job.text()
        self.resumed += "resumed from" in text
        if "error" in text and "trireme: error" in text:
            self.fault(f"{job.when}: {text[-2000:]}")

    def kill_once(self, kind, inside, number):
        before, stale = checkpoints(self.directory), unfinished(self.directory)
        job = self.start(f"kill {number}")
        started = time.monotonic()
        wanted = started + random.uniform(0, 0.9 * self.length)
        while time.monotonic() < wanted and job.process.poll() is None:
            time.sleep(0.002)
        while inside and job.process.poll() is None and not unfinished(self.directory) - stale:
            time.sleep(0.0003)
        if inside and random.random() < 0.5:
            time.sleep(random.uniform(0, 0.003))
        if job.process.poll() is not None and job.process.returncode == 0:
            self.length = time.monotonic() - started
            return False  # it was over before: no kill
        job.kill(kind)
        if job.wait() is None:
            self.fault(f"kill {number} ({kind}): the job did not end")
        self.stuck += job.stuck
        self.inside += bool(unfinished(self.directory) - stale)
        self.counts[kind] += 1
        self.check_resumed(job)
        after = self.check_files(f"kill {number} ({kind})")
        if before and (not after or after[-1] < before[-1]):
            self.fault(f"kill {number} ({kind}): {before[-1]} is gone")
        return True

    def run(self, kinds, number):
        shutil.rmtree(self.directory, ignore_errors=True)
        done = 0
        for kind in kinds:
            done += self.kill_once(kind, random.random() < 0.7, number + done)
        job = self.start(f"after kill {number + done}")
        code = job.wait()
        if code != 0:
            self.fault(f"after kill {number + done}: exit code {code}\n{job.text()[-2000:]}")
            return done
        self.check_resumed(job)
        found = self.check_files(f"end after kill {number + done}")
        if not found or found[-1] != max(self.want):
            self.fault(f"end after kill {number + done}: the last checkpoint is missing")
        if metrics(self.directory) != metrics(self.straight):
            self.fault(f"end after kill {number + done}: metrics differ from the straight run")
        left = [name for name in os.listdir(os.path.join(self.directory, "checkpoints"))
                if name.endswith(".tmp")]
        if left:
            self.fault(f"end after kill {number + done}: {left} are left")
        return done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=200, help="of each of the three kinds")
    parser.add_argument("--steps", type=int, default=20, help="of a run")
    parser.add_argument("--hidden", type=int, default=16, help="width: from 256 on, pieces go past the page cache")
    parser.add_argument("--directory", help="where runs live (default: the temporary directory)")
    arguments = parser.parse_args()
    scratch = tempfile.mkdtemp(prefix="trireme-kills-", dir=arguments.directory)
    try:
        harness = Harness(arguments, scratch)
        print(f"straight run: {harness.length:.1f} s, {len(harness.want)} checkpoints", flush=True)
        runs = 0
        while min(harness.counts.values()) < arguments.kills:
            kinds = [k for k in KINDS if harness.counts[k] < arguments.kills]
            random.shuffle(kinds)
            harness.run(kinds, sum(harness.counts.values()))
            runs += 1
            if runs % 10 == 0:
                print(f"{runs} runs, kills {harness.counts}, {harness.inside} inside a save, "
                      f"{len(harness.faults)} faults", flush=True)
        total = sum(harness.counts.values())
        print(f"{total} kills in {runs} runs: {harness.counts}; {harness.inside} inside a save, "
              f"{harness.resumed} starts resumed from a checkpoint; {harness.stuck} times mpirun stayed behind its ranks; "
              f"{len(harness.faults)} faults")
        return 1 if harness.faults else 0
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
