"""torch_recurrent.py [--seconds 60] [--seed 1]: steps of random recurrent models (LSTM, GRU, RNN, projections, both directions, loops over cells; batches and
steps of 1, more steps than one product joins or one concatenation holds, first states given or not), taken by anneal.torch.step in float64 and in
float32: loss and every gradient against PyTorch's in float64, to 1e-9 and to 1e-4 of the tensor's largest. With an empty PATH (`env PATH= /usr/bin/python3 ...`)
kernels are interpreted, with the same bits, and nothing is compiled.

    PYTHONPATH=python ANNEAL_LIBRARY=build/libanneal.so.0 python tests/import/torch_recurrent.py
"""
import argparse
import copy
import random
import time

import torch
import torch.nn as nn

import anneal.torch


class Whole(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.kind = d.choice([nn.LSTM, nn.LSTM, nn.GRU, nn.RNN])
        self.width, self.hidden, self.layers = d.randint(1, 40), d.randint(1, 40), d.randint(1, 3)
        self.twice, self.first, self.reads = d.random() < 0.4, d.random() < 0.5, d.choice(["all", "last", "state", "middle"])
        more = {"proj_size": d.randint(1, self.hidden - 1)} if self.kind is nn.LSTM and self.hidden > 1 and d.random() < 0.3 else {}
        if self.kind is nn.RNN:
            more["nonlinearity"] = d.choice(["tanh", "relu"])
        self.net = self.kind(self.width, self.hidden, self.layers, batch_first=self.first, bidirectional=self.twice, bias=d.random() < 0.8, **more)
        self.begin = nn.Parameter(torch.randn(self.layers * (1 + self.twice), 1, more.get("proj_size", self.hidden))) if d.random() < 0.4 else None

    def forward(self, x):
        state = None
        if self.begin is not None:
            h = self.begin.expand(-1, x.shape[0 if self.first else 1], -1).contiguous()
            state = (h, torch.zeros(h.shape[0], h.shape[1], self.hidden, dtype=x.dtype)) if self.kind is nn.LSTM else h
        y, s = self.net(x, state)
        steps = y if self.first else y.transpose(0, 1)
        last = s[0] + s[1].mean() if self.kind is nn.LSTM else s
        y = {"all": y, "last": steps[:, -1], "state": last, "middle": steps[:, steps.shape[1] // 2]}[self.reads]
        return y.square().mean() + y.mean()


class Loop(nn.Module):
    """What a user wrote."""

    def __init__(self, d):
        super().__init__()
        self.kind = d.choice([nn.LSTMCell, nn.GRUCell, nn.RNNCell])
        self.width, self.hidden, self.layers, self.first = d.randint(1, 40), d.randint(1, 40), d.randint(1, 2), True
        self.net = nn.ModuleList(self.kind(self.hidden if i else self.width, self.hidden) for i in range(self.layers))
        self.reads = d.choice(["all", "last"])

    def forward(self, x):
        zero, out = torch.zeros(x.shape[0], self.hidden, dtype=x.dtype), []
        state = [(zero, zero) if self.kind is nn.LSTMCell else zero for _ in self.net]
        for t in range(x.shape[1]):
            y = x[:, t]
            for i, cell in enumerate(self.net):
                state[i] = cell(y, state[i])
                y = state[i][0] if self.kind is nn.LSTMCell else state[i]
            out.append(y)
        y = torch.stack(out, 1) if self.reads == "all" else out[-1]
        return y.square().mean() + y.mean()


def compared(model, x, dtype):
    """The largest difference of a gradient, of its tensor's largest (at least 1e-3): a step of SGD with lr 1 subtracts it."""
    model = copy.deepcopy(model).to(dtype)
    wide = copy.deepcopy(model).double()
    want = wide(x.to(dtype).double())
    want.backward()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    step = anneal.torch.step(model, (x.to(dtype),), optimizer="sgd", lr=1.0)
    loss = float(step(x.to(dtype)))
    worst = max(abs(loss - float(want)) / max(abs(float(want)), 1e-3) - 1.2e-7, 0)  # it is returned in float32
    gradient = {n: p.grad for n, p in wide.named_parameters()}
    for n, p in model.named_parameters():
        if gradient[n] is None:
            continue
        rounding = 0 if dtype is torch.float64 else 1.2e-7 * float(before[n].abs().max())
        apart = float((before[n].double() - p.detach().double() - gradient[n]).abs().max()) - rounding
        worst = max(worst, apart / max(float(gradient[n].abs().max()), 1e-3))
    return worst


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--seed", type=int, default=1)
    o = p.parse_args()
    end, seed, failed = time.time() + o.seconds, o.seed, 0
    largest = {torch.float64: 0.0, torch.float32: 0.0}
    while time.time() < end:
        d = random.Random(seed)
        torch.manual_seed(seed)
        model = (Loop if d.random() < 0.3 else Whole)(d)
        batch, steps = d.choice([1, 2, 3, 5, 8, 13, 17, 30]), d.choice([1, 2, 7, 8, 9, 13, 20, 31] + [130, 260] * (d.random() < 0.2))
        x = torch.randn(batch, steps, model.width) if model.first else torch.randn(steps, batch, model.width)
        found = {dtype: compared(model, x, dtype) for dtype in largest}
        good = found[torch.float64] <= 1e-9 and found[torch.float32] <= 1e-4
        failed += not good
        largest = {dtype: max(largest[dtype], apart) for dtype, apart in found.items()}
        print(f"seed {seed}: {type(model).__name__} {model.kind.__name__}, batch {batch}, {steps} steps, width {model.width}, hidden {model.hidden}, layers {model.layers}: "
              f"{found[torch.float64]:.2g}, {found[torch.float32]:.2g}{'' if good else '  FAILED'}", flush=True)
        seed += 1
    print(f"{seed - o.seed} models, {failed} failed; at most {largest[torch.float64]:.2g} apart in float64, {largest[torch.float32]:.2g} in float32")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
