#!/usr/bin/env python3
"""Training steps of GPTs of random shapes on an NVIDIA GPU: anneal beside torch.compile, both sides of a row one after the other.

    python3 bench/cuda/random_shapes.py ANNEAL RESULTS [--seconds N] [--rows N] [--only N,N...] [--commit HASH] [--together N]

Half of the rows are always the same, half are drawn from the commit's hash. Rows that the file RESULTS has are not run again, and no group of
rows is begun after --seconds, so calls of any length add up to the table, which is printed each time with the median and the least ratio
(torch.compile's milliseconds over anneal's, the loss read after each step). PyTorch compiles a group of rows side by side and times them alone.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gpt_torch.py")
TOKENS = 32768  # a batch at most


def shape(draw):
    """batch, context, layers, heads, width, vocabulary, dropout, bias"""
    head = draw.choice([8, 16, 24, 32, 40, 48, 64, 64, 64, 65, 80, 96, 100, 128, 128, 33])
    heads = draw.randint(max(1, 128 // head), max(1, 2048 // head))
    context = int(64 * 2 ** draw.uniform(0, 8)) if draw.random() < 0.5 else 2 ** draw.randint(6, 14)
    batch = max(1, int(TOKENS * draw.choice([0.25, 0.5, 1]) / context))
    vocabulary = draw.choice([65, 256, 32000, 50257, 50304])
    return [batch, context, draw.randint(2, 4), heads, head * heads, vocabulary, draw.choice([0.0, 0.0, 0.1, 0.2]), draw.randint(0, 1)]


def rows(commit, n):
    kept, drawn = random.Random(18), random.Random(commit)
    return [shape(kept) for _ in range((n + 1) // 2)] + [shape(drawn) for _ in range(n // 2)]


def start_peer(row):
    command = [sys.executable, PEER, "shape", "--shape", ",".join(map(str, row)), "--device", "cuda", "--dtype", "bfloat16", "--wait"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def time_peer(peer):
    try:
        out, log = peer.communicate("go\n", timeout=120)
    except subprocess.TimeoutExpired:
        peer.kill()
        return {"failed": "no result in 120 s"}
    return json.loads(out.splitlines()[-1]) if peer.returncode == 0 else {"failed": log.strip().splitlines()[-1][:160]}


def time_ours(anneal, row):
    batch, context, layers, heads, width, vocabulary, dropout, bias = row
    settings = {"device": "cuda", "dtype": "bfloat16", "batch_size": batch, "block_size": context, "n_layer": layers, "n_head": heads, "n_embd": width,
                "vocab_size": vocabulary, "dropout": dropout, "bias": "true" if bias else "false", "gradient_accumulation_steps": 1, "steps": 20, "warmup": 5}
    command = [anneal, "bench", "gpt2", "--json"] + ["%s=%s" % item for item in settings.items()]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [x for x in done.stdout.splitlines() if x.startswith("{")]
    return json.loads(lines[-1]) if done.returncode == 0 and lines else {"failed": (done.stderr or done.stdout).strip()[:160]}


def table(wanted, results, commit):
    print("commit %s" % commit)
    print("| B | T | layers | heads | width | head | vocabulary | dropout | bias | anneal ms | torch.compile ms | ratio |\n" + "|---" * 12 + "|")
    ratios = []
    for row in wanted:
        result = results.get(json.dumps(row))
        if not result:
            continue
        ours, peer = result["anneal"], result["torch"]
        ratio = peer["ms"] / ours["ms"] if "ms" in ours and "ms" in peer else None
        ratios += [ratio] if ratio else []
        b, t, layers, heads, width, vocabulary, dropout, bias = row
        cells = [b, t, layers, heads, width, width // heads, vocabulary, dropout, bias, ours.get("ms", ours.get("failed")), peer.get("ms", peer.get("failed")),
                 "%.2f" % ratio if ratio else "-"]
        print("| " + " | ".join(map(str, cells)) + " |")
    if ratios:
        print("%d of %d rows: ratio median %.3f, least %.3f, below 1: %d" % (len(ratios), len(wanted), statistics.median(ratios), min(ratios), sum(r < 1 for r in ratios)))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("anneal")
    p.add_argument("results")
    p.add_argument("--seconds", type=float, default=300)
    p.add_argument("--rows", type=int, default=24)
    p.add_argument("--only", default="", help="numbers of rows, from 0")
    p.add_argument("--together", type=int, default=8)
    p.add_argument("--commit", default="")
    a = p.parse_args()
    commit = a.commit or subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip() or "unknown"
    began, results = time.monotonic(), {}
    if os.path.exists(a.results):
        with open(a.results) as f:
            results = {json.dumps(x["row"]): x for x in map(json.loads, f)}
    wanted = rows(commit, a.rows)
    wanted = [wanted[int(i)] for i in a.only.split(",")] if a.only else wanted
    todo = [row for row in wanted if json.dumps(row) not in results]
    while todo and time.monotonic() - began < a.seconds:
        group, todo = todo[: a.together], todo[a.together :]
        peers = [start_peer(row) for row in group]
        for peer in peers:
            peer.stdout.readline()
        for row, peer in zip(group, peers):
            results[json.dumps(row)] = x = {"row": row, "torch": time_peer(peer), "anneal": time_ours(a.anneal, row)}
            with open(a.results, "a") as f:
                f.write(json.dumps(x) + "\n")
    table(wanted, results, commit)


main()
