"""torch_step.py [--threads 1] [--rounds 5] [--update] [--inductor] [NAME...]: forward and backward of models in PyTorch: eager, compiled by
inductor and by anneal, in turn in one process, in float32. The figure is processor time of a step in milliseconds, the least of the rounds:
with one thread a busy machine changes it little; the clock's time and the load are said beside it, and how far the losses of the last step are
from each other. The ratio is the better of PyTorch's to anneal's; convolutions of eager PyTorch are timed in
both layouts. --update: whole training steps, PyTorch with its AdamW (fused) beside anneal.torch.step.

    PYTHONPATH=python ANNEAL_LIBRARY=build/libanneal.so.0 python bench/import/torch_step.py gpt resnet18      or: make bench-import
"""
import argparse
import copy
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import anneal.torch
from resnet import Bottleneck, norm_after


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.n1, self.n2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(self.n1(x)).split(C, 2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class GPT(nn.Module):
    """GPT-2's shape, smaller."""

    def __init__(self, vocabulary=512, width=256, layers=4, heads=4, length=128):
        super().__init__()
        self.table, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks, self.norm = nn.Sequential(*(Block(width, heads) for _ in range(layers))), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.table(ids) + self.places(torch.arange(ids.shape[1]))
        return F.cross_entropy(self.head(self.norm(self.blocks(x))).flatten(0, 1), ids.flatten())


class Residual(nn.Module):
    def __init__(self, inside, out, stride):
        super().__init__()
        self.a, self.b = nn.Conv2d(inside, out, 3, stride, 1, bias=False), nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.short = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out)) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.short(x) + self.nb(self.b(F.relu(self.na(self.a(x))))))


def resnet18():
    """ResNet-18's layers."""
    parts, inside = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        parts += [Residual(inside, out, stride), Residual(out, out, 1)]
        inside = out
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def resnet50():
    """ResNet-50's layers, a block fewer in each of its four parts."""
    parts, inside = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks, stride in ((64, 2, 1), (128, 3, 2), (256, 5, 2), (512, 2, 2)):
        for i in range(blocks):
            parts.append(Bottleneck(inside, width, stride if i == 0 else 1))
            inside = 4 * width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Inverted(nn.Module):
    """A block of MobileNetV2, or of EfficientNet with `squeeze`: 1x1, depthwise, (squeeze and excitation,) 1x1."""

    def __init__(self, width, kernel=3, act=nn.ReLU6, squeeze=False):
        super().__init__()
        wide = 6 * width
        self.up = nn.Sequential(*norm_after(nn.Conv2d(width, wide, 1, bias=False)), act(),
                                *norm_after(nn.Conv2d(wide, wide, kernel, 1, kernel // 2, groups=wide, bias=False)), act())
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, width // 4, 1), act(), nn.Conv2d(width // 4, wide, 1), nn.Sigmoid()) if squeeze else None
        self.down = nn.Sequential(*norm_after(nn.Conv2d(wide, width, 1, bias=False)))

    def forward(self, x):
        y = self.up(x)
        return x + self.down(y * self.gate(y) if self.gate is not None else y)


class Narrowing(nn.Module):
    """A block of MobileNetV2 as torchvision has it."""

    def __init__(self, inside, out, stride, grow):
        super().__init__()
        wide, self.adds = inside * grow, stride == 1 and inside == out
        up = [*norm_after(nn.Conv2d(inside, wide, 1, bias=False)), nn.ReLU6()] if grow > 1 else []
        self.parts = nn.Sequential(*up, *norm_after(nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False)), nn.ReLU6(),
                                   *norm_after(nn.Conv2d(wide, out, 1, bias=False)))

    def forward(self, x):
        return x + self.parts(x) if self.adds else self.parts(x)


def mobilenet_v2():
    """MobileNetV2's layers: 3.5 million parameters."""
    parts, inside = [*norm_after(nn.Conv2d(3, 32, 3, 2, 1, bias=False)), nn.ReLU6()], 32
    for grow, out, n, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(n):
            parts.append(Narrowing(inside, out, stride if i == 0 else 1, grow))
            inside = out
    return nn.Sequential(*parts, *norm_after(nn.Conv2d(320, 1280, 1, bias=False)), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


class ConvNeXtBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.deep, self.norm = nn.Conv2d(width, width, 7, 1, 3, groups=width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


def of_blocks(width, stride, *blocks):
    stem = nn.Sequential(nn.Conv2d(3, width, 3 if stride == 2 else 4, stride, 1 if stride == 2 else 0, bias=False), nn.BatchNorm2d(width))
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))


class Bert(nn.Module):
    """An encoder with BERT's order of norms."""

    def __init__(self, vocabulary=512, width=256, layers=4, heads=4, length=128):
        super().__init__()
        self.table, self.places, self.norm = nn.Embedding(vocabulary, width), nn.Embedding(length, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width), "n1": nn.LayerNorm(width),
                                                   "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width), "n2": nn.LayerNorm(width)})
                                    for _ in range(layers))
        self.heads, self.head = heads, nn.Linear(width, vocabulary)

    def forward(self, ids):
        B, T = ids.shape
        x = self.norm(self.table(ids) + self.places(torch.arange(T)))
        for p in self.layers:
            q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in p["qkv"](x).split(x.shape[2], 2))
            x = p["n1"](x + p["out"](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)))
            x = p["n2"](x + p["down"](F.gelu(p["up"](x))))
        return F.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())


class Llama(nn.Module):
    """Rotary positions, fewer key heads, RMS norms, a gated feed-forward part."""

    def __init__(self, vocabulary=512, width=256, layers=4, heads=4, keys=2, length=128):
        super().__init__()
        self.heads, self.keys, size = heads, keys, width // heads
        angle = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, size, 2) / size)
        self.register_buffer("cos", angle.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angle.sin().repeat(1, 2), persistent=False)
        self.table = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(nn.ModuleDict({"qkv": nn.Linear(width, size * (heads + 2 * keys), bias=False), "out": nn.Linear(width, width, bias=False),
                                                   "n1": nn.RMSNorm(width), "n2": nn.RMSNorm(width), "gate": nn.Linear(width, 688, bias=False),
                                                   "up": nn.Linear(width, 688, bias=False), "down": nn.Linear(688, width, bias=False)})
                                    for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def turned(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat((-b, a), -1) * self.sin

    def forward(self, ids):
        B, T = ids.shape
        x = self.table(ids)
        for p in self.layers:
            h = p["qkv"](p["n1"](x)).view(B, T, self.heads + 2 * self.keys, -1).transpose(1, 2)
            q, k, v = h.split([self.heads, self.keys, self.keys], 1)
            y = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True, enable_gqa=True)
            x = x + p["out"](y.transpose(1, 2).reshape(x.shape))
            h = p["n2"](x)
            x = x + p["down"](F.silu(p["gate"](h)) * p["up"](h))
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), ids.flatten())


class Recurrent(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.cells, self.head = nn.LSTM(width, width, 2, batch_first=True), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


def one(layer):
    return lambda: nn.Sequential(layer())


def images(n=8, channels=3, side=64):
    return lambda: torch.randn(n, channels, side, side)


def ids():
    return torch.randint(0, 512, (8, 128))


MODELS = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 512)), lambda: torch.randn(256, 512)),
    "gpt": (GPT, ids),
    "gpt2": (lambda: GPT(50257, 768, 12, 12, 64), lambda: torch.randint(0, 50257, (2, 64))),
    "bert": (Bert, ids),
    "llama": (Llama, ids),
    "lstm": (Recurrent, lambda: torch.randn(16, 64, 128)),
    "resnet18": (resnet18, images()),
    "resnet50": (resnet50, images()),
    "mobilenet": (lambda: of_blocks(32, 2, *(Inverted(32) for _ in range(5))), images()),
    "mobilenet_v2": (mobilenet_v2, images()),
    "efficientnet": (lambda: of_blocks(32, 2, *(Inverted(32, 5, nn.SiLU, True) for _ in range(4))), images()),
    "convnext": (lambda: of_blocks(96, 4, *(ConvNeXtBlock(96) for _ in range(4))), images()),
    "conv3x3": (one(lambda: nn.Conv2d(64, 64, 3, 1, 1)), images(8, 64, 32)),
    "conv1x1": (one(lambda: nn.Conv2d(64, 256, 1)), images(8, 64, 32)),
    "strided": (one(lambda: nn.Conv2d(64, 128, 3, 2, 1)), images(8, 64, 32)),
    "depthwise": (one(lambda: nn.Conv2d(192, 192, 3, 1, 1, groups=192)), images(8, 192, 32)),
    "grouped": (one(lambda: nn.Conv2d(128, 128, 3, 1, 1, groups=32)), images(8, 128, 32)),
    "max_pool": (one(lambda: nn.MaxPool2d(3, 2, 1)), images(8, 64, 64)),
    "batch_norm": (one(lambda: nn.BatchNorm2d(64)), images(8, 64, 32)),
}


def step(model, x):
    y = model(x)
    loss = y if y.dim() == 0 else y.square().mean()
    loss.backward()
    return loss


def updating(model, compiled=None):
    """A whole step of PyTorch, eager or with the model compiled."""
    o = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def run(x):
        o.zero_grad()
        loss = step(model if compiled is None else compiled, x)
        o.step()
        return loss
    return run


class Squares(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        y = self.model(x)
        return y if y.dim() == 0 else y.square().mean()


def runs_of(o, name):
    """Of each way to run the model a function without arguments that takes one step."""
    make, example = MODELS[name]
    torch.manual_seed(1)
    model, x = make(), example()
    runs = {}

    def add(key, m, given):
        given = given.clone().requires_grad_(not any(True for _ in m.parameters()))
        runs[key] = (lambda f=updating(m), t=given: f(t)) if o.update else (lambda t=given: step(m, t))
    add("eager", model, x)
    if x.dim() == 4:
        add("eager, channels last", copy.deepcopy(model).to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last))
    if o.inductor:
        m = copy.deepcopy(model)
        run = torch.compile(m)
        if o.update:  # forward and backward pass by inductor, the update by AdamW (fused)
            runs["inductor"] = lambda f=updating(m, run): f(x)
        else:
            add("inductor", run, x)
    if o.update:
        f = anneal.torch.step(Squares(copy.deepcopy(model)), (x,), lr=1e-3)
        runs["anneal"] = lambda: f(x)
    else:
        add("anneal", torch.compile(copy.deepcopy(model), backend="anneal"), x)
    return runs


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--inductor", action="store_true")
    p.add_argument("--update", action="store_true")
    p.add_argument("names", nargs="*", help=", ".join(MODELS))
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    for name in o.names or MODELS:
        torch._dynamo.reset()  # many models in one process reach its limit of compilations, and then run as eager ones do
        if o.update and name == "max_pool":
            continue  # nothing to update
        if not o.update and name == "lstm":
            continue  # torch.compile runs nn.LSTM as PyTorch does
        runs, first, least, wall, losses = runs_of(o, name), {}, {}, {}, {}
        for key, run in runs.items():
            begin = time.perf_counter()
            losses[key] = float(run())
            first[key] = time.perf_counter() - begin
        for _ in range(o.rounds):
            for key, run in runs.items():
                begin, clock = time.process_time(), time.perf_counter()
                last = run()
                least[key] = min(least.get(key, 1e9), time.process_time() - begin)
                wall[key] = min(wall.get(key, 1e9), time.perf_counter() - clock)
                losses[key] = float(last)
        best = min(v for k, v in least.items() if k != "anneal")
        apart = max(abs(v - losses["eager"]) for v in losses.values()) / abs(losses["eager"])
        print(f"{name:12} " + "  ".join(f"{k} {v * 1e3:.1f} ms ({wall[k] * 1e3:.0f} by the clock)" for k, v in least.items()) +
              f"  ratio {best / least['anneal']:.2f}  first step {first['anneal']:.1f} s  losses at most {apart:.1e} apart after {o.rounds + 1} steps"
              f"  load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
