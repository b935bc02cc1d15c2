#!/usr/bin/env python3
"""vision_torch.py: a training step of our image and text classifiers in PyTorch, timed as `anneal bench` times ours.

    vision_torch.py PRESET --dtype float32 --threads N --steps S --compile 0

One line of JSON with the keys of bench/cpu/README.md. Presets: cnn, cnn_depthwise, resnet (batches of 64 images of 28 x 28), vit_tiny (32 of
224 x 224), issues (32 texts of 128 ids). Images are channels_last unless --layout nchw. `cpu_ms` is processor time, of all threads.
"""
import argparse
import json
import resource
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Residual(nn.Module):
    """Two convolutions of 3 x 3 with batch norm beside a shortcut, which is a convolution where the shape changes."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(after) for _ in range(2))
        self.short = None
        if stride != 1 or before != after:
            self.short = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + (self.short(x) if self.short else x))


class Block(nn.Module):
    """A pre-norm transformer block: attention of 64 numbers a head, an MLP of four times the width."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, T, D))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class VisionTransformer(nn.Module):
    def __init__(self, width=192, blocks=12, heads=3, patch=16, size=224, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), tokens], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class Texts(nn.Module):
    def __init__(self, words=30000, width=768, classes=3):
        super().__init__()
        self.table, self.head = nn.Embedding(words, width), nn.Linear(width, classes)

    def forward(self, ids):
        return self.head(self.table(ids).mean(1))


def cnn(depthwise):
    middle = [nn.Conv2d(32, 64, 3, 1, 1)]
    if depthwise:
        middle = [nn.Conv2d(32, 32, 3, 1, 1, groups=32, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 1)]
    return nn.Sequential(nn.Conv2d(1, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), *middle, nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Linear(128, 10))


def resnet():
    return nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Residual(16, 16, 1),
                         Residual(16, 32, 2), Residual(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


MODELS = {  # what makes the model, its batch, classes
    "cnn": (lambda: cnn(False), lambda: torch.rand(64, 1, 28, 28), 10),
    "cnn_depthwise": (lambda: cnn(True), lambda: torch.rand(64, 1, 28, 28), 10),
    "resnet": (resnet, lambda: torch.rand(64, 1, 28, 28), 10),
    "vit_tiny": (VisionTransformer, lambda: torch.rand(32, 3, 224, 224), 10),
    "issues": (Texts, lambda: torch.randint(30000, (32, 128)), 3),
}


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("preset", choices=sorted(MODELS))
    ap.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--steps", type=int, default=8)
    ap.add_argument("--compile", default="0")
    ap.add_argument("--batch", type=int, default=0, help="that many, at most the preset's; 0: the preset's")
    ap.add_argument("--layout", default="channels_last", choices=["channels_last", "nchw"])
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    make, batch, classes = MODELS[a.preset]
    model, x = make(), batch()
    if a.batch:
        x = x[:a.batch]
    if a.layout == "channels_last" and x.dim() == 4:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    y = torch.randint(classes, (len(x),))
    run = torch.compile(model) if a.compile == "1" else model
    update = torch.optim.SGD(model.parameters(), 0.1) if a.preset == "issues" else torch.optim.AdamW(model.parameters(), 1e-3)
    wall, cpu = [], []
    for _ in range(a.steps + 3):
        began, used = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=a.dtype == "bfloat16"):
            loss = F.cross_entropy(run(x), y)
        loss.backward()
        update.step()
        update.zero_grad()
        loss.item()
        wall.append(1e3 * (time.perf_counter() - began))
        cpu.append(1e3 * (time.process_time() - used))
    print(json.dumps({"peer": "torch-" + torch.__version__, "preset": a.preset, "dtype": a.dtype, "threads": a.threads,
                      "ms": round(statistics.median(wall[3:]), 3), "min_ms": round(min(wall[3:]), 3),
                      "cpu_ms": round(statistics.median(cpu[3:]), 3), "first_s": round(wall[0] / 1e3, 3),
                      "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


if __name__ == "__main__":
    main()
