#!/usr/bin/env python3
"""What a bigram model makes of a data set of conversations (anneal prepare chat), to compare anneal eval's loss with. Python's library only.

    bigram.py DIR

Prints nats and perplexity per token of the test split, for the bigram whose weight of the unigram is best on the test split itself:
p(b|a) = (n(a,b) + k p(b)) / (n(a) + k), p(b) = (n(b) + 1) / (n + V)."""
import array
import collections
import json
import math
import struct
import sys


def load(path):
    data = open(path, "rb").read()
    if data[:6] != b"\x93NUMPY" or data[6] != 1 or b"'<i4'" not in data[:256]:
        sys.exit(f"{path}: not a .npy of 32-bit integers")
    values = array.array("i")
    values.frombytes(data[10 + struct.unpack("<H", data[8:10])[0]:])
    if sys.byteorder == "big":
        values.byteswap()
    return values


def pairs(folder, ignored):
    inputs, labels = load(f"{folder}/all__inputs.npy"), load(f"{folder}/all__labels.npy")
    return [(a, b) for a, b in zip(inputs, labels) if b != ignored]


def main(folder):
    meta = json.load(open(f"{folder}/train/dataset.json"))
    train, test = (pairs(f"{folder}/{split}", meta["ignore_label_id"]) for split in ("train", "test"))
    both, first, second = collections.Counter(train), collections.Counter(a for a, _ in train), collections.Counter(b for _, b in train)

    def loss(k):
        total = 0.0
        for a, b in test:
            p = (second[b] + 1) / (len(train) + meta["vocab_size"])
            total -= math.log((both[a, b] + k * p) / (first[a] + k))
        return total / len(test)

    best, k = min((loss(k), k) for k in (0.1, 0.3, 1, 3, 10, 30, 100, 300))
    print(f"bigram: {best:.4f} nats a token, perplexity {math.exp(best):.4g}, over {len(test)} tokens (k={k}, {len(train)} training tokens)")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
