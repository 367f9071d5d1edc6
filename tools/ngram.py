#!/usr/bin/env python3
"""Losses of counting models on a token dataset, to compare a trained model with.

Fits a bigram and a trigram model with Witten-Bell smoothing on the training documents and prints their
mean loss in nats per token on the validation documents. Reads Megatron's .bin/.idx.
usage: ngram.py PREFIX [--split 90,10,0]
"""
import argparse
import array
import math
import struct
from collections import Counter, defaultdict


def read_documents(prefix):
    with open(prefix + ".idx", "rb") as f:
        magic, version, code, sequences, _ = struct.unpack("<9sQBQQ", f.read(34))
        if magic != b"MMIDIDX\0\0" or version != 1:
            raise SystemExit(f"{prefix}.idx: not an indexed dataset")
        lengths = struct.unpack(f"<{sequences}i", f.read(4 * sequences))
    kind = {1: "B", 4: "i", 5: "q", 8: "H"}[code]
    tokens = array.array(kind)
    with open(prefix + ".bin", "rb") as f:
        tokens.frombytes(f.read())
    start = 0
    for length in lengths:
        yield tokens[start : start + length]
        start += length


class WittenBell:
    """p(x | context) mixes the maximum-likelihood estimate with the next shorter context."""

    def __init__(self, order, vocab):
        self.order, self.vocab = order, vocab
        self.counts = [defaultdict(Counter) for _ in range(order)]

    def fit(self, tokens):
        for n in range(self.order):
            table = self.counts[n]
            for i in range(n, len(tokens)):
                table[tuple(tokens[i - n : i])][tokens[i]] += 1
        self.totals = [{c: sum(t.values()) for c, t in table.items()} for table in self.counts]

    def probability(self, context, token):
        p = 1.0 / self.vocab
        for n in range(min(self.order, len(context) + 1)):
            key = tuple(context[len(context) - n :])
            seen = self.counts[n].get(key)
            if seen is None:
                break
            total, kinds = self.totals[n][key], len(seen)
            p = (seen.get(token, 0) + kinds * p) / (total + kinds)
        return p

    def loss(self, tokens):
        n = self.order - 1
        log = sum(math.log(self.probability(tokens[max(0, i - n) : i], tokens[i])) for i in range(1, len(tokens)))
        return -log / (len(tokens) - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prefix")
    parser.add_argument("--split", default="90,10,0")
    args = parser.parse_args()
    documents = list(read_documents(args.prefix))
    weights = [float(w) for w in args.split.split(",")]
    first, last = (round(len(documents) * sum(weights[:k]) / sum(weights)) for k in (1, 2))
    train = [t for d in documents[:first] for t in d]
    held_out = [t for d in documents[first:last] for t in d]
    vocab = max(max(train), max(held_out)) + 1
    for order, name in ((2, "bigram"), (3, "trigram")):
        model = WittenBell(order, vocab)
        model.fit(train)
        print(f"{name:8s} counting model: validation loss {model.loss(held_out):.3f} nats per token")


if __name__ == "__main__":
    main()
