#!/usr/bin/env python3
"""topics.py: which topic is a question of? The classifier of texts on the topics of chatterbot-corpus, beside PyTorch.

    topics.py FOLDER [--folds 10] [--runs 3] [--updates 300] [--least 52] [--apart 2]

FOLDER has chatterbot-corpus' English files (chatterbot_corpus/data/english of its repository): a topic a file. A text is the question that
begins a conversation; a question that occurs several times in a topic counts once, so no text is on both sides of a split. A tenth
(1/folds) is held out; --runs tenths are tried in turn. PyTorch trains the same model on the same texts and words with the same settings,
from a start and an order of its own. Prints the share that each finds, of the texts held out, and that of the commonest topic.
Exit 1: ours is under --least of a hundred, or more than --apart points from PyTorch's. Needs PyYAML and PyTorch.
"""
import argparse
import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WIDTH, LENGTH, BATCH = 768, 128, 32


def read_topics(folder):
    """(text, topic) of each question, in the order of the files."""
    rows = {}
    for path in sorted(folder.glob("*.yml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or "categories" not in content:
            continue
        for conversation in content["conversations"]:
            rows[(" ".join(str(conversation[0]).split()), path.stem)] = None
    return list(rows)


def split(rows, folds, fold):
    """As src/io/data/labelled_texts.h: every text whose number within its class leaves the remainder `fold` is held out."""
    seen, sides = {}, ([], [])
    for text, topic in rows:
        n = seen[topic] = seen.get(topic, -1) + 1
        sides[n % folds == fold].append((text, topic))
    return sides


def words_of(text):
    return [w.decode() for w in re.findall(rb"[a-z0-9\x80-\xff]+", re.sub(rb"[A-Z]", lambda m: m[0].lower(), text.encode()))]


def ours(a, table, fold, out):
    done = subprocess.run([a.anneal, "train", "issues", f"data={table}", f"folds={a.folds}", f"fold={fold}", f"max_iters={a.updates}",
                           f"eval_interval={a.updates}", f"learning_rate={a.rate}", f"seed={fold + 1}", f"out={out}", "--quiet"],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip())
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return 100 * next(line["val_accuracy"] for line in reversed(lines) if "val_accuracy" in line)


def theirs(a, train, held, fold):
    torch.manual_seed(fold + 1)
    ids = {w: i + 1 for i, w in enumerate(sorted({w for text, _ in train for w in words_of(text)}))}
    topics = sorted({topic for _, topic in train + held})
    table = torch.nn.Embedding(len(ids) + 1, WIDTH)
    head = torch.nn.Linear(WIDTH, len(topics))
    update = torch.optim.SGD([*table.parameters(), *head.parameters()], a.rate)

    def logits(rows):
        tokens = torch.zeros(len(rows), LENGTH, dtype=torch.long)
        for i, (text, _) in enumerate(rows):
            known = [ids[w] for w in words_of(text) if w in ids][:LENGTH]
            tokens[i, :len(known)] = torch.tensor(known, dtype=torch.long)
        real = (tokens > 0).float().unsqueeze(-1)
        return head((table(tokens) * real).sum(1) / real.sum(1).clamp(min=1))

    labels = lambda rows: torch.tensor([topics.index(topic) for _, topic in rows])
    order = []
    for _ in range(a.updates):
        if len(order) < BATCH:
            order = torch.randperm(len(train)).tolist()
        batch, order = [train[i] for i in order[:BATCH]], order[BATCH:]
        loss = F.cross_entropy(logits(batch), labels(batch))
        update.zero_grad()
        loss.backward()
        update.step()
    with torch.no_grad():
        return 100 * (logits(held).argmax(1) == labels(held)).float().mean().item()


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("folder", type=pathlib.Path)
    ap.add_argument("--anneal", type=pathlib.Path, default=pathlib.Path(os.environ.get("AN_BUILD", ROOT / "build")) / "anneal")
    ap.add_argument("--folds", type=int, default=10)
    ap.add_argument("--runs", type=int, default=3)
    ap.add_argument("--updates", type=int, default=300)
    ap.add_argument("--rate", type=float, default=0.1)
    ap.add_argument("--least", type=float, default=52)
    ap.add_argument("--apart", type=float, default=2)
    a = ap.parse_args()
    torch.set_num_threads(1)
    a.anneal = a.anneal.resolve()
    rows = read_topics(a.folder)
    if not rows:
        sys.exit(f"topics.py: {a.folder} has no file of chatterbot-corpus (*.yml with categories and conversations)")
    topics = [topic for _, topic in rows]
    commonest = max(sorted(set(topics)), key=topics.count)
    right, found, peer, held_out = 0.0, 0.0, 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder) / "topics.csv"
        with table.open("w", newline="", encoding="utf-8") as f:
            csv.writer(f).writerows([("text", "label"), *rows])
        for fold in range(a.runs):
            train, held = split(rows, a.folds, fold)
            shares = ours(a, table, fold, pathlib.Path(folder) / f"run{fold}"), theirs(a, train, held, fold)
            print(f"part {fold}: {len(train)} texts, {len(held)} held out: anneal {shares[0]:.1f} %, PyTorch {shares[1]:.1f} %", flush=True)
            n = len(held)
            held_out += n
            found, peer = found + n * shares[0], peer + n * shares[1]
            right += 100 * sum(topic == commonest for _, topic in held)
    found, peer = found / held_out, peer / held_out
    print(f"all {held_out} of {len(set(topics))} topics: anneal {found:.1f} %, PyTorch {peer:.1f} %, "
          f"the commonest topic {right / held_out:.1f} %")
    sys.exit(not (found >= a.least and abs(found - peer) <= a.apart))


if __name__ == "__main__":
    main()
