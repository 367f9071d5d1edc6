#!/usr/bin/env python3
"""Rates of saving and loading checkpoints beside dd with the same sync, turn by turn.

Each round, for 1, 2 and 4 ranks: dd writes a file (conv=fsync) through the page cache and past it
(oflag=direct), `trireme bench save` saves and loads as many bytes, dd reads its file, which was
taken out of the page cache before, as bench does with what it loads. Saves are set against the
faster dd: memory that a virtual machine never touched makes the page cache several times slower.
Medians of the ratios of neighbours: a noisy machine slows both. dd copies random bytes from memory:
virtual disks are fast at zeros. A first round is not counted: blocks that a virtual disk never
wrote cost more than others.

  tools/checkpoint_rates.py build/bin/trireme FOLDER_ON_THE_DISK --rounds 5 --bytes 2000000000
"""
import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time


def dd(*words):
    start = time.monotonic()
    subprocess.run(["dd", "bs=4M", "status=none", *words], check=True)
    return time.monotonic() - start


def forget(path):
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def bench(program, ranks, folder, size):
    """(save bytes/s, load bytes/s, copy s, pause s) of the second of two turns, on warm blocks."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMPI_MCA_mpi_yield_when_idle="1")
    result = subprocess.run(
        ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), program, "bench", "save",
         folder, f"--bytes={size}", "--turns=2"], check=True, text=True, env=environment,
        stdout=subprocess.PIPE)
    for line in result.stdout.splitlines():
        words = line.split()
        if words and words[0] == "2" and len(words) == 7:
            return float(words[2]) * 1e9, float(words[4]) * 1e9, float(words[5]), float(words[6])
    raise SystemExit("no result in:\n" + result.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=2_000_000_000)
    arguments = parser.parse_args()
    folder = os.path.join(arguments.folder, "checkpoint_rates")
    os.makedirs(folder)
    plain = os.path.join(folder, "plain")
    count = arguments.bytes // (4 << 20)
    size = count * (4 << 20)
    ratios = {ranks: [] for ranks in (1, 2, 4)}
    source = tempfile.NamedTemporaryFile(dir="/dev/shm")
    for _ in range(count):
        source.write(os.urandom(4 << 20))
    source.flush()
    try:
        print(f"{'ranks':>5} {'dd write':>9} {'direct':>9} {'save':>9} {'dd read':>9} {'load':>9}   GB/s"
              f" {'copy s':>9} {'pause s':>9}")
        for turn in range(arguments.rounds + 1):
            for ranks, found in ratios.items():
                words = (f"if={source.name}", f"of={plain}", f"count={count}", "conv=fsync")
                buffered, direct = size / dd(*words), size / dd(*words, "oflag=direct")
                save, load, copy, pause = bench(os.path.abspath(arguments.program), ranks,
                                                os.path.join(folder, "bench"), size)
                forget(plain)
                read = size / dd(f"if={plain}", "of=/dev/null")
                os.unlink(plain)
                if turn > 0:
                    found.append((save / max(buffered, direct), load / read, pause / copy))
                print(f"{ranks:>5} {buffered * 1e-9:>9.3f} {direct * 1e-9:>9.3f} {save * 1e-9:>9.3f} {read * 1e-9:>9.3f}"
                      f" {load * 1e-9:>9.3f}        {copy:>9.3f} {pause:>9.3f}{'' if turn else '   not counted'}",
                      flush=True)
        for ranks, found in ratios.items():
            save, load, pause = (statistics.median(column) for column in zip(*found))
            print(f"{ranks} ranks, medians of {len(found)}: save {save:.2f} of dd, load {load:.2f} of"
                  f" dd, pause {pause:.2f} of a plain copy")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
