#!/usr/bin/env python3
"""Archives of operations at the edges where libraries part, with what PyTorch computes: random shapes, dtypes and special values (NaN,
infinities, -0, quotients of up to 1e300, empty rows), a few operations an archive.

    python tools/pt2_edges.py DIR [--count 40] [--seed 1] [--only WORD]
    python tools/pt2_edges.py tests/import/goldens --count 1 --seed 2      the committed ones
    AN_IMPORT_GOLDENS=DIR make test T=import/test_goldens       results and gradients to 1e-9, NaN and infinities where PyTorch has them

PyTorch is needed here and nowhere else.
"""
import argparse
import math
import os
import random
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pt2_goldens

SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-3, -1e-3, 1e30, -1e30, 3.0, -3.0, 0.5]
SIZES = (torch.uint8, torch.int8, torch.int16)


# A function that two results share is one node here, whose gradients are added before its slope is multiplied: infinities of opposite signs
# then do not meet, which in PyTorch make NaN. So each result has its own argument.
class Draw(random.Random):
    def shape(self, most=4):
        return tuple(self.choice((1, 2, 3, 5, 7)) for _ in range(self.randint(1, most)))

    def floats(self, shape, special=0.25, spread=1.0):
        """Normal numbers, powers of ten among them, and special values."""
        def one():
            if self.random() < special:
                return self.choice(SPECIAL)
            return self.gauss(0, 1) * 10**(self.uniform(-spread, spread))
        return torch.tensor([one() for _ in range(math.prod(shape))], dtype=torch.float64).reshape(shape)

    def ints(self, shape, low, high):
        return torch.tensor([self.randint(low, high) for _ in range(math.prod(shape))], dtype=torch.int64).reshape(shape)

    def part(self, shape):
        """A shape that is nowhere longer."""
        return tuple(self.randint(1, n) for n in shape)


def narrow_integers(d):
    dtype = d.choice(SIZES)
    info = torch.iinfo(dtype)
    low = -255 if dtype == torch.uint8 else info.min
    a, b, n = d.randint(low, info.max), d.randint(low, info.max), d.randint(low, info.max)
    shape = d.shape()
    x = d.ints(shape, info.min, info.max)
    y = d.ints(d.choice((shape, ())), info.min, info.max)

    def on(f):
        return lambda x, y: f(x.to(dtype), y.to(dtype)).to(torch.int64)
    fs = [lambda x, y: x.clamp(a, b), lambda x, y: x.clamp(a), lambda x, y: x.clamp(max=b), lambda x, y: x.clamp_min(n), lambda x, y: x.clamp_max(n),
          lambda x, y: x > n, lambda x, y: x <= n, lambda x, y: x == n, lambda x, y: F.threshold(x, a, b), lambda x, y: torch.where(x > y, x, n),
          lambda x, y: torch.maximum(x, torch.tensor(n)), lambda x, y: torch.minimum(x, torch.tensor(n)), lambda x, y: x.clamp(torch.tensor(a), torch.tensor(b)),
          lambda x, y: x.clamp_min(torch.tensor(n)), lambda x, y: x + n, lambda x, y: x * n - y, lambda x, y: x // (n or 1), lambda x, y: x % (n or 1),
          lambda x, y: torch.fmod(x, n or 1), lambda x, y: x / (n or 1) > 0, lambda x, y: x.masked_fill(x > y, n), lambda x, y: torch.maximum(x, y),
          lambda x, y: x.clamp(a + 0.5, b + 0.5) > 1, lambda x, y: torch.eq(x, torch.tensor(n)), lambda x, y: n - x, lambda x, y: x.bitwise_and(n), lambda x, y: x ^ n]
    return [on(f) for f in d.sample(fs, 8)], (x, y)


def remainders(d):
    shape = d.shape()
    spread = d.choice((1, 15, 300))
    x, y = d.floats(shape, 0.2, spread), d.floats(d.choice((shape, shape[-1:])), 0.2, spread if spread < 300 else 2)
    n = d.choice((3, -2, 0.1, 1e-3, 7.5, 1))
    low = d.choice((torch.float32, torch.bfloat16, torch.float16))
    fs = [torch.fmod, lambda x, y: torch.remainder(-x, y), lambda x, y: torch.fmod(x, n), lambda x, y: torch.remainder(x, n), lambda x, y: torch.remainder(n, y.detach()),
          lambda x, y: torch.fmod(near(x), near(y)).double(), lambda x, y: torch.remainder(near(x.detach()), n).double(),
          lambda x, y: torch.fmod(near(x.detach()), 0.75).double()]

    def near(t):  # PyTorch's vectors of float32 have NaN where the quotient overflows
        return t.clamp(-1e4, 1e4).to(low)
    return fs, (x, y)


def entropies(d):
    return [torch.special.entr, lambda x: torch.special.entr(x * 3) * 2, lambda x: torch.special.entr(-x).sum(0)], (d.floats(d.shape()),)


def norms(d):
    shape = d.shape(3)
    x = d.floats(shape, d.choice((0, 0.1, 0.3)))
    if x.isnan().any():  # PyTorch's slope at a zero is that of the row then: NaN
        x = torch.where(x == 0, 2.0, x)
    axis = d.randrange(len(shape))
    p = d.choice((-1, -2, -3, -0.5, -1.5, -math.inf))
    fs = [lambda x: torch.linalg.vector_norm(x, p, dim=axis), lambda x: torch.linalg.vector_norm(x, p, dim=axis, keepdim=True) * x,
          lambda x: torch.linalg.vector_norm(x, p), lambda x: torch.norm(x, p, dim=axis), lambda x: torch.norm(x, p),
          lambda x: torch.linalg.norm(x, p, dim=axis)]
    return fs, (x,)


def scattered(d):
    shape = d.shape(3)
    if math.prod(shape) == 1:
        shape = (3, 4)
    axis = d.randrange(len(shape))
    part = list(d.part(shape))
    part[axis] = d.randint(1, 8)
    src = tuple(part)  # where src is larger PyTorch has no gradient of it
    ids = d.ints(tuple(part), 0, shape[axis] - 1)
    how, own = d.choice(("prod", "amax", "amin", "sum", "mean")), d.random() < 0.5
    x, s = d.floats(shape, d.choice((0, 0.2))), d.floats(src, d.choice((0, 0.2)))
    if how in ("prod", "sum", "mean"):  # PyTorch's gradient of a product is a quotient
        x, s = x.nan_to_num(2, -2, 1), s.nan_to_num(1, 3, -1)
    fs = [lambda x, i, s: x.scatter_reduce(axis, i, s, how, include_self=own), lambda x, i, s: x.scatter_reduce(axis, i, s, "amax", include_self=own)]
    if how in ("prod", "amax", "amin"):
        fs.append(lambda x, i, s: torch.nan_to_num(x.detach().clamp(-9, 9)).int().scatter_reduce(axis, i, torch.nan_to_num(s.detach().clamp(-3, 3)).int(), how, include_self=own).long())
    return fs, (x, ids, s)


def hard(d):
    x = torch.cat([d.floats((7,)), torch.tensor([-3.0, 3.0, 0.0, -2.9999999, 2.9999999], dtype=torch.float64), d.floats((9,), 0)])
    return [F.hardsigmoid, lambda x: F.hardsigmoid(x) * x, F.hardswish, lambda x: F.hardtanh(x, -0.5, 0.5), F.relu6], (x,)


def attention(d):
    B, H, T, S, D = d.choice((1, 2)), d.choice((1, 3)), d.choice((1, 2, 5, 7)), d.choice((1, 2, 5, 7)), d.choice((1, 4, 8))
    scale = d.choice((0.0, 0.0, 0.3, -0.5, 1e-30))
    q, k, v = (d.floats((B, H, n, D), 0, 0.5) for n in (T, S, S))
    return [lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=scale, is_causal=True),
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=scale),
            lambda q, k, v: F.scaled_dot_product_attention(q * 2, k, v, attn_mask=torch.ones(q.shape[2], k.shape[2]).tril().bool(), scale=scale)], (q, k, v)


def quotients(d):
    """Rounded quotients beside exact multiples, infinities and -2^31."""
    ends = (-2**31, -2**31 + 1, 2**31 - 1, -1, 1, 2, -2, 3, -7, 46341, 0)
    i = torch.tensor([d.choice(ends) for _ in range(24)], dtype=torch.int32)
    j = torch.tensor([d.choice(ends[:-1]) for _ in range(24)], dtype=torch.int32)
    j = torch.where((i == -2**31) & (j == -1), 3, j)  # PyTorch's division toward zero traps
    by, tenth = d.choice(ends[:3]), d.choice((0.1, 0.3, -0.7, 2.5))
    y = torch.tensor([d.randint(1, 40) * d.choice((0.1, -0.1, 0.3, 1e-3)) for _ in range(24)], dtype=torch.float64)
    x = torch.where(torch.tensor([d.random() < 0.3 for _ in range(24)]), d.floats((24,), 0.5), y * d.ints((24,), -50, 50))
    low = d.choice((torch.float32, torch.bfloat16, torch.float16))

    def whole(f):
        return lambda i, j, x, y: f(i, j).double()

    def real(f):
        return lambda i, j, x, y: f(x, y)
    return [whole(torch.fmod), whole(lambda i, j: torch.div(i, j, rounding_mode="trunc")), whole(lambda i, j: i // j), whole(torch.remainder),
            whole(lambda i, j: torch.fmod(i, by)), whole(lambda i, j: torch.div(i, by, rounding_mode="trunc")),
            real(lambda x, y: torch.floor_divide(x.detach(), y.detach())), real(lambda x, y: torch.div(x, tenth, rounding_mode="floor")), real(torch.remainder),
            real(lambda x, y: (x.detach().to(low) // y.detach().to(low)).double()), real(lambda x, y: (x.detach().to(low) // tenth).double()),
            real(lambda x, y: (x.detach().to(low) * tenth).double()), real(lambda x, y: torch.div(x.detach().to(low), tenth, rounding_mode="trunc").double())], (i, j, x, y)


def clamps(d):
    """Ends that are NaN, equal, and the wrong way round."""
    shape = d.shape(2)
    x, lo, hi = d.floats(shape, 0.4), d.floats(shape, 0.4), d.floats(d.choice((shape, shape[-1:])), 0.4)
    lo = torch.where(torch.tensor([d.random() < 0.5 for _ in range(lo.numel())]).reshape(lo.shape), hi, lo)
    n = d.choice((math.nan, 0.0, 1.0, -math.inf))
    return [torch.clamp, lambda x, lo, hi: torch.clamp(x, hi, lo), lambda x, lo, hi: torch.clamp(x, min=lo), lambda x, lo, hi: torch.clamp(x, max=lo),
            lambda x, lo, hi: torch.clamp(x, hi, hi), lambda x, lo, hi: torch.clamp(x, n, 1.0), lambda x, lo, hi: x.clamp_min(math.nan),
            lambda x, lo, hi: x.clamp_max(n), lambda x, lo, hi: F.hardtanh(x.detach(), math.nan, 1.0)], (x, lo, hi)


def subnormals(d):
    """float32 below 2^-126, times what makes its last bit count."""
    x = torch.tensor([d.choice((1, -1)) * 2.0**d.uniform(-149, -120) for _ in range(40)] + [0.0, -0.0, 2.0**-149, -2.0**-149], dtype=torch.float64)
    x = x.float().double()
    e = torch.tensor([d.uniform(-104, -86) for _ in range(44)], dtype=torch.float64)

    def of(f):
        return lambda x, e: f(x.detach().float(), e.detach().float()).double()
    near = 2.0**14

    def digits(y):  # six of them
        return torch.round(y * near) / near
    return [of(lambda x, e: digits(x.sqrt() * 2.0**66)), of(lambda x, e: x.rsqrt()), of(lambda x, e: x.floor()), of(lambda x, e: x.ceil()), of(lambda x, e: x.sin() * 2.0**126),
            of(lambda x, e: torch.round(x.log())), of(lambda x, e: torch.round(x.log2() * 16)), of(lambda x, e: torch.round(x.abs().log10() * 64)),
            of(lambda x, e: digits(e.exp() * 2.0**126)), of(lambda x, e: digits(torch.exp2(e * 1.4) * 2.0**126)), of(lambda x, e: digits(x.abs().pow(0.125))),
            of(lambda x, e: x.tanh() * 2.0**126), of(lambda x, e: digits(torch.atan2(x, x.flip(0)))), of(lambda x, e: x.fmod(2.0**-130) * 2.0**126),
            of(lambda x, e: x.remainder(2.0**-127) * 2.0**126), of(lambda x, e: x / 3 * 2.0**126), of(lambda x, e: torch.expm1(x) * 2.0**126)], (x, e)


def extremes(d):
    """Largest and least of rows with infinities, of nothing else, and with NaN."""
    shape = d.shape(3)
    x = d.floats(shape, d.choice((0, 0.5, 1)))
    x = torch.where(torch.tensor([d.random() < 0.4 for _ in range(x.numel())]).reshape(shape), d.choice((math.inf, -math.inf, math.nan)), x)
    axis = d.randrange(len(shape))
    return [lambda x: x.amax(axis), lambda x: x.amin(axis), lambda x: x.amax(), lambda x: x.amin(keepdim=True, dim=tuple(range(len(shape)))), lambda x: x.max(), lambda x: x.min(),
            lambda x: x.max(axis)[0], lambda x: x.min(axis)[0], lambda x: torch.aminmax(x, dim=axis)[0], lambda x: torch.maximum(x, -x), lambda x: torch.fmax(x, x.flip(0))], (x,)


KINDS = {f.__name__: f for f in (narrow_integers, remainders, entropies, norms, scattered, hard, attention, quotients, clamps, subnormals, extremes)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--count", type=int, default=40, help="archives of each kind")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", default="", help=", ".join(KINDS))
    o = p.parse_args()
    os.makedirs(o.folder, exist_ok=True)
    made = 0
    for name, f in KINDS.items():
        for i in range(o.count if o.only in name else 0):
            fs, inputs = f(Draw(f"{o.seed} {name} {i}"))
            with sdpa_kernel(SDPBackend.MATH):  # the kernel of CPUs has NaN of a scale of 0 times a hidden key's -infinity
                made += pt2_goldens.write(o.folder, f"{name}_{i}", pt2_goldens.Cases(fs), inputs, stripped=True)
    print(f"{made} archives in {o.folder}")


if __name__ == "__main__":
    main()
