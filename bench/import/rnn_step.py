"""rnn_step.py [--threads 1] [--rounds 7] [--seed 1] [--count 12] [SHAPE...]: whole training steps of recurrent models, eager PyTorch with its
AdamW (fused) beside anneal.torch.step, in turn in one process, in float32. A SHAPE is KIND,BATCH,STEPS,WIDTH,HIDDEN,LAYERS, with kinds lstm,
gru, tanh, relu, lstm2 and gru2 (both directions), proj (an LSTM with a projection) and cells (LSTMCell in a loop of Python); without shapes `count` are
drawn from `seed`. The figure is processor time of a step in milliseconds, the least of the rounds, and in brackets wall-clock time; the ratio is PyTorch's to anneal's.

    PYTHONPATH=python ANNEAL_LIBRARY=build/libanneal.so.0 python bench/import/rnn_step.py --seed 1 --count 16
"""
import argparse
import copy
import random
import time

import torch
import torch.nn as nn

import anneal.torch
from torch_step import Squares, updating

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "tanh": nn.RNN, "relu": nn.RNN, "lstm2": nn.LSTM, "gru2": nn.GRU, "proj": nn.LSTM}


class Layers(nn.Module):
    def __init__(self, kind, width, hidden, layers):
        super().__init__()
        more = {"nonlinearity": kind} if kind in ("tanh", "relu") else {"proj_size": max(1, hidden // 2)} if kind == "proj" else {}
        self.cells = KINDS[kind](width, hidden, layers, batch_first=True, bidirectional=kind.endswith("2"), **more)
        self.head = nn.LazyLinear(10)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


class Cells(nn.Module):
    """A loop that a user wrote."""

    def __init__(self, width, hidden, layers):
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(hidden if i else width, hidden) for i in range(layers))
        self.head, self.hidden = nn.Linear(hidden, 10), hidden

    def forward(self, x):
        state = [(x.new_zeros(x.shape[0], self.hidden), x.new_zeros(x.shape[0], self.hidden)) for _ in self.cells]
        for t in range(x.shape[1]):
            y = x[:, t]
            for i, cell in enumerate(self.cells):
                state[i] = cell(y, state[i])
                y = state[i][0]
        return self.head(y)


def drawn(r):
    kind = r.choice(["lstm", "lstm", "lstm", "gru", "gru", "tanh", "relu", "lstm2", "gru2", "proj", "cells"])
    return kind, r.randint(1, 64), r.randint(8, 128), r.randint(32, 512), r.randint(32, 512), r.randint(1, 3)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=12)
    p.add_argument("shapes", nargs="*")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    r = random.Random(o.seed)
    shapes = [(s.split(",")[0], *map(int, s.split(",")[1:])) for s in o.shapes] or [drawn(r) for _ in range(o.count)]
    for kind, batch, steps, width, hidden, layers in shapes:
        torch.manual_seed(1)
        model = Cells(width, hidden, layers) if kind == "cells" else Layers(kind, width, hidden, layers)
        x = torch.randn(batch, steps, width)
        model(x)
        eager = updating(copy.deepcopy(model))
        begin = time.perf_counter()
        ours = anneal.torch.step(Squares(model), (x,), lr=1e-3)
        ours(x)
        first = time.perf_counter() - begin
        runs = {"eager": lambda: eager(x), "anneal": lambda: ours(x)}
        cpu, wall = {}, {}
        for _ in range(o.rounds + 1):
            for key, run in runs.items():
                c, w = time.process_time(), time.perf_counter()
                run()
                c, w = time.process_time() - c, time.perf_counter() - w
                cpu[key], wall[key] = min(cpu.get(key, 1e9), c), min(wall.get(key, 1e9), w)
        text = "  ".join(f"{k} {cpu[k] * 1e3:7.2f} ({wall[k] * 1e3:7.2f}) ms" for k in runs)
        print(f"{kind:6} batch {batch:2} steps {steps:3} width {width:3} hidden {hidden:3} layers {layers}  {text}  ratio {cpu['eager'] / cpu['anneal']:.2f} "
              f"({wall['eager'] / wall['anneal']:.2f})  first step {first:.1f} s", flush=True)
        del eager, ours, model


if __name__ == "__main__":
    main()
