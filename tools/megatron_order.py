#!/usr/bin/env python3
"""Writes tests/data/megatron_order.json: which token windows Megatron-Core's own dataset classes hand out.

Needs Megatron-Core and PyTorch (pip install megatron-core torch numpy); the build and the tests do not. Every case is
a random set of datasets, sequence length, seed, split or paths for each part, weights and numbers of samples. Kept are,
for each part, the number of samples, a SHA-256 over the windows (T + 1 little-endian 32-bit ids each) and, for a few
cases, the first windows themselves. tests/unit/data_megatron_order.cpp makes the same datasets from the case's numbers
and compares.

usage: megatron_order.py [--cases 200] [--seed 1] [--output tests/data/megatron_order.json]
"""
import argparse
import collections
import hashlib
import json
import logging
import os
import pathlib
import random
import struct
import tempfile

import numpy
import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

PARTS = 3
WINDOWS_KEPT = 2


class Tokenizer:
    eod, pad, vocab_size = 1, -1, 1 << 30
    unique_identifiers = collections.OrderedDict(name="none")


def lengths_of(start, documents, longest):
    """Lengths of a dataset: a congruential generator modulo 2^64, its upper 31 bits; some are 0."""
    state, lengths = start, []
    for _ in range(documents):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        value = state >> 33
        lengths.append(0 if value % 13 == 0 else 1 + value % longest)
    return lengths


def write_dataset(prefix, lengths, number):
    """Ids are 10^6 times the dataset's number, plus the position. One sequence a document."""
    count = len(lengths)
    pointers = numpy.concatenate([[0], numpy.cumsum(lengths)[:-1]]).astype(numpy.int64) * 4
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, count, count + 1))
        file.write(numpy.array(lengths, numpy.int32).tobytes() + pointers.tobytes())
        file.write(numpy.arange(count + 1, dtype=numpy.int64).tobytes())
    (1000000 * number + numpy.arange(sum(lengths))).astype(numpy.int32).tofile(prefix + ".bin")


def random_case(chance):
    datasets = [{"start": chance.randrange(1 << 62), "documents": chance.randint(3, 60),
                 "longest": chance.choice([5, 40, 150])} for _ in range(chance.choice([1, 1, 2, 3, 5, 9, 17]))]
    case = {"sequence": chance.choice([1, 4, 8, 17, 32, 64]), "seed": chance.choice([1234, 1, 42, chance.randrange(1 << 32)]),
            "datasets": datasets}
    weighted = chance.random() < 0.6

    def blend(numbers):
        weights = [chance.choice([chance.random() + 0.01, chance.randint(1, 100)]) for _ in numbers]
        return {"datasets": numbers, "weights": [float(w) for w in weights] if weighted else None}

    everything = list(range(len(datasets)))
    if chance.random() < 0.7:
        case["split"] = chance.choice(["969,30,1", "90,5,5", "1,1,1", "0.5,0.3,0.2", "98,2,0", "1,0,0", "80/10/10"])
        case["blends"] = [blend(everything)]
    else:
        case["split"] = None
        parts = [blend(everything)]
        for _ in range(PARTS - 1):
            chosen = sorted(chance.sample(everything, chance.randint(1, len(everything))))
            parts.append(chance.choice([blend(chosen), None]))
        case["blends"] = parts
    case["samples"] = [chance.randint(1, 400), chance.choice([1, 7, 40]), chance.choice([1, 5, 30])]
    return case


def build(case, folder):
    prefixes = []
    for number, dataset in enumerate(case["datasets"]):
        prefixes.append(os.path.join(folder, str(number)))
        write_dataset(prefixes[-1], lengths_of(dataset["start"], dataset["documents"], dataset["longest"]), number)

    def blend(part):
        return part and ([prefixes[i] for i in part["datasets"]], part["weights"])

    one = case["split"] is not None
    config = GPTDatasetConfig(
        random_seed=case["seed"], sequence_length=case["sequence"], split=case["split"],
        blend=blend(case["blends"][0]) if one else None,
        blend_per_split=None if one else [blend(part) for part in case["blends"]],
        tokenizer=Tokenizer(), reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
        create_attention_mask=False)
    check_room(case, config)
    return BlendedMegatronDatasetBuilder(GPTDataset, case["samples"], lambda: True, config).build()


def check_room(case, config):
    """Every part of every dataset must hold a sample: Megatron does not end, or asserts, without."""
    for number, dataset in enumerate(case["datasets"]):
        lengths = lengths_of(dataset["start"], dataset["documents"], dataset["longest"])
        for bounds in config.split_matrix or [(0.0, 1.0)]:
            if bounds is not None:
                first, last = (int(round(b * float(len(lengths)))) for b in bounds)
                if sum(lengths[first:last]) <= case["sequence"]:
                    raise ValueError(f"dataset {number} is too short")


def windows_of(dataset, wanted):
    for i in range(min(wanted, len(dataset))):
        item = dataset[i]
        yield torch.cat([item["tokens"], item["labels"][-1:]]).numpy().astype("<i4")


def measure(case, keep_windows):
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for dataset, wanted in zip(build(case, folder), case["samples"]):
            if dataset is None:
                results.append(None)
                continue
            digest, kept, count = hashlib.sha256(), [], 0
            for window in windows_of(dataset, wanted):
                digest.update(window.tobytes())
                count += 1
                if keep_windows and len(kept) < WINDOWS_KEPT:
                    kept.append(window.tolist())
            result = {"compared": count, "sha256": digest.hexdigest()[:32]}
            results.append(result | ({"windows": kept} if keep_windows else {}))
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="tests/data/megatron_order.json")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    chance, cases, refused = random.Random(options.seed), [], collections.Counter()
    while len(cases) < options.cases:
        case = random_case(chance)
        try:
            case["parts"] = measure(case, keep_windows=len(cases) % 20 == 0 and case["sequence"] <= 17)
            cases.append(case)
        except (ValueError, AssertionError, IndexError) as fault:
            refused[type(fault).__name__] += 1
    from megatron.core import package_info
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    header = json.dumps({"megatron_core": package_info.__version__})[1:-1]
    pathlib.Path(options.output).write_text(f'{{{header}, "cases": [\n{lines}\n]}}\n')
    print(f"{len(cases)} cases, Megatron-Core {package_info.__version__}; not taken: {dict(refused)}")


if __name__ == "__main__":
    main()
