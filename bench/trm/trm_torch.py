#!/usr/bin/env python3
"""trm_torch.py: a training step of TinyRecursiveModels on boards in PyTorch, timed as `anneal bench` times ours.

    trm_torch.py sudoku_att|sudoku_mlp --dtype float32 --threads N --steps S --compile 0 --width 128 --batch 8

One line of JSON with the keys of bench/cpu/README.md: random Sudoku boards, AdamATan2, the gradient through the last H cycle.
"""
import argparse
import json
import math
import resource
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CELLS, PREFIX, VOCABULARY, H_CYCLES, L_CYCLES, LAYERS, HEADS = 81, 16, 11, 3, 6, 2, 8
ROWS = CELLS + PREFIX


def linear(inputs, outputs):
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.trunc_normal_(layer.weight, std=1 / math.sqrt(inputs))
    return layer


def norm(x):
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


class SwiGLU(nn.Module):
    def __init__(self, width):
        super().__init__()
        inner = -(-round(width * 8 / 3) // 256) * 256
        self.gate_up, self.down = linear(width, 2 * inner), linear(inner, width)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.size = width // HEADS
        self.qkv, self.out = linear(width, 3 * width), linear(width, width)
        angle = torch.outer(torch.arange(ROWS).float(), 10000.0 ** (-torch.arange(0, self.size, 2).float() / self.size))
        self.register_buffer("cos", torch.cat([angle, angle], -1).cos())
        self.register_buffer("sin", torch.cat([angle, angle], -1).sin())

    def turn(self, x):
        first, second = x.chunk(2, -1)
        return x * self.cos + torch.cat([-second, first], -1) * self.sin

    def forward(self, x):  # [B,ROWS,width]
        q, k, v = (t.view(len(x), ROWS, HEADS, self.size).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(self.turn(q), self.turn(k), v)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, width, attention):
        super().__init__()
        self.mix = Attention(width) if attention else SwiGLU(ROWS)
        self.mlp, self.attention = SwiGLU(width), attention

    def forward(self, x):
        if self.attention:
            x = norm(x + self.mix(x))
        else:
            t = x.transpose(1, 2)
            x = norm(t + self.mix(t)).transpose(1, 2)
        return norm(x + self.mlp(x))


class Model(nn.Module):
    def __init__(self, width, attention):
        super().__init__()
        self.width = width
        self.blocks = nn.Sequential(*(Block(width, attention) for _ in range(LAYERS)))
        self.tokens = nn.Parameter(torch.randn(VOCABULARY, width) / math.sqrt(width))
        self.head, self.halt = linear(width, VOCABULARY), nn.Linear(width, 2)

    def forward(self, high, low, boards, puzzle):
        prefix = F.pad(puzzle, (0, PREFIX * self.width - self.width)).view(len(boards), PREFIX, self.width)
        e = math.sqrt(self.width) * torch.cat([prefix, self.tokens[boards]], 1)
        for cycle in range(H_CYCLES):
            with torch.set_grad_enabled(cycle == H_CYCLES - 1):
                for _ in range(L_CYCLES):
                    low = self.blocks(low + high + e)
                high = self.blocks(high + low)
        return high.detach(), low.detach(), self.head(high[:, PREFIX:]), self.halt(high[:, 0])


def loss_of(logits, halt, answers):
    z = logits.double()
    s = torch.where(z < 0, 1 / (1 - z + 1e-30), z + 1)
    chosen = torch.log(s / s.sum(-1, keepdim=True)).gather(-1, answers[..., None])[..., 0]
    exact = (logits.argmax(-1) == answers).all(-1).float()
    return -chosen.mean(-1).sum().float() + 0.5 * F.binary_cross_entropy_with_logits(halt[:, 0], exact, reduction="sum")


class AdamATan2:
    def __init__(self, parameters, rate=1e-4, decay=1.0):
        self.p, self.rate, self.decay, self.t = list(parameters), rate, decay, 0
        self.m, self.v = ([torch.zeros_like(x) for x in self.p] for _ in range(2))

    @torch.no_grad()
    def step(self):
        self.t += 1
        g = [x.grad for x in self.p]
        torch._foreach_mul_(self.p, 1 - self.rate * self.decay)
        torch._foreach_lerp_(self.m, g, 0.1)
        torch._foreach_lerp_(self.v, torch._foreach_mul(g, g), 0.05)
        root = math.sqrt(1 - 0.95**self.t)
        for x, m, v in zip(self.p, self.m, self.v):
            x.sub_(torch.atan2(m, v.sqrt() / root), alpha=self.rate / (1 - 0.9**self.t))


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("preset", choices=["sudoku_att", "sudoku_mlp"])
    ap.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--steps", type=int, default=8)
    ap.add_argument("--compile", default="0")
    ap.add_argument("--width", type=int, default=128)
    ap.add_argument("--batch", type=int, default=8)
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    model = Model(a.width, a.preset == "sudoku_att")
    run = torch.compile(model) if a.compile == "1" else model
    update = AdamATan2(model.parameters())
    boards, answers = (torch.randint(1, VOCABULARY, (a.batch, CELLS)) for _ in range(2))
    high, low = (torch.randn(a.batch, ROWS, a.width) for _ in range(2))
    puzzle = torch.zeros(a.batch, a.width, requires_grad=True)
    wall, cpu = [], []
    for _ in range(a.steps + 3):
        began, used = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=a.dtype == "bfloat16"):
            high, low, logits, halt = run(high, low, boards, puzzle)
        loss = loss_of(logits, halt, answers) / a.batch
        loss.backward()
        update.step()
        with torch.no_grad():
            puzzle -= 1e-4 * puzzle.grad.sign()
        model.zero_grad(set_to_none=True)
        puzzle.grad = None
        loss.item()
        wall.append(1e3 * (time.perf_counter() - began))
        cpu.append(1e3 * (time.process_time() - used))
    print(json.dumps({"peer": "torch-" + torch.__version__, "preset": a.preset, "dtype": a.dtype, "threads": a.threads,
                      "ms": round(statistics.median(wall[3:]), 3), "min_ms": round(min(wall[3:]), 3),
                      "cpu_ms": round(statistics.median(cpu[3:]), 3), "first_s": round(wall[0] / 1e3, 3),
                      "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


if __name__ == "__main__":
    main()
