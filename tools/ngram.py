#!/usr/bin/env python3
"""Losses of counting models on a token dataset, to compare a trained model with.

Fits a bigram and a trigram model with Witten-Bell smoothing on the first tokens and prints their mean
loss in nats per token on the last ones: the same cut as data.order = random makes. Reads Megatron's
.bin/.idx.
usage: ngram.py PREFIX [--held-out 0.1]
"""
import argparse
import array
import math
import struct
from collections import Counter, defaultdict


def read_tokens(prefix):
    with open(prefix + ".idx", "rb") as f:
        magic, version, code = struct.unpack("<9sQB", f.read(18))
    if magic != b"MMIDIDX\0\0" or version != 1:
        raise SystemExit(f"{prefix}.idx: not an indexed dataset")
    tokens = array.array({1: "B", 4: "i", 5: "q", 8: "H"}[code])
    with open(prefix + ".bin", "rb") as f:
        tokens.frombytes(f.read())
    return tokens


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
    parser.add_argument("--held-out", type=float, default=0.1, help="share of the tokens, at the end")
    args = parser.parse_args()
    tokens = read_tokens(args.prefix)
    cut = int(len(tokens) * (1 - args.held_out))
    train, held_out = tokens[:cut], tokens[cut:]
    if not train or len(held_out) < 2:
        raise SystemExit(f"{args.prefix}: {len(tokens)} tokens are too few to hold some out")
    vocab = max(max(train), max(held_out)) + 1
    for order, name in ((2, "bigram"), (3, "trigram")):
        model = WittenBell(order, vocab)
        model.fit(train)
        print(f"{name:8s} counting model of the same text: validation loss {model.loss(held_out):.3f} nats per token")


if __name__ == "__main__":
    main()
