#!/usr/bin/env python3
"""anneal against JAX and SciPy: cases drawn at random over the operations of anneal.h, values and gradients.

    python3 tools/jax_samples.py build/libanneal.so.0 [--first I] [--cases N] [--seed S] [--only I] [--op NAME] [--device cuda:0] [--cc cc]

A case is an operation, shapes, attributes and numbers, of which a third have NaN, infinities, zeros of both signs and ties
sown in. It runs in float64 and in float32, operands contiguous and, in turn, as views (transposed, sliced, flipped). The
judge is JAX in float64, its gradient that of sum(result x w). |got - want| <= K eps (|want| + scale), scale the largest
finite |want|; what JAX in float32 misses by a quarter as much agrees too. NaN and infinities are where JAX has them. Where
JAX differs, PyTorch in float64 is asked the same if the case has a `peer`: anneal.h promises PyTorch's conventions (slopes
at ties, at NaN and at infinities), so what has PyTorch's numbers counts as "as PyTorch", by operation.

Needs JAX and PyTorch's wheel, in whose tensors tests/torch/samples/capi.py carries numbers. Exit 1: something differs."""
import argparse
import math
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "torch", "samples"))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import numpy as np
import torch

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
from jax import lax

from capi import ALL, F32, F64, I32, I64, OF, Anneal, Refused, T, Window, axes  # noqa: F401

K = {"f64": 4096, "f32": 256}
EPS = {"f64": 2.0**-52, "f32": 2.0**-23}
LEAST_SCALE = {"attention": 1.0}  # gradients of scores are differences of products that cancel; else 1e-3
OPS = {}


def op(name, special=True):
    """A function of (random, draw) that gives (anneal's function, JAX's function, operands, label[, PyTorch's function])."""
    def keep(f):
        OPS[name] = (f, special)
        return f
    return keep


class Draw:
    """Numbers of a case."""

    def __init__(self, r, spoil):
        self.r, self.spoil = r, spoil
        self.n = np.random.default_rng(r.randrange(2**31))

    def floats(self, shape, low=-2.0, high=2.0, clean=False):
        x = self.n.uniform(low, high, shape)
        if self.r.random() < 0.3 and x.size:  # ties
            x = np.round(x * 2) / 2
        x = x.astype(np.float32).astype(np.float64)
        if self.spoil and not clean and x.size:
            f = x.reshape(-1)
            for _ in range(self.r.randint(1, 3)):
                f[self.r.randrange(f.size)] = self.r.choice([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0])
        return x

    def ints(self, shape, low, high):
        return self.n.integers(low, high, shape).astype(np.int32)

    def shape(self, least=0, most=4, extents=(1, 2, 3, 4, 5, 7, 8), empty=0.04):
        s = [self.r.choice(extents) for _ in range(self.r.randint(least, most))]
        if s and self.r.random() < empty:
            s[self.r.randrange(len(s))] = 0
        return s


def same(shape):
    return lambda d: [d.floats(shape)]


# ---- elementwise

UNARY_OF = {
    "neg": (lambda x: -x, -9, 9), "abs": (jnp.abs, -9, 9), "sqrt": (jnp.sqrt, 0, 9), "rsqrt": (lax.rsqrt, 0.01, 9),
    "recip": (lambda x: 1 / x, -9, 9), "exp": (jnp.exp, -9, 9), "expm1": (jnp.expm1, -3, 3), "log": (jnp.log, 0.01, 9),
    "log1p": (jnp.log1p, -0.9, 9), "sin": (jnp.sin, -30, 30), "cos": (jnp.cos, -30, 30), "tanh": (jnp.tanh, -4, 4),
    "erf": (jax.scipy.special.erf, -3, 3), "atan": (jnp.arctan, -9, 9), "asin": (jnp.arcsin, -0.9, 0.9),
    "acos": (jnp.arccos, -0.9, 0.9), "sigmoid": (jax.nn.sigmoid, -9, 9), "relu": (jax.nn.relu, -3, 3),
    "gelu": (lambda x: jax.nn.gelu(x, approximate=False), -4, 4), "gelu_tanh": (lambda x: jax.nn.gelu(x, approximate=True), -4, 4),
    "silu": (jax.nn.silu, -9, 9), "softplus": (jax.nn.softplus, -9, 9), "square": (jnp.square, -9, 9),
    "floor": (jnp.floor, -9, 9), "round": (jnp.round, -9, 9), "sign": (jnp.sign, -3, 3)}


PEER_OF = {"recip": torch.reciprocal, "atan": torch.atan, "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu,
           "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"), "softplus": lambda x: torch.logaddexp(x, x * 0),
           "pow": torch.pow}


def peer_of(name):
    return PEER_OF.get(name) or getattr(torch, name)


def unary(name):
    f, low, high = UNARY_OF[name]

    def case(r, d):
        return lambda A, x: A.call(name, x), f, [d.floats(d.shape(), low, high)], "", peer_of(name)
    return case


for _n in UNARY_OF:
    OPS[_n] = (unary(_n), True)

BINARY_OF = {"add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "div": jnp.divide, "atan2": jnp.arctan2,
             "maximum": jnp.maximum, "minimum": jnp.minimum, "pow": jnp.power}


def binary(name):
    def case(r, d):
        a = d.shape(1)
        b = [1 if r.random() < 0.3 else n for n in a][r.randint(0, len(a)) if r.random() < 0.4 else 0:]
        low = 0.1 if name == "pow" else -3
        x = [d.floats(a, low, 3), d.floats(b, -2 if name == "pow" else low, 3)]
        turn = r.random() < 0.3 and name != "pow"
        return (lambda A, p, q: A.call(name, *((q, p) if turn else (p, q))),
                lambda p, q: BINARY_OF[name](*((q, p) if turn else (p, q))), x, "%s %s" % (a, b),
                lambda p, q: peer_of(name)(*((q, p) if turn else (p, q))))
    return case


for _n in BINARY_OF:
    OPS[_n] = (binary(_n), True)


@op("where")
def _(r, d):
    s = d.shape(1)
    c = d.n.integers(0, 2, s).astype(np.bool_)
    return lambda A, x, y, m: A.call("where", m, x, y), lambda x, y, m: jnp.where(m, x, y), [d.floats(s), d.floats(s), c], str(s)


@op("clamp")
def _(r, d):
    s, low, high = d.shape(), r.choice([-1.0, 0.0, -math.inf]), r.choice([1.0, 0.5, math.inf])
    return lambda A, x: A.call("clamp", x, low, high), lambda x: jnp.clip(x, low, high), [d.floats(s)], "%s %g %g" % (s, low, high), \
        lambda x: torch.clamp(x, low, high)


# ---- reductions

def some_axes(r, rank):
    return sorted(r.sample(range(rank), r.randint(1, rank)))


def reduction(name):
    def case(r, d):
        s = d.shape(1, empty=0.1 if name in ("sum", "logsumexp") else 0)
        ax, keep = some_axes(r, len(s)), r.random() < 0.5
        f = {"sum": jnp.sum, "mean": jnp.mean, "max": jnp.max, "min": jnp.min, "var": lambda x, axis, keepdims: jnp.var(
            x, axis=axis, keepdims=keepdims)}[name]
        peer = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin,
                "var": lambda x, a, k: torch.var(x, a, correction=0, keepdim=k)}[name]
        if name in ("max", "min") and all(s[i] == 1 for i in ax):  # of one element: that element, NaN or not
            peer = lambda x, a, k: x * 1 if k else x.squeeze(tuple(a))  # noqa: E731
        return (lambda A, x: A.call(name, x, axes(ax), keep), lambda x: f(x, axis=tuple(ax), keepdims=keep),
                [d.floats(s)], "%s over %s keep %s" % (s, ax, keep), lambda x: peer(x, ax, keep))
    return case


for _n in ("sum", "mean", "max", "min", "var"):
    OPS[_n] = (reduction(_n), True)


def along(name, f, peer):
    def case(r, d):
        s = d.shape(1)
        a = r.randrange(len(s))
        return lambda A, x: A.call(name, x, a), lambda x: f(x, a), [d.floats(s)], "%s axis %d" % (s, a), lambda x: peer(x, a)
    return case


OPS["softmax"] = (along("softmax", lambda x, a: jax.nn.softmax(x, axis=a), torch.softmax), True)
OPS["log_softmax"] = (along("log_softmax", lambda x, a: jax.nn.log_softmax(x, axis=a), torch.log_softmax), True)


@op("logsumexp")
def _(r, d):
    s = d.shape(1)
    a, keep = r.randrange(len(s)), r.random() < 0.5
    return (lambda A, x: A.call("logsumexp", x, a, keep), lambda x: jax.scipy.special.logsumexp(x, axis=a, keepdims=keep),
            [d.floats(s)], "%s axis %d" % (s, a), lambda x: torch.logsumexp(x, a, keep))


@op("argmax", False)
def _(r, d):
    s = d.shape(1, empty=0)
    a, keep = r.randrange(len(s)), r.random() < 0.5
    return (lambda A, x: A.call("argmax", x, a, keep), lambda x: jnp.argmax(x, axis=a, keepdims=keep), [d.floats(s)],
            "%s axis %d" % (s, a))


# ---- views

@op("views")
def _(r, d):
    s = d.shape(1, empty=0.02)
    steps, shape = [], list(s)
    for _ in range(r.randint(1, 5)):
        k = r.choice(["permute", "flip", "slice", "pad", "expand", "reshape"])
        if k == "permute":
            p = list(range(len(shape)))
            r.shuffle(p)
            steps.append((k, p))
            shape = [shape[i] for i in p]
        elif k == "flip":
            steps.append((k, some_axes(r, len(shape))))
        elif k == "slice":
            a = r.randrange(len(shape))
            b = r.randint(0, shape[a])
            e, st = r.randint(b, shape[a]), r.randint(1, 3)
            steps.append((k, a, b, e, st))
            shape[a] = len(range(b, e, st))
        elif k == "pad":
            a, x, y, v = r.randrange(len(shape)), r.randint(0, 2), r.randint(0, 2), r.choice([0.0, -1.5, math.inf])
            steps.append((k, a, x, y, v))
            shape[a] += x + y
        elif k == "expand" and len(shape) < 5:
            n = r.randint(1, 3)
            steps.append((k, [n] + shape))
            shape = [n] + shape
        elif k == "reshape" and math.prod(shape):
            steps.append((k, [math.prod(shape[:1]), math.prod(shape[1:])]))
            shape = steps[-1][1]

    def ours(A, x):
        for t in steps:
            x = {"permute": lambda: x.permute(t[1]), "flip": lambda: A.call("flip", x, axes(t[1])),
                 "slice": lambda: x.slice(*t[1:]), "pad": lambda: x.pad(*t[1:]), "expand": lambda: x.expand(t[1]),
                 "reshape": lambda: x.reshape(t[1])}[t[0]]()
        return x.mul(x) if r.random() < 2 else x

    def theirs(x):
        for t in steps:
            if t[0] == "permute":
                x = jnp.transpose(x, t[1])
            elif t[0] == "flip":
                x = jnp.flip(x, t[1])
            elif t[0] == "slice":
                x = lax.slice_in_dim(x, t[2], t[3], t[4], t[1])
            elif t[0] == "pad":
                x = jnp.pad(x, [(t[2], t[3]) if i == t[1] else (0, 0) for i in range(x.ndim)], constant_values=t[4])
            elif t[0] == "expand":
                x = jnp.broadcast_to(x, t[1])
            else:
                x = x.reshape(t[1])
        return x * x
    return ours, theirs, [d.floats(s)], "%s %s" % (s, steps)


# ---- sorting, sums, indices

@op("sort")
def _(r, d):
    s, down = d.shape(1), r.random() < 0.5
    f = lambda x: -jnp.sort(-x, axis=-1) if down else jnp.sort(x, axis=-1)  # noqa: E731
    if d.spoil and down:  # NaN first, as the largest
        f = lambda x: jnp.flip(jnp.sort(x, axis=-1), -1)  # noqa: E731
    return lambda A, x: A.call("sort", x, down, None)[0], f, [d.floats(s)], "%s descending %s" % (s, down), \
        lambda x: torch.sort(x, descending=down, stable=True)[0]


@op("topk", False)
def _(r, d):
    s = d.shape(1, empty=0)
    k = r.randint(1, s[-1])
    return lambda A, x: A.call("topk", x, k, None)[0], lambda x: lax.top_k(x, k)[0], [d.floats(s)], "%s k %d" % (s, k), \
        lambda x: torch.sort(x, descending=True, stable=True)[0][..., :k]  # JAX places 0 before -0


@op("cumsum")
def _(r, d):
    s, back = d.shape(1), r.random() < 0.5
    f = (lambda x: jnp.flip(jnp.cumsum(jnp.flip(x, -1), -1), -1)) if back else (lambda x: jnp.cumsum(x, -1))
    return lambda A, x: A.call("cumsum", x, back), f, [d.floats(s)], "%s reverse %s" % (s, back)


@op("gather")
def _(r, d):
    v, s, i = r.randint(1, 9), d.shape(0, 2, empty=0.03), d.shape(1, 2, empty=0.05)
    return (lambda A, t, k: A.call("gather", t, k), lambda t, k: t[k], [d.floats([v] + s), d.ints(i, 0, v)],
            "[%d]+%s by %s" % (v, s, i))


@op("scatter_add")
def _(r, d):
    v, n, s = r.randint(1, 9), r.randint(0, 12), d.shape(0, 2, empty=0.03)
    return (lambda A, x, k: A.call("scatter_add", k, x, v), lambda x, k: jnp.zeros([v] + s, x.dtype).at[k].add(x),
            [d.floats([n] + s), d.ints([n], 0, v)], "%d rows of %s to %d" % (n, s, v))


# ---- layers

@op("matmul")
def _(r, d):
    m, k, n = (r.choice([0, 1, 2, 3, 5, 8, 17, 33]) if r.random() < 0.2 else r.choice([1, 2, 3, 5, 8, 17, 33]) for _ in range(3))
    b = d.shape(0, 2, (1, 2, 3), 0)
    c = b if r.random() < 0.6 else []
    a, w = d.floats(b + [m, k]), d.floats(c + [k, n])
    return lambda A, x, y: A.call("matmul", x, y), lambda x, y: jnp.matmul(x, y, precision="highest"), [a, w], "%s %s" % (a.shape, w.shape)


@op("linear")
def _(r, d):
    k, n, s = r.choice([1, 3, 8, 20]), r.choice([1, 2, 9, 16]), d.shape(1, 3)
    return (lambda A, x, w, b: A.call("linear", x, w, b), lambda x, w, b: x @ w.T + b,
            [d.floats(s + [k]), d.floats([n, k]), d.floats([n])], "%s [%d,%d]" % (s, n, k))


@op("layer_norm", False)
def _(r, d):
    s = d.shape(1, 3, (2, 3, 5, 16), 0)
    n, eps = s[-1], r.choice([1e-5, 1e-3])
    f = lambda x, g, b: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + eps) * g + b  # noqa: E731
    return lambda A, x, g, b: A.call("layer_norm", x, g, b, eps), f, [d.floats(s), d.floats([n]), d.floats([n])], str(s)


@op("rms_norm")
def _(r, d):
    s = d.shape(1, 3, (2, 3, 5, 16), 0)
    eps = r.choice([1e-5, 1e-3])
    f = lambda x, g: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + eps) * g  # noqa: E731
    return lambda A, x, g: A.call("rms_norm", x, g, eps), f, [d.floats(s), d.floats([s[-1]])], str(s)


@op("cross_entropy")
def _(r, d):
    n, v = r.randint(1, 9), r.randint(1, 12)
    y = d.ints([n], 0, v)
    f = lambda x, t: -jnp.take_along_axis(jax.nn.log_softmax(x), t[:, None], 1)[:, 0]  # noqa: E731
    return lambda A, x, t: A.call("cross_entropy", x, t), f, [d.floats([n, v], -9, 9), y], "%d %d" % (n, v)


def window(r, size, pool=False):
    kh, kw = r.randint(1, min(3, size)), r.randint(1, min(3, size))
    w = dict(kernel_h=kh, kernel_w=kw, stride_h=r.randint(1, 3), stride_w=r.randint(1, 3), dilation_h=r.randint(1, 2),
             dilation_w=r.randint(1, 2))
    w["pad_h"], w["pad_w"] = (r.randint(0, (k // 2 if pool else 2)) for k in (kh, kw))
    return w


@op("conv2d", False)
def _(r, d):
    g = r.choice([1, 1, 1, 2, 3])
    c, o = g * r.randint(1, 4), g * r.randint(1, 4)
    n, h, wd = r.randint(1, 3), r.randint(5, 10), r.randint(5, 10)
    w = window(r, 3)
    x = [d.floats([n, h, wd, c]), d.floats([o, w["kernel_h"], w["kernel_w"], c // g]), d.floats([o])]
    ours = dict(w, kernel_h=0, kernel_w=0, groups=g)

    def f(a, k, b):
        y = lax.conv_general_dilated(a, jnp.transpose(k, (1, 2, 3, 0)), (w["stride_h"], w["stride_w"]),
                                     [(w["pad_h"],) * 2, (w["pad_w"],) * 2], rhs_dilation=(w["dilation_h"], w["dilation_w"]),
                                     dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=g, precision="highest")
        return y + b
    return lambda A, a, k, b: A.call("conv2d", a, k, b, Window(**ours)), f, x, "%s %s" % ([n, h, wd, c, o], ours)


def shifted(x, w):
    """For each place of the window, what it sees."""
    ph, pw = w["pad_h"], w["pad_w"]
    x = jnp.pad(x, ((0, 0), (ph, ph), (pw, pw), (0, 0)), constant_values=-jnp.inf)
    oh = (x.shape[1] - w["dilation_h"] * (w["kernel_h"] - 1) - 1) // w["stride_h"] + 1
    ow = (x.shape[2] - w["dilation_w"] * (w["kernel_w"] - 1) - 1) // w["stride_w"] + 1
    return [x[:, i:i + (oh - 1) * w["stride_h"] + 1:w["stride_h"], j:j + (ow - 1) * w["stride_w"] + 1:w["stride_w"]]
            for i in range(0, w["dilation_h"] * w["kernel_h"], w["dilation_h"])
            for j in range(0, w["dilation_w"] * w["kernel_w"], w["dilation_w"])]


def pool(name):
    def case(r, d):
        s, w = [r.randint(1, 3), r.randint(5, 9), r.randint(5, 9), r.randint(1, 5)], window(r, 3, True)
        if name == "avg_pool":
            w["dilation_h"] = w["dilation_w"] = 1
        k = (1, w["kernel_h"], w["kernel_w"], 1)

        def f(x):
            if name == "max_pool" and max(w["dilation_h"], w["dilation_w"]) > 1:  # JAX has no gradient of it
                return jnp.stack(shifted(x, w), 0).max(0)
            a = ((0, 0), (w["pad_h"],) * 2, (w["pad_w"],) * 2, (0, 0))
            start, by = (-jnp.inf, lax.max) if name == "max_pool" else (0.0, lax.add)
            y = lax.reduce_window(x, np.asarray(start, x.dtype)[()], by, k, (1, w["stride_h"], w["stride_w"], 1), a,
                                  window_dilation=(1, w["dilation_h"], w["dilation_w"], 1))
            return y if name == "max_pool" else y / (k[1] * k[2])
        def peer(x):  # the first of equals has the slope
            y = torch.nn.functional.max_pool2d(x.permute(0, 3, 1, 2), k[1:3], (w["stride_h"], w["stride_w"]), (w["pad_h"], w["pad_w"]),
                                               (w["dilation_h"], w["dilation_w"]))
            return y.permute(0, 2, 3, 1)
        return (lambda A, x: A.call(name, x, Window(**w)), f, [d.floats(s)], "%s %s" % (s, w), *[peer] * (name == "max_pool"))
    return case


OPS["max_pool"], OPS["avg_pool"] = (pool("max_pool"), False), (pool("avg_pool"), False)


@op("upsample", False)
def _(r, d):
    s, f = [r.randint(1, 2), r.randint(1, 5), r.randint(1, 5), r.randint(1, 4)], r.randint(2, 3)

    def ours(A, x):
        n, h, w, c = s
        return x.reshape([n, h, 1, w, 1, c]).expand([n, h, f, w, f, c]).reshape([n, h * f, w * f, c])
    return ours, lambda x: jnp.repeat(jnp.repeat(x, f, 1), f, 2), [d.floats(s)], "%s by %d" % (s, f)


@op("attention", False)
def _(r, d):
    b, h, t, e = r.randint(1, 2), r.randint(1, 4), r.choice([1, 2, 5, 9, 17, 40]), r.choice([1, 3, 5, 8, 11, 16])
    hk = r.choice([n for n in range(1, h + 1) if h % n == 0])
    causal, scale = r.random() < 0.5, r.choice([0.0, 0.5, 1.7])
    keys = t if causal or r.random() < 0.5 else r.randint(1, 20)
    x = [d.floats([b, h, t, e]), d.floats([b, hk, keys, e]), d.floats([b, hk, keys, e])]

    def f(q, k, v):
        k, v = jnp.repeat(k, h // hk, 1), jnp.repeat(v, h // hk, 1)
        s = jnp.einsum("bhte,bhse->bhts", q, k, precision="highest") * (scale or 1 / math.sqrt(e))
        if causal:
            s = jnp.where(jnp.tril(jnp.ones((t, keys), bool)), s, -jnp.inf)
        return jnp.einsum("bhts,bhse->bhte", jax.nn.softmax(s, -1), v, precision="highest")

    def heads(x):  # each head of keys for as many heads of queries
        return x if hk == h else x.reshape([b, hk, 1, keys, e]).expand([b, hk, h // hk, keys, e]).reshape([b, h, keys, e])
    return (lambda A, q, k, v: A.call("attention", q, heads(k), heads(v), scale, causal, 0.0, None), f, x,
            "%s keys %d of %d heads causal %s scale %g" % ([b, h, t, e], keys, hk, causal, scale))


def cell(gates):
    def case(r, d):
        n, i, h, steps = r.randint(1, 4), r.randint(1, 6), r.randint(1, 6), r.randint(1, 5)
        x = [d.floats([steps, n, i]), d.floats([gates * h, i]), d.floats([gates * h, h]), d.floats([gates * h])]

        def run(zeros, at, lin, part, sig, tanh, x, w, u, b):
            hid, c = zeros, zeros
            for k in range(steps):
                a, m = lin(at(x, k), w, b), lin(hid, u, None)
                p, q = [part(a, j) for j in range(gates)], [part(m, j) for j in range(gates)]
                if gates == 4:
                    c = sig(p[1] + q[1]) * c + sig(p[0] + q[0]) * tanh(p[2] + q[2])
                    hid = sig(p[3] + q[3]) * tanh(c)
                else:
                    z = sig(p[1] + q[1])
                    new = tanh(p[2] + sig(p[0] + q[0]) * q[2])
                    hid = new + z * (hid - new)
            return hid

        def ours(A, x, w, u, b):
            return run(A.full(x.dtype, [n, h], 0), lambda t, k: t.slice(0, k, k + 1).reshape([n, i]),
                       lambda t, m, c: A.call("matmul", t, m.transpose(0, 1)) + c if c is not None else A.call("matmul", t, m.transpose(0, 1)),
                       lambda t, j: t.slice(1, j * h, (j + 1) * h), lambda t: t.sigmoid(), lambda t: t.tanh(), x, w, u, b)

        def theirs(x, w, u, b):
            return run(jnp.zeros((n, h), x.dtype), lambda t, k: t[k], lambda t, m, c: t @ m.T + (0 if c is None else c),
                       lambda t, j: t[:, j * h:(j + 1) * h], jax.nn.sigmoid, jnp.tanh, x, w, u, b)
        return ours, theirs, x, "%d steps %d %d %d" % (steps, n, i, h)
    return case


OPS["lstm"], OPS["gru"] = (cell(4), False), (cell(3), False)


# ---- linear algebra

def spd(d, b, n):
    x = d.floats(b + [n, n], clean=True)
    return x @ np.swapaxes(x, -1, -2) + n * np.eye(n)


@op("cholesky", False)
def _(r, d):
    n, b = r.randint(1, 8), d.shape(0, 2, (1, 2, 3), 0)
    f = lambda x: jnp.linalg.cholesky((x + jnp.swapaxes(x, -1, -2)) / 2)  # noqa: E731
    return lambda A, x: A.call("cholesky", x), f, [spd(d, b, n)], "%s %d" % (b, n)


@op("solve", False)
def _(r, d):
    n, m, b = r.randint(1, 8), r.randint(1, 4), d.shape(0, 2, (1, 2, 3), 0)
    a = d.floats(b + [n, n], clean=True) + 3 * n * np.eye(n)
    return lambda A, x, y: A.call("solve", x, y), jnp.linalg.solve, [a, d.floats(b + [n, m])], "%s %d %d" % (b, n, m)


@op("trisolve", False)
def _(r, d):
    n, m, up, tr = r.randint(1, 8), r.randint(1, 4), r.random() < 0.5, r.random() < 0.5
    a = d.floats([n, n], clean=True) + 3 * n * np.eye(n)
    f = lambda x, y: jax.scipy.linalg.solve_triangular(x, y, trans=1 if tr else 0, lower=not up)  # noqa: E731
    return lambda A, x, y: A.call("trisolve", x, y, up, tr), f, [a, d.floats([n, m])], "%d %d upper %s transpose %s" % (n, m, up, tr)


@op("eigh", False)
def _(r, d):
    n = r.randint(1, 7)
    x = d.floats([n, n], clean=True)
    x = x + x.T + np.diag(np.arange(n) * 3.0)
    f = lambda x: jnp.linalg.eigvalsh((x + x.T) / 2)  # noqa: E731
    return lambda A, x: A.call("eigh", x, None)[0], f, [x], str(n)


@op("qr", False)
def _(r, d):
    n = r.randint(1, 6)
    m = n + r.randint(0, 3)
    a = d.floats([m, n], clean=True) + np.eye(m, n) * 4

    def f(x):
        q, t = jnp.linalg.qr(x)
        s = jnp.where(jnp.diagonal(t) < 0, -1.0, 1.0)
        return q * s
    return lambda A, x: A.call("qr", x, None)[0], f, [a], "%d %d" % (m, n)


@op("svd", False)
def _(r, d):
    n = r.randint(1, 6)
    m = n + r.randint(0, 3)
    a = d.floats([m, n], clean=True) + np.eye(m, n) * np.arange(1, n + 1) * 3
    return lambda A, x: A.call("svd", x, None, None)[1], lambda x: jnp.linalg.svd(x, compute_uv=False), [a], "%d %d" % (m, n)


# ---- judging

def inputs_of(x, dtype):
    t = torch.from_numpy(np.array(x))
    return t.to(dtype) if t.dtype == torch.float64 else t


def judged(f, x, weight, dtype):
    arrays = [jnp.asarray(a, dtype) if a.dtype == np.float64 else jnp.asarray(a) for a in x]
    which = [i for i, a in enumerate(x) if a.dtype == np.float64]
    y = f(*arrays)
    if not jnp.issubdtype(y.dtype, jnp.floating):
        return [np.asarray(y)]
    loss = lambda *a: (f(*a) * jnp.asarray(weight, dtype)).sum()  # noqa: E731
    return [np.asarray(y)] + [np.asarray(g) for g in jax.grad(loss, which)(*arrays)]


def by_peer(f, x, weight):
    """The same by PyTorch in float64."""
    leaves = [torch.from_numpy(np.array(a)).requires_grad_(a.dtype == np.float64) for a in x]
    y = f(*leaves)
    floats = [a for a in leaves if a.requires_grad]
    grads = torch.autograd.grad((y * torch.from_numpy(np.array(weight))).sum(), floats, allow_unused=True)
    return [y.detach().numpy()] + [np.zeros(a.shape) if g is None else g.numpy() for a, g in zip(floats, grads)]


def ours(A, f, x, weight, dtype):
    A.reset()
    leaves, reads, backs = zip(*[A.leaf(inputs_of(a, dtype)) for a in x])
    y = f(A, *reads)
    if not y.is_float:
        return [v.numpy() for v in A.eval([y])]
    w = A.data(torch.from_numpy(np.array(weight)).to(dtype))
    A.backward((y * w).sum().cast(F32 if dtype == torch.float32 else F64))
    out, slots = [y], []
    for leaf, a in zip(leaves, x):
        if a.dtype == np.float64:
            g = A.grad(leaf)
            slots.append(len(out) if g else None)
            if g:
                out.append(g)
    values = A.eval(out)
    got, k = [values[0].numpy()], 0
    for a, back in zip(x, backs):
        if a.dtype == np.float64:
            got.append(back(values[slots[k]]).numpy() if slots[k] is not None else np.zeros(a.shape))
            k += 1
    return got


def miss(got, want, own, dtype, least):
    """How far, in units of what is allowed; inf: NaN or an infinity elsewhere."""
    if got.shape != want.shape:
        return math.inf
    if got.size == 0:
        return 0.0
    if not np.issubdtype(want.dtype, np.floating):
        return 0.0 if (got.astype(np.int64) == want.astype(np.int64)).all() else math.inf
    got, want, own = got.astype(np.float64), want.astype(np.float64), own.astype(np.float64)
    ok = np.isfinite(want)
    scale = np.abs(want[ok]).max() if ok.any() else 0.0
    same = (got == want) | (np.isnan(got) & np.isnan(want)) | ((got == own) | (np.isnan(got) & np.isnan(own)))
    with np.errstate(all="ignore"):
        room = K[dtype] * EPS[dtype] * (np.abs(want) + max(scale, least)) + 4 * np.nan_to_num(np.abs(own - want), nan=0, posinf=0)
        d = np.abs(got - want) / room
    d = np.where(same, 0, np.where(np.isnan(d) | ~ok | ~np.isfinite(got), np.inf, d))
    return float(d.max())


def main():
    a = argparse.ArgumentParser()
    a.add_argument("library")
    a.add_argument("--first", type=int, default=0)
    a.add_argument("--cases", type=int, default=1500)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--only", type=int)
    a.add_argument("--op")
    a.add_argument("--device", default="cpu")
    a.add_argument("--cc", default="none")
    o = a.parse_args()
    A = Anneal(o.library, o.device, o.cc, views=True)
    names = sorted(OPS) if not o.op else [o.op]
    agree, differ, refused, count, as_pytorch = 0, 0, {}, {}, {}
    for i in [o.only] if o.only is not None else range(o.first, o.first + o.cases):
        if i % 50 == 0:  # what JAX compiled for shapes that do not return
            jax.clear_caches()
        r = random.Random(o.seed * 1000003 + i)
        name = names[i % len(names)]
        (case, special), least = OPS[name], LEAST_SCALE.get(name, 1e-3)
        spoil = special and r.random() < 0.4
        d = Draw(r, spoil)
        f, g, x, label, *peer = case(r, d)
        y = jax.eval_shape(g, *[jnp.asarray(v) for v in x])
        weight = d.n.uniform(0.5, 1.5, y.shape).astype(np.float32).astype(np.float64)
        want = judged(g, x, weight, np.float64)
        for dtype, t in (("f64", torch.float64), ("f32", torch.float32)):
            count[name] = count.get(name, 0) + 1
            try:
                got = ours(A, f, x, weight, t)
            except Refused as e:
                refused.setdefault(name + ": " + str(e)[:160], []).append(i)
                continue
            far = [miss(p, q, q, dtype, least) for p, q in zip(got, want)]
            if max(far) > 1 and dtype == "f32":
                own = judged(g, x, weight, np.float32)
                far = [miss(p, q, s, dtype, least) for p, q, s in zip(got, want, own)]
            if max(far) <= 1:
                agree += 1
                continue
            if peer and max(miss(p, q, q, dtype, least) for p, q in zip(got, by_peer(peer[0], x, weight))) <= 1:
                as_pytorch[name] = as_pytorch.get(name, 0) + 1
                continue
            differ += 1
            k = max(range(len(far)), key=lambda j: far[j])
            print("case %d %s %s %s%s: %s is %.3g of what is allowed\n  x    %s\n  got  %s\n  want %s" % (
                i, name, dtype, "special " if spoil else "", label, "value" if k == 0 else "gradient %d" % (k - 1), far[k],
                [v.reshape(-1)[:12].tolist() for v in x], got[k].reshape(-1)[:12].tolist(), want[k].reshape(-1)[:12].tolist()), flush=True)
    print("%d operations, %d runs: %d agree, %d as PyTorch (%s), %d differ, %d refused" % (
        len(count), sum(count.values()), agree, sum(as_pytorch.values()), ", ".join("%s %d" % k for k in sorted(as_pytorch.items())),
        differ, sum(len(v) for v in refused.values())))
    for k, v in refused.items():
        print("refused %d: %s (case %d)" % (len(v), k, v[0]))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
