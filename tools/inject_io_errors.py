#!/usr/bin/env python3
"""Lets file calls of a real training job fail with `strace -e inject`, and checks that nothing that
is wrong is ever committed and nothing hangs.

Each job runs under strace on one of its ranks; every n-th call of one kind on the job's checkpoints
fails with one error. Saves that fail are tried again. Afterwards every file with a checkpoint's
name must be, byte for byte, the one of a job without errors.

  tools/inject_io_errors.py build/bin/trireme --errors 500    at least, over every kind of call and error
Exit code 0 when at least so many errors were injected and none did harm.
"""
import argparse
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

RANKS = 2
STEPS = 24
# call -> errors; EINTR must not be noticed at all.
ERRORS = {
    "pwrite64": ["ENOSPC", "EIO", "EDQUOT", "EINTR"],
    "fsync": ["EIO", "ENOSPC", "EDQUOT", "EINTR"],
    "fallocate": ["ENOSPC", "EDQUOT", "EIO", "EINTR", "EOPNOTSUPP"],
    "openat": ["ENOSPC", "EIO", "EDQUOT", "EMFILE", "EINTR"],
    "rename": ["ENOSPC", "EIO", "EDQUOT"],
    "close": ["EIO", "EINTR"],
    "unlink": ["EIO"],
}
STRIDES = {"pwrite64": [23, 29, 37], "openat": [11, 13], "close": [11, 13], "unlink": [7, 11]}
# strace counts calls by thread, and each save has a thread with few of these: every save may fail,
# until the job ends with 74.
RARE = ("fsync", "rename")
DECK = """[run]
steps = {steps}
[model]
family = gpt2
layers = 2
hidden = 16
heads = 2
vocab = 61
[batch]
sequence = 16
global = 4
micro = 1
[checkpoint]
every = 1
keep = 0
retries = 1000
retry_after = 0
[log]
every = 1000
"""


def watched_names(directory):
    """strace looks at exact paths: every name that a save may use."""
    checkpoints = os.path.join(directory, "checkpoints")
    yield checkpoints
    for step in range(STEPS + 1):
        for suffix in (".h5", ".h5.tmp", ".json", ".json.tmp"):
            yield os.path.join(checkpoints, f"step_{step:09d}{suffix}")


def launch(program, deck, directory, rank=None, inject=None, trace=None, words=()):
    strace = ["strace", "-f", "-qq", "-o", trace, "-e", f"trace={inject[0]}",
              "-e", "inject={}:{}:when={}+{}".format(*inject)] if inject else []
    for name in watched_names(directory) if inject else ():
        strace += ["-P", name]
    train = [program, "train", deck, f"--run.directory={directory}", *words]
    words = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    parts = [["-n", "1", *(strace if r == rank else []), *train] for r in range(RANKS)]
    words += list(itertools.chain.from_iterable(([":"] if i else []) + p for i, p in enumerate(parts)))
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1")
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300, env=environment)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--errors", type=int, default=500, help="to inject, at least")
    parser.add_argument("--directory", help="where runs live (default: the temporary directory)")
    arguments = parser.parse_args()
    scratch = tempfile.mkdtemp(prefix="trireme-inject-", dir=arguments.directory)
    program = os.path.abspath(arguments.program)
    try:
        return run(program, scratch, arguments.errors)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def run(program, scratch, wanted):
    deck = os.path.join(scratch, "deck.ini")
    with open(deck, "w") as file:
        file.write(DECK.format(steps=STEPS))
    straight = os.path.join(scratch, "straight")
    done = launch(program, deck, straight)
    if done.returncode != 0:
        print(done.stdout)
        return 1
    names = [f"step_{step:09d}.h5" for step in range(1, STEPS + 1)]
    right = {n: read(os.path.join(straight, "checkpoints", n)) for n in names
             if os.path.exists(os.path.join(straight, "checkpoints", n))}
    injected, jobs, faults, by_call = 0, 0, 0, {}
    kinds = [(call, error) for call, errors in ERRORS.items() for error in errors]
    random.seed(5)
    while injected < wanted or jobs < len(kinds):
        random.shuffle(kinds)
        for call, error in kinds:
            if injected >= wanted and jobs >= len(kinds):
                break
            rank = random.randrange(RANKS) if call in ("pwrite64", "fsync", "openat", "close") else 0
            what = f"error={error}"
            # Wider apart than the calls of one save, so that one of two attempts succeeds.
            first, every = random.randint(2, 9), random.choice(STRIDES.get(call, [3, 5]))
            words = []
            if call in RARE:
                first, every, words = random.randint(1, 4), random.randint(1, 4), ["--checkpoint.retries=5"]
            directory, trace = os.path.join(scratch, "run"), os.path.join(scratch, "trace")
            shutil.rmtree(directory, ignore_errors=True)
            text = f"{call} fails with {error} on rank {rank}, call {first}+{every}"
            start = time.monotonic()
            try:
                result = launch(program, deck, directory, rank, (call, what, first, every), trace, words)
            except subprocess.TimeoutExpired:
                print("FAULT: hangs:", text, flush=True)
                faults += 1
                continue
            hits = len(re.findall(r"\(INJECTED\)", read(trace).decode(errors="replace")))
            injected += hits
            jobs += 1
            by_call[call] = by_call.get(call, 0) + hits
            faults += judge(result, directory, right, text, time.monotonic() - start)
            print(f"{injected} errors, {jobs} jobs, {faults} faults; last: {text}", flush=True)
    print(f"{injected} injected errors in {jobs} jobs ({by_call}): {faults} faults")
    return 1 if faults else 0


def judge(result, directory, right, text, seconds):
    """0 when all is well. A job may end with 74 (an error at the start, where nothing is retried)."""
    fault = ""
    if result.returncode not in (0, 74):
        fault = f"exit code {result.returncode}"
    folder = os.path.join(directory, "checkpoints")
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        if name.endswith(".h5") and name in right and read(os.path.join(folder, name)) != right[name]:
            fault = f"{name} is wrong"
    last = max(right)
    if result.returncode == 0 and not os.path.exists(os.path.join(folder, last)):
        fault = f"{last} is missing"
    if fault:
        print(f"FAULT: {fault}: {text} ({seconds:.1f} s)\n{result.stdout[-1500:]}", flush=True)
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main())
