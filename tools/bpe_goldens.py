#!/usr/bin/env python3
"""bpe_goldens.py: writes tests/bpe/merges.txt and tests/bpe/expected.txt with tiktoken and regex from PyPI.

    python3 tools/bpe_goldens.py FOLDER      FOLDER has GPT-2's encoder.json and vocab.bpe

The text is made of the pieces of tests/bpe/pieces.txt, runs of characters and broken bytes by a seeded generator that
tests/bpe/test_bpe.c has too: 1.2 MB of languages, emoji, code and what is no UTF-8 (which both sides take as Python's
errors="replace"). merges.txt is a small BPE learned from it, so that the test needs no vocabulary that is not ours;
expected.txt has SHA-256 and number of the ids, for it and for GPT-2's own vocabulary. Every text is encoded by two
independent references, tiktoken and the loop of OpenAI's encoder.py over `regex`, which must agree.
"""
import collections
import hashlib
import json
import pathlib
import struct
import sys

import regex
import tiktoken

BYTES = 1_200_000
SEED = 20260101
MERGES = 400
MASK = (1 << 64) - 1
PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/bpe"

# First and last code point of runs: ranges whose characters and classes no version of Unicode since 9 has changed.
RANGES = [(0x20, 0x7E), (0xA1, 0xFF), (0x100, 0x17F), (0x3B1, 0x3C9), (0x410, 0x44F), (0x5D0, 0x5EA), (0x621, 0x63A), (0x905, 0x939),
          (0xE01, 0xE30), (0x10D0, 0x10F0), (0x1100, 0x1112), (0x2010, 0x2027), (0x2190, 0x21FF), (0x2200, 0x22FF), (0x3041, 0x3096),
          (0x30A1, 0x30FA), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xFF01, 0xFF5E), (0x1D400, 0x1D454), (0x1F600, 0x1F64F)]
SYLLABLES = ("th er in ing ion pre con st ab le ment un re al ity ous str ength ly Sh akes pe are quo mag net ic ver tex com put ation der wood "
             "ful ness bi o gra phy is land ock el ton ham ber ry cra ft or ig nal wa ter fire sun Mon day QU eu e").encode().split()
SEPARATORS = [b"", b" ", b" ", b" ", b"  ", b"\n", b"\n\n", b"\t", b", ", b" \n"]


class Random:  # splitmix64
    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        x = self.state
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        return ((x ^ (x >> 31)) >> 11) % n


def unescape(line):
    """Lines of pieces.txt: \\n \\r \\t \\\\, \\xNN a byte, \\uN... four to six digits of a code point."""
    out, i = b"", 0
    while i < len(line):
        c = line[i]
        if c != "\\":
            out += c.encode()
            i += 1
        elif line[i + 1] == "x":
            out += bytes([int(line[i + 2:i + 4], 16)])
            i += 4
        elif line[i + 1] == "u":
            n = 6 if line[i + 2:i + 4] == "10" else 4
            out += chr(int(line[i + 2:i + 2 + n], 16)).encode()
            i += 2 + n
        else:
            out += {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}[line[i + 1]]
            i += 2
    return out


def make_text(pieces):
    r, out = Random(SEED), bytearray()
    while len(out) < BYTES:
        kind = r.below(100)
        if kind < 50:
            out += pieces[r.below(len(pieces))]
        elif kind < 74:
            for _ in range(1 + r.below(4)):
                out += SYLLABLES[r.below(len(SYLLABLES))]
        elif kind < 88:
            first, last = RANGES[r.below(len(RANGES))]
            for _ in range(1 + r.below(12)):
                out += chr(first + r.below(last - first + 1)).encode()
        elif kind < 94:
            for _ in range(1 + r.below(6)):
                out += bytes([0x80 + r.below(128)])
        else:
            out += bytes([32 + r.below(95)]) * (1 + r.below(40))
        out += SEPARATORS[r.below(len(SEPARATORS))]
    return bytes(out)


def byte_alphabet():
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return own + [b for b in range(256) if b not in own], {b: chr(b) for b in own} | {
        b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in own)}


def learn(words, n):
    """The n merges that join the most frequent pair, the first in order among equals; never a token that is there."""
    words = {w: [bytes([b]) for b in w] for w in words}
    counts, merges, made = COUNTS, [], set()
    for _ in range(n):
        pairs = collections.Counter()
        for w, parts in words.items():
            for pair in zip(parts, parts[1:]):
                pairs[pair] += counts[w]
        best = max((p for p in pairs if p[0] + p[1] not in made), key=lambda p: (pairs[p], p))
        merges.append(best)
        made.add(best[0] + best[1])
        for w, parts in words.items():
            words[w] = merge(parts, best)
    return merges


def merge(parts, pair):
    out, i = [], 0
    while i < len(parts):
        if i + 1 < len(parts) and (parts[i], parts[i + 1]) == pair:
            out.append(parts[i] + parts[i + 1])
            i += 2
        else:
            out.append(parts[i])
            i += 1
    return out


def encode_by_loop(words, ids, rank):
    """OpenAI's encoder.py: merge every occurrence of the pair of lowest rank, until none is left."""
    cache, out = {}, []
    for w in words:
        if w not in cache:
            parts = [bytes([b]) for b in w]
            while len(parts) > 1:
                best = min(zip(parts, parts[1:]), key=lambda p: rank.get(p, 1 << 60))
                if best not in rank:
                    break
                parts = merge(parts, best)
            cache[w] = [ids[p] for p in parts]
        out += cache[w]
    return out


def reference(name, text, words, ids, merges):
    encoding = tiktoken.Encoding(name, pat_str=PATTERN, mergeable_ranks=ids, special_tokens={})
    by_tiktoken = encoding.encode_ordinary(text)
    by_loop = encode_by_loop(words, ids, {p: i for i, p in enumerate(merges)})
    assert by_tiktoken == by_loop, name
    assert encoding.decode(by_tiktoken) == text
    packed = struct.pack(f"<{len(by_loop)}H", *by_loop)
    print(f"{name}: {len(by_loop)} ids of {len(ids)} kinds, {len(set(by_loop))} of them used")
    return f"{name} {len(by_loop)} {hashlib.sha256(packed).hexdigest()}\n"


def gpt2(folder, order):
    back = {c: b for b, c in order[1].items()}
    encoder = json.loads((folder / "encoder.json").read_text())
    ids = {bytes(back[c] for c in token): i for token, i in encoder.items() if token != "<|endoftext|>"}
    lines = (folder / "vocab.bpe").read_text().split("\n")[1:-1]
    merges = [tuple(bytes(back[c] for c in part) for part in line.split(" ")) for line in lines]
    return ids, merges


def main():
    global COUNTS
    order = byte_alphabet()
    pieces = [unescape(line) for line in (FOLDER / "pieces.txt").read_text().split("\n")[:-1]]
    raw = make_text(pieces)
    text = raw.decode(errors="replace")
    words = [w.encode() for w in regex.findall(PATTERN, text)]
    assert b"".join(words).decode() == text
    COUNTS = collections.Counter(words)
    merges = learn(COUNTS, MERGES)
    ids = {bytes([b]): i for i, b in enumerate(order[0])}
    for left, right in merges:
        ids[left + right] = len(ids)

    def shown(part):
        return "".join(order[1][b] for b in part)

    (FOLDER / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{shown(a)} {shown(b)}\n" for a, b in merges))
    expected = f"text {len(raw)} {hashlib.sha256(raw).hexdigest()}\n"
    expected += f"repaired {len(text.encode())} {hashlib.sha256(text.encode()).hexdigest()}\n"
    expected += reference("small", text, words, ids, merges)
    expected += reference("gpt2", text, words, *gpt2(pathlib.Path(sys.argv[1]), order))
    (FOLDER / "expected.txt").write_text(expected)
    print(expected)


if __name__ == "__main__":
    main()
