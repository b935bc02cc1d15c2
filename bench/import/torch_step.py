"""torch_step.py [--threads 1] [--rounds 5] [NAME...]: forward and backward of models in PyTorch: eager, compiled by inductor (--inductor) and
by anneal, in turn in one process, in float32. The figure is processor time of a step in milliseconds, the least of the rounds: with one thread a
busy machine changes it little. The ratio is the better of PyTorch's to anneal's; convolutions of eager PyTorch are timed in both layouts.

    PYTHONPATH=python ANNEAL_LIBRARY=build/libanneal.so.0 python bench/import/torch_step.py gpt lstm
"""
import argparse
import copy
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


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


def resnet():
    """ResNet-18's layers."""
    parts, inside = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        parts += [Residual(inside, out, stride), Residual(out, out, 1)]
        inside = out
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def inverted():
    """Five of MobileNetV2's blocks: 1x1, depthwise 3x3, 1x1."""
    parts = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
    for _ in range(5):
        parts += [nn.Conv2d(32, 192, 1, bias=False), nn.BatchNorm2d(192), nn.ReLU6(), nn.Conv2d(192, 192, 3, 1, 1, groups=192, bias=False),
                  nn.BatchNorm2d(192), nn.ReLU6(), nn.Conv2d(192, 32, 1, bias=False), nn.BatchNorm2d(32)]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 1000))


MODELS = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 512)), lambda: torch.randn(256, 512)),
    "gpt": (GPT, lambda: torch.randint(0, 512, (8, 128))),
    "resnet": (resnet, lambda: torch.randn(8, 3, 64, 64)),
    "inverted": (inverted, lambda: torch.randn(8, 3, 64, 64)),
}


def step(model, x):
    y = model(x)
    (y if y.dim() == 0 else y.square().mean()).backward()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--inductor", action="store_true")
    p.add_argument("names", nargs="*", help=", ".join(MODELS))
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    for name in o.names or MODELS:
        make, example = MODELS[name]
        torch.manual_seed(1)
        model, x = make(), example()
        images = x.dim() == 4
        runs = {"eager": (model, x)}
        if images:
            runs["eager, channels last"] = (copy.deepcopy(model).to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last))
        if o.inductor:
            runs["inductor"] = (torch.compile(copy.deepcopy(model)), x)
        runs["anneal"] = (torch.compile(copy.deepcopy(model), backend="anneal"), x)
        first, least = {}, {}
        for key, (f, given) in runs.items():
            begin = time.perf_counter()
            step(f, given)
            first[key] = time.perf_counter() - begin
        for _ in range(o.rounds):
            for key, (f, given) in runs.items():
                begin = time.process_time()
                step(f, given)
                least[key] = min(least.get(key, 1e9), time.process_time() - begin)
        best = min(v for k, v in least.items() if k != "anneal")
        print(f"{name:12} " + "  ".join(f"{k} {v * 1e3:.1f} ms" for k, v in least.items()) +
              f"  ratio {best / least['anneal']:.2f}  first step {first['anneal']:.1f} s", flush=True)


if __name__ == "__main__":
    main()
