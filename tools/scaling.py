#!/usr/bin/env python3
"""How a training step scales over one axis: each rank count against one rank, turn by turn.

  tools/scaling.py build/bin/trireme inputs/gpt2_1558m.ini dp --ranks 2 4 8 --sequences 8 --batch.micro=4
  tools/scaling.py build/bin/trireme inputs/llama3_8b.ini tp --ranks 2 --sequences 4 --model.layers=16
  tools/scaling.py build/bin/trireme DECK pp --ranks 2 4 --sequences 64 --base=--model.layers=10

dp  weak scaling: --sequences for each rank. Ideal: the rate of one rank.
tp  the same step on more ranks, sequence parallel, with tp_overlap off and on. Ideal: as above.
pp  the same step, interleaved over --virtual-stages chunks a rank. Ideal: as above, less the
    bubble, (p - 1) / (v m) of the ideal time with m micro-batches.

Compared is model FLOP/s a rank, so that the one rank may train a smaller model (--base) where the
whole one does not fit. A turn runs one rank and each layout; ratios are taken within a turn, and
their median is printed: what slows a machine slows both. Words with a dot go to `trireme bench step`.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys

STEP = re.compile(r"^step +([\d.]+) ms .*, (\d+) tokens/s", re.M)
RATE = re.compile(r"^ +([\d.e+-]+) TFLOP/s a rank", re.M)
EXPOSED = re.compile(r"exposed +tp ([\d.]+) ms.*\n +pp ([\d.]+) ms.*\n +dp ([\d.]+) ms .*?, ([\d.]+) ms")
ONE = ["--grid.tp=1", "--grid.pp=1", "--grid.sequence_parallel=false"]


class Result:
    """One run of `trireme bench step`."""

    def __init__(self, arguments, ranks, words):
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        command = [*arguments.mpirun.split(), "-n", str(ranks), arguments.program, "bench", "step",
                   arguments.deck, "--steps", str(arguments.steps), *words]
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=environment, check=False)
        step, rate, exposed = (r.search(done.stdout) for r in (STEP, RATE, EXPOSED))
        if done.returncode != 0 or not (step and rate and exposed):
            sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}")
        self.milliseconds, self.tokens = float(step[1]), float(step[2])
        self.rate = float(rate[1])
        tp, pp, gradients, values = (float(x) for x in exposed.groups())
        self.exposed = (tp, pp, gradients + values)


def layouts(arguments):
    """(name, ranks, words, ideal share of one rank's rate) of each layout."""
    for ranks in arguments.ranks:
        if arguments.axis == "dp":
            yield f"dp {ranks}", ranks, [*ONE, f"--batch.global={ranks * arguments.sequences}"], 1
        elif arguments.axis == "tp":
            for overlap in ("off", "on"):
                yield (f"tp {ranks}, overlap {overlap}", ranks,
                       [f"--grid.tp={ranks}", "--grid.pp=1", "--grid.sequence_parallel=true",
                        f"--grid.tp_overlap={overlap}", f"--batch.global={arguments.sequences}"], 1)
        else:
            chunks = arguments.virtual_stages
            bubble = (ranks - 1) / (chunks * arguments.sequences / arguments.micro)
            yield (f"pp {ranks}, {chunks} chunks", ranks,
                   ["--grid.tp=1", f"--grid.pp={ranks}", "--grid.sequence_parallel=false",
                    f"--grid.virtual_stages={chunks}", f"--batch.global={arguments.sequences}"], 1 / (1 + bubble))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("deck")
    parser.add_argument("axis", choices=["dp", "tp", "pp"])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--sequences", type=int, required=True, help="a step; for dp: a step and rank")
    parser.add_argument("--micro", type=int, default=1, help="sequences of a micro-batch")
    parser.add_argument("--virtual-stages", type=int, default=2)
    parser.add_argument("--base", action="append", default=[], help="a word for the one rank alone")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--mpirun", default="mpirun --bind-to none")
    arguments, words = parser.parse_known_args()
    for word in words:
        if not re.match(r"--\w+\.\w+=", word):
            parser.error(f"unknown word {word}; words for the bench look like --section.key=value")
    arguments.words = [*words, f"--batch.micro={arguments.micro}"]
    return arguments


def main():
    arguments = parse()
    single = [*ONE, f"--batch.global={arguments.sequences}", *arguments.words, *arguments.base]
    rows = {}
    for turn in range(arguments.turns):
        alone = Result(arguments, 1, single)
        print(f"turn {turn + 1}: one rank {alone.milliseconds} ms, {alone.rate} TFLOP/s", file=sys.stderr)
        for name, ranks, words, ideal in layouts(arguments):
            result = Result(arguments, ranks, [*arguments.words, *words])
            print(f"turn {turn + 1}: {name} {result.milliseconds} ms, {result.rate} TFLOP/s a rank", file=sys.stderr)
            rows.setdefault(name, (ideal, []))[1].append((result.rate / alone.rate, result))
    print("| layout | step | tokens/s | TFLOP/s a rank | of one rank's rate | of the ideal | exposed tp / pp / dp |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, (ideal, results) in rows.items():
        share = statistics.median(ratio for ratio, _ in results)
        middle = sorted(results, key=lambda pair: pair[0])[len(results) // 2][1]
        exposed = " / ".join(f"{x:.1f}" for x in middle.exposed)
        print(f"| {name} | {middle.milliseconds:.1f} ms | {middle.tokens:.0f} | {middle.rate:.4g} | "
              f"{100 * share:.1f} % | {100 * share / ideal:.1f} % | {exposed} ms |")


if __name__ == "__main__":
    main()
