"""layers_step.py [--seed 1] [--count 4] [--step] [KIND...]: forward and backward of single layers of random kinds and shapes, by
torch.compile(backend="anneal") beside eager PyTorch in the better layout, in turn, one thread, processor time, the least of the runs. With
--step a whole update by anneal.torch.step of the layer behind a scale that is trained, which goes by an exported graph. The last lines are
the slowest; `apart` is how far the sums of squares are from each other.

    PYTHONPATH=python ANNEAL_LIBRARY=build/libanneal.so.0 python bench/import/layers_step.py --seed 1 conv2 transposed2
"""
import argparse
import copy
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import anneal.torch

ACTIVATIONS = (nn.GELU, nn.SiLU, nn.Mish, nn.ELU, nn.SELU, nn.Softplus, nn.Hardswish, nn.LeakyReLU, nn.ReLU6, nn.Sigmoid, nn.Tanh, nn.PReLU, nn.LogSigmoid)


class Of(nn.Module):
    """f(x, modules...)."""

    def __init__(self, name, f, *modules):
        super().__init__()
        self.name, self.f, self.parts = name, f, nn.ModuleList(modules)

    def forward(self, x):
        return self.f(x, *self.parts)

    def __str__(self):
        return " ".join([self.name, *map(str, self.parts)])


class Scaled(nn.Module):
    """The mean of squares of a layer of p x."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.p = layer, nn.Parameter(torch.ones(()))

    def forward(self, x):
        y = self.layer(x * self.p)
        return y if y.dim() == 0 else y.square().mean()


class Draw(random.Random):
    def channels(self, low=4, high=128):
        return self.choice((self.randint(low, high), 8 * self.randint(1, high // 8), 2 ** self.randint(3, 7)))

    def sides(self, axes):
        low, high = {1: (100, 1000), 2: (8, 64), 3: (6, 14)}[axes]
        return tuple(self.randint(low, high) for _ in range(axes))

    def conv(self, axes):
        inside, out, groups = self.channels(), self.channels(), 1
        kernel, dilation = self.choice((1, 2, 3, 3, 3, 4, 5, 7)), self.choice((1, 1, 1, 2))
        kind = self.random()
        if kind < 0.2:
            groups, out = inside, inside * self.choice((1, 1, 2))
        elif kind < 0.35:
            groups = self.choice((2, 4, 8))
            inside, out = groups * max(inside // groups, 1), groups * max(out // groups, 1)
        layer = getattr(nn, f"Conv{axes}d")(inside, out, kernel, self.choice((1, 1, 1, 2, 3)), self.randint(0, kernel // 2 * dilation), dilation, groups)
        return layer, (self.randint(1, 8), inside) + self.sides(axes)

    def transposed(self, axes):
        groups, kernel = self.choice((1, 1, 1, 2)), self.choice((2, 3, 4, 4, 5))
        inside, out = (groups * max(self.channels(4, 96) // groups, 1) for _ in range(2))
        layer = getattr(nn, f"ConvTranspose{axes}d")(inside, out, kernel, self.choice((1, 2, 2, 3)), self.randint(0, kernel // 2), 0, groups)
        return layer, (self.randint(1, 8), inside) + tuple(max(n // 2, 4) for n in self.sides(axes))

    def pool(self, axes):
        kernel, kind = self.choice((2, 2, 3, 3, 4, 5)), self.choice(("Max", "Max", "Avg"))
        return getattr(nn, f"{kind}Pool{axes}d")(kernel, self.choice((1, 2, 2, kernel)), self.randint(0, kernel // 2)), (self.randint(1, 8), self.channels()) + self.sides(axes)

    def norm(self, axes):
        shape = (self.randint(2, 8), 8 * self.randint(1, 24)) + self.sides(axes)
        layer = self.choice((getattr(nn, f"BatchNorm{axes}d")(shape[1]), nn.GroupNorm(self.choice((1, 2, 4, 8)), shape[1]),
                             getattr(nn, f"InstanceNorm{axes}d")(shape[1]), nn.LayerNorm(shape[-1]), nn.RMSNorm(shape[-1])))
        return layer, shape

    def upsampling(self):
        mode = self.choice(("nearest", "bilinear", "bilinear", "bicubic", "nearest-exact"))
        return nn.Upsample(scale_factor=self.choice((2, 2, 3, 1.5)), mode=mode), (self.randint(1, 4), self.channels(4, 64)) + tuple(max(n // 2, 4) for n in self.sides(2))

    def linear(self):
        inside = self.randint(8, 1024)
        return nn.Linear(inside, self.randint(8, 1024)), (self.choice((1, 3, 8, 64, 200, 777)), inside)

    def activation(self):
        return self.choice(ACTIVATIONS)(), (self.randint(1, 64), 2 * self.randint(10, 2000))

    def reduction(self):
        d = self.randint(0, 2)
        name, f = self.choice((("softmax", lambda x: x.softmax(d)), ("logsumexp", lambda x: x.logsumexp(d)), ("cumsum", lambda x: x.cumsum(d)), ("std", lambda x: x.std(d)),
                               ("amax", lambda x: x.amax(d)), ("mean", lambda x: x.mean((0, 2))), ("sort", lambda x: x.sort(d)[0]), ("norm", lambda x: x.norm(dim=d))))
        return Of(f"{name} along {d}", f), tuple(self.randint(3, 120) for _ in range(3))

    def attention(self):
        heads, size = self.choice((1, 2, 4, 6, 8)), self.choice((8, 16, 24, 32, 40, 64, 80, 96))
        layer = nn.MultiheadAttention(heads * size, heads, batch_first=True)
        return Of(f"{heads} heads of {size}", lambda x, m: m(x, x, x, need_weights=False)[0], layer), (self.randint(1, 4), self.randint(16, 300), heads * size)

    def border(self):
        n = self.randint(1, 3)
        layer = self.choice((nn.ReflectionPad2d(n), nn.ReplicationPad2d(n), nn.CircularPad2d(n), nn.Unfold(self.choice((2, 3)), padding=1), nn.PixelShuffle(2)))
        return layer, (self.randint(1, 4), 4 * self.randint(1, 16)) + self.sides(2)

    def embedding(self):
        words, width = self.randint(10, 20000), self.randint(8, 512)
        ids = torch.randint(0, words, (self.randint(1, 16), self.randint(8, 200)))
        return Of(f"{tuple(ids.shape)} ids", lambda x, table: table(ids) * x, nn.Embedding(words, width)), (1,)

    def loss(self):
        n, classes = self.randint(8, 600), self.randint(2, 5000)
        labels, target = torch.randint(0, classes, (n,)), torch.rand(n, classes)
        name, f = self.choice((("cross entropy", lambda x: F.cross_entropy(x, labels)), ("mse", lambda x: F.mse_loss(x, target)), ("smooth l1", lambda x: F.smooth_l1_loss(x, target)),
                               ("bce", lambda x: F.binary_cross_entropy_with_logits(x, target)), ("kl", lambda x: F.kl_div(x.log_softmax(-1), target, reduction="batchmean"))))
        return Of(name, f), (n, classes)


KINDS = {f"{name}{axes}": (lambda d, name=name, axes=axes: getattr(d, name)(axes)) for name in ("conv", "transposed", "pool", "norm") for axes in (1, 2, 3)}
KINDS.update({name: (lambda d, name=name: getattr(d, name)()) for name in ("upsampling", "linear", "activation", "reduction", "attention", "border", "embedding", "loss")})


def passes(layer, x):
    x = x.clone().requires_grad_()

    def run():
        y = layer(x)
        value = y if y.dim() == 0 else y.square().mean()
        value.backward()
        return float(value.detach())
    return run


def updates(layer, x):
    model = Scaled(layer)
    o = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def run():
        o.zero_grad()
        value = model(x)
        value.backward()
        o.step()
        return float(value.detach())
    return run


def runs_of(layer, x, step):
    theirs = updates if step else passes
    runs = {"eager": theirs(copy.deepcopy(layer), x)}
    if x.dim() == 4:
        last = torch.channels_last
        runs["eager, channels last"] = theirs(copy.deepcopy(layer).to(memory_format=last), x.to(memory_format=last))
    if step:
        ours = anneal.torch.step(Scaled(copy.deepcopy(layer)), (x,), lr=1e-4)
        runs["anneal"] = lambda: float(ours(x))
    else:
        runs["anneal"] = passes(torch.compile(copy.deepcopy(layer), backend="anneal", dynamic=False), x)
    return runs


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=4)
    p.add_argument("--step", action="store_true")
    p.add_argument("kinds", nargs="*", help=", ".join(KINDS))
    o = p.parse_args()
    torch.set_num_threads(1)
    d, rows = Draw(o.seed), []
    for _ in range(o.count):
        for kind in o.kinds or KINDS:
            torch.manual_seed(d.randint(0, 1 << 30))
            torch._dynamo.reset()
            layer, shape = KINDS[kind](d)
            name, least = " ".join(f"{kind} {layer} of {shape}".split()), {}
            try:
                runs = runs_of(layer, torch.randn(shape), o.step)
                values = {key: run() for key, run in runs.items()}
                begin = time.process_time()
                runs["anneal"]()
                for _ in range(max(3, min(20, int(0.3 / max(time.process_time() - begin, 1e-4))))):
                    for key, run in runs.items():
                        begin = time.process_time()
                        run()
                        least[key] = min(least.get(key, 1e9), time.process_time() - begin)
            except Exception as e:
                print(f"refused  {name}: {str(e).splitlines()[-1][:160] if str(e) else e!r}", flush=True)
                continue
            best, ours = min(v for key, v in least.items() if key != "anneal"), least["anneal"]
            apart = abs(values["anneal"] - values["eager"]) / max(abs(values["eager"]), 1e-9)
            rows.append((best / ours, f"{best / ours:5.2f}  eager {best * 1e3:.2f} ms, anneal {ours * 1e3:.2f}  {name}"))
            print(f"{rows[-1][1]}  apart {apart:.0e}", flush=True)
    print("the slowest:")
    for _, line in sorted(rows)[:12]:
        print(line)


if __name__ == "__main__":
    main()
