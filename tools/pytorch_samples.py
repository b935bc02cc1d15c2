#!/usr/bin/env python3
"""anneal against PyTorch's own samples: for every operation that anneal.h can express, the sample inputs of PyTorch's
test suite (op_db), and special values, in six dtypes, values and gradients.

    python3 tools/pytorch_samples.py build/libanneal.so.0            the table, and every difference
    python3 tools/pytorch_samples.py build/libanneal.so.0 softmax    one operation, in detail
    --samples N  at most N samples an operation and dtype (40)       --device cuda:0       --cc cc  compiled kernels
    --exact --unfused  the library's options of these names (in exact mode subnormal numbers of float64 count as zeros: those differ)
    --seed N     other numbers, samples, places of special values and views

The judge is PyTorch in float64, on inputs rounded to the dtype: |got - want| <= K eps (|want| + scale), eps of the
dtype, K of BUDGET; scale is the largest |want| of the tensor (elementwise: at most 1). What misses that still agrees
where PyTorch in the same dtype is off by a quarter of it or more. NaN and infinities must be where they are in
PyTorch. Integers and bools are equal. Inputs come contiguous and, in turn, as views: transposed, sliced, flipped.

Needs PyTorch's wheel (torch.testing is part of it) and the shared library. Exit 1: something differs."""
import argparse
import json
import math
import os
import random
import select
import signal
import sys
import time
import types
import unittest
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "torch", "samples"))
warnings.filterwarnings("ignore")
if "expecttest" not in sys.modules:
    try:
        import expecttest  # noqa: F401
    except ImportError:  # what PyTorch's test utilities import, and do not use for samples
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        sys.modules["expecttest"].TestCase = unittest.TestCase
import torch
from torch.testing._internal.common_methods_invocations import op_db

import pointwise
import layers  # noqa: F401  (with views and reductions it fills OPS)
from capi import FLOATS, OF, Anneal, Refused, T, Unmapped

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.bool]
BUDGET = {torch.float32: 64, torch.float64: 128, torch.bfloat16: 6, torch.float16: 12}
SECONDS = 300  # an operation


def is_float(t):
    return isinstance(t, torch.Tensor) and t.dtype.is_floating_point


def mapped(f, x):
    """f of every tensor in nested lists."""
    if isinstance(x, torch.Tensor):
        return f(x)
    if isinstance(x, (list, tuple)) and not isinstance(x, torch.Size):
        return type(x)(mapped(f, y) for y in x) if not hasattr(x, "_fields") else [mapped(f, y) for y in x]
    if isinstance(x, dict):
        return {k: mapped(f, y) for k, y in x.items()}
    return x


def tensors_of(x):
    found = []
    mapped(lambda t: found.append(t), x)
    return found


class Sample:
    """Arguments, in the dtype and as float64 leaves."""

    def __init__(self, input, args=(), kwargs=None, label="", grad=True):
        self.call = (input, list(args), dict(kwargs or {}))
        self.label, self.grad = label, grad

    def text(self):
        def short(x):
            if isinstance(x, torch.Tensor):
                return "%s%s" % (str(x.dtype)[6:], list(x.shape))
            if isinstance(x, (list, tuple)):
                return "[%s]" % ", ".join(short(y) for y in x)
            return repr(x)
        i, a, k = self.call
        return self.label + ", ".join([short(i)] + [short(x) for x in a] + ["%s=%s" % (n, short(v)) for n, v in k.items()])


FLOAT_SPECIALS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, math.inf, -math.inf, math.nan, 1e-3, 20.5, -90.25]
EXTREMES = {torch.float32: [3e38, -3e38, 2e-38, 1e10, -1e10, 0.1], torch.float64: [1e308, -1e308, 5e-324, 1e15, -1e15, 3e5],
            torch.float16: [65504.0, -65504.0, 6e-8, -6e-5, 3e4, 1e-4], torch.bfloat16: [3e38, -3e38, 2e-38, 1e10, -1e10, 257.0]}
INT_SPECIALS = [0, 1, -1, 2, -2, 7, -7, 2**31 - 1, -2**31, 3]


def special_samples(name, arity, dtype, kwargs=None):
    """Pairs of every special value with every other. Integers are not divided by 0: there PyTorch raises."""
    def sample(values, grad):
        x = torch.tensor(values, dtype=dtype)
        n = len(x)
        if arity == 1:
            return Sample(x, (), kwargs, "special ", grad)
        return Sample(x.repeat_interleave(n), (x.repeat(n),), kwargs, "special ", grad)
    if dtype.is_floating_point:
        yield sample(FLOAT_SPECIALS, True)
        yield sample(FLOAT_SPECIALS[:7] + EXTREMES[dtype], False)
    elif dtype == torch.int32:
        divides = any(w in name for w in ("div", "mod", "remainder"))
        x = torch.tensor(INT_SPECIALS, dtype=dtype)
        if arity == 1:
            yield Sample(x, (), kwargs, "special ")
        else:
            a, b = x.repeat_interleave(len(x)), x.repeat(len(x))
            keep = (b != 0) & ~((a == -2**31) & (b == -1)) if divides else torch.ones_like(a, dtype=torch.bool)
            yield Sample(a[keep], (b[keep],), kwargs, "special ")
    else:
        yield sample([True, False], False)


def spoiled(sample, dtype, turn, seed=0):
    """A copy with a few special numbers, equal ones among them."""
    def spoil(t):
        if not is_float(t) or t.numel() == 0:
            return t
        t = t.detach().clone().contiguous()
        f, r = t.view(-1), random.Random(turn + 1000 * seed)
        for _ in range(r.randrange(1, 4)):
            f[r.randrange(f.numel())] = r.choice([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, 1.0, -2.0])
        if f.numel() > 1:
            f[r.randrange(f.numel())] = f[r.randrange(f.numel())].item()
        return t
    i, a, k = sample.call
    return Sample(spoil(i) if isinstance(i, torch.Tensor) else mapped(spoil, i), a, k, "spoiled ")


def samples_of(op, options, dtype, most, seed=0):
    name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
    torch.manual_seed(7 + seed)
    random.seed(7 + seed)
    plain = []
    for i, s in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
        if i >= 3 * most:
            break
        plain.append(Sample(s.input, s.args, s.kwargs))
    if len(plain) > most:
        plain = random.Random(3 + seed).sample(plain, most)
    yield from plain
    if options.get("matrix") or options.get("corners") is False:
        return
    if name in POINT and not options.get("cast"):
        arity = 1 + sum(isinstance(a, torch.Tensor) for a in (plain[0].call[1] if plain else ()))
        if arity <= 2 and all(isinstance(a, torch.Tensor) for s in plain[:1] for a in s.call[1]):
            kwargs = {k: v for k, v in (plain[0].call[2] if plain else {}).items() if not tensors_of(v)}
            yield from special_samples(name, arity, dtype, kwargs)
    if options.get("cast"):
        yield from (Sample(s.call[0], label="special ", grad=s.grad) for s in special_samples(name, 1, dtype)
                    if not bad_cast(s.call[0], options["cast"]))
    if dtype.is_floating_point and not (options.get("cast") and bad_cast(torch.empty(0, dtype=dtype), options["cast"])):
        for turn, s in enumerate(plain[:12]):
            yield spoiled(s, dtype, turn, seed)


def bad_cast(x, to):
    """C leaves casts of what an integer does not hold open, and PyTorch gives what the machine gives."""
    return x.dtype.is_floating_point and not to.is_floating_point and to != torch.bool


def outputs(y):
    flat = []
    mapped(lambda t: flat.append(t), list(y) if isinstance(y, (tuple, list)) else [y])
    return flat


def reference(op, sample, options, dtype, wide, only_first=False):
    """Outputs and gradients of PyTorch's, with float64 in place of the dtype when `wide`. A gradient that PyTorch has not
    is False."""
    leaves, weights = [], []

    def leaf(t):
        if not is_float(t):
            return t.detach().clone()
        t = t.detach().to(torch.float64 if wide else t.dtype).clone().contiguous()
        if sample.grad and options.get("grad") is not False and not (only_first and leaves):
            t.requires_grad_(True)
        leaves.append(t)
        return t
    i, a, k = mapped(leaf, sample.call)
    if wide and k.get("dtype") in (torch.float32, torch.float16, torch.bfloat16):
        k["dtype"] = torch.float64
    # PyTorch's references write to their inputs' running statistics and to `inplace` operands
    try:
        y = op.op(mapped(lambda t: t * 1 if is_float(t) and k.get("inplace") else t, i), *a, **k)
    except RuntimeError as e:
        if only_first or "not differentiable" not in str(e):
            raise
        return reference(op, sample, options, dtype, wide, True)
    if "post" in options:
        y = options["post"](y)
    outs = outputs(y)
    if not sample.grad or not any(o.requires_grad for o in outs):
        return [o.detach() for o in outs], None, None
    g = torch.Generator().manual_seed(5)
    loss = 0
    for o in outs:
        w = (torch.rand(o.shape, generator=g, dtype=torch.float64) * 2 - 1).to(dtype) if o.requires_grad else None
        weights.append(w)
        if w is not None:
            loss = loss + (o.to(torch.float64) * w.to(torch.float64)).sum()
    rest = iter(torch.autograd.grad(loss, [t for t in leaves if t.requires_grad], allow_unused=True))
    grads = [next(rest) if t.requires_grad else False for t in leaves]
    return [o.detach() for o in outs], grads, weights


def ours(A, f, sample, weights):
    """The same of anneal's."""
    leaves, views = [], []
    A.reset()

    def leaf(t):
        whole, view, back = A.leaf(t)
        view.data = t
        if is_float(t):
            leaves.append(whole)
            views.append(back)
        return view
    i, a, k = mapped(leaf, sample.call)
    y = f(A, i, *a, **k)
    outs = [o for o in (y if isinstance(y, (list, tuple)) else [y])]
    roots = list(outs)
    grads = None
    if weights is not None:
        loss = None
        wide = OF[torch.float64] if any(o.dtype == OF[torch.float64] for o in outs) else OF[torch.float32]
        for o, w in zip(outs, weights):
            if w is None or not o.is_float:
                continue
            term = (o.cast(wide) * A.data(w).cast(wide)).sum()
            loss = term if loss is None else loss + term
        if loss is not None:
            A.backward(loss)
            grads = [A.grad(t) for t in leaves]
            roots += [g for g in grads if g is not None]
    values = A.eval(roots) if roots else []
    if grads is not None:
        rest = iter(values[len(outs):])
        grads = [None if g is None else back(next(rest)) for g, back in zip(grads, views)]
    return values[:len(outs)], grads


def equal_elements(sample):
    """Ties, or NaN, whose gradient is one of several."""
    return any(t.isnan().any() or t.unique().numel() < t.numel() for t in tensors_of(sample.call) if is_float(t))


def differs(what, got, want, same, dtype, point, least=0.0):
    """None, or how got differs from want; same is PyTorch's result in the same dtype (None: unknown)."""
    if tuple(got.shape) != tuple(want.shape):
        return "%s: shape %s, PyTorch %s" % (what, list(got.shape), list(want.shape))
    if want.numel() == 0:
        return None
    if not got.dtype.is_floating_point:
        if want.dtype.is_floating_point:
            return "%s: %s, PyTorch %s" % (what, got.dtype, want.dtype)
        bad = got.to(torch.int64) != want.to(torch.int64)
        if not bad.any():
            return None
        at = tuple(bad.nonzero()[0].tolist())
        return "%s%s is %s, PyTorch %s" % (what, list(at), got[at].item(), want[at].item())
    info = torch.finfo(got.dtype)
    g, w = got.double(), want.double()
    rounded = w.to(got.dtype).double()
    scale = rounded[rounded.isfinite()].abs().max().item() if rounded.isfinite().any() else 0.0
    scale = max(min(scale, 1.0) if point else scale, least)
    room = BUDGET[got.dtype] * info.eps * (w.abs() + scale) + 2 * info.tiny
    near = (g - w).abs() <= room
    near |= (g == rounded) | (g.isnan() & rounded.isnan())
    near |= rounded.isinf() & w.isfinite() & (g.abs() >= info.max * (1 - 4 * info.eps)) & (g.sign() == w.sign())
    near |= g.isinf() & (w.abs() > info.max * (1 - 4 * info.eps)) & (g.sign() == w.sign())
    if near.all():
        return None
    if same is not None and tuple(same.shape) == tuple(g.shape):
        s = same.double()
        theirs = (s - w).abs()
        top = theirs[theirs.isfinite()].max().item() if theirs.isfinite().any() else 0.0
        near |= ((g - w).abs() <= 4 * top + room)
        near |= (g == s) | (g.isnan() & s.isnan())
        if near.all():
            return None
    at = tuple((~near).nonzero()[0].tolist())
    return "%s%s is %.9g, PyTorch %.17g (same dtype: %s); %d of %d" % (
        what, list(at), g[at].item(), w[at].item(), "%.9g" % same[at].double().item() if same is not None and
        tuple(same.shape) == tuple(g.shape) else "?", (~near).sum().item(), near.numel())


def signs(what, got, want, point):
    """A zero with the other sign."""
    if not point or not got.dtype.is_floating_point or got.shape != want.shape:
        return None
    bad = (got == 0) & (want == 0) & (got.signbit() != want.signbit())
    return "%s%s: the zero's sign" % (what, bad.nonzero()[0].tolist()) if bad.any() else None


def try_sample(A, op, name, f, options, sample, dtype):
    """(verdict, sentence)."""
    try:
        want, want_grads, weights = reference(op, sample, options, dtype, True)
    except Exception as e:  # PyTorch refuses, or float64 is not what the sample is about
        return "unjudged", str(e).split("\n")[0]
    same = same_grads = None
    if dtype.is_floating_point:
        try:
            same, same_grads, _ = reference(op, sample, options, dtype, False)
        except Exception:
            pass
    try:
        got, grads = ours(A, f, sample, weights)
    except Unmapped as e:
        return "unmapped", str(e)
    except Refused as e:
        return "refused", str(e)
    point = name in POINT
    if len(got) != len(want):
        return "differs", "%d outputs, PyTorch %d" % (len(got), len(want))
    at_ties = options.get("first")
    for k, (g, w) in enumerate(zip(got, want)):
        if at_ties and k > 0 or at_ties and name == "argsort":
            continue  # places of equal elements are free in PyTorch: judged by the values that they lead to
        why = differs("output %d " % k, g, w, same[k] if same and len(same) == len(want) else None, dtype, point)
        if why:
            return "differs", why
    if grads is not None and want_grads is not None:
        for k, (g, w) in enumerate(zip(grads, want_grads)):
            ties = options.get("ties", True)
            if ties == "operands":  # which of several operands has the gradient
                ties = sum(is_float(t) for t in tensors_of(sample.call)) < 2
            if w is False or not ties and equal_elements(sample):
                continue
            w = torch.zeros_like(g, dtype=torch.float64) if w is None and g is not None else w
            g = torch.zeros(w.shape, dtype=dtype) if g is None and w is not None else g
            if g is None or not g.dtype.is_floating_point:
                continue
            s = same_grads[k] if same_grads is not None and same_grads[k] is not False else None
            size = max([1.0] + [t[t.isfinite()].abs().max().item() for t in tensors_of(sample.call) if is_float(t) and
                                t.isfinite().any()] if options.get("room") else [0.0 if point else 1.0])
            why = differs("gradient %d " % k, g, w, s, dtype, False, size)
            if why:
                return "differs", why
    for k, (g, w) in enumerate(zip(got, want)):
        why = signs("output %d " % k, g, w, point)
        if why:
            return "zero sign", why
    return "agree", ""


POINT = set()


def run_op(args, op, name, out):
    f, options = pointwise.OPS[name]
    torch.set_num_threads(1)
    A = Anneal(args.library, args.device, args.cc, seed=1 + args.seed, views=not args.no_views, exact=args.exact,
               unfused=args.unfused)
    for dtype in DTYPES:
        if dtype not in op.dtypes and not (dtype in (torch.float16, torch.bfloat16) and torch.float32 in op.dtypes):
            continue
        try:
            for n, s in enumerate(samples_of(op, options, dtype, args.samples, args.seed)):
                if any(t.dtype.is_complex for t in tensors_of(s.call)):
                    continue
                os.write(out, (json.dumps(["at", str(dtype)[6:], "", s.text()[:300]]) + "\n").encode())
                try:
                    verdict, why = try_sample(A, op, name, f, options, s, dtype)
                except (KeyError, TypeError, AttributeError, IndexError, ValueError, RuntimeError) as e:
                    verdict, why = "unmapped", "%s: %s" % (type(e).__name__, e)
                os.write(out, (json.dumps([verdict, str(dtype)[6:], why[:400], s.text()[:300]]) + "\n").encode())
                if n % 64 == 63:
                    A.lib.an_empty_cache(A.cx)
        except Exception as e:  # no samples in this dtype
            os.write(out, (json.dumps(["none", str(dtype)[6:], str(e)[:200], ""]) + "\n").encode())


def in_child(args, op, name):
    """Lines of a child process, so that a crash is one operation's."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        try:
            run_op(args, op, name, w)
        finally:
            os._exit(0)
    os.close(w)
    text, end = b"", time.time() + SECONDS
    while time.time() < end:
        ready = select.select([r], [], [], 1)[0]
        if ready:
            part = os.read(r, 1 << 16)
            if not part:
                break
            text += part
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(r)
    status = os.waitpid(pid, 0)[1]
    lines = [json.loads(x) for x in text.decode().splitlines() if x.endswith("]")]
    if status and os.WIFSIGNALED(status) and lines:
        lines.append(["crash", lines[-1][1], "signal %d" % os.WTERMSIG(status), lines[-1][3]])
    return [x for x in lines if x[0] != "at"]


COLUMNS = ("agree", "zero sign", "refused", "unmapped", "unjudged", "differs", "crash")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("library")
    p.add_argument("names", nargs="*")
    p.add_argument("--samples", type=int, default=40)
    p.add_argument("--device", default="cpu")
    p.add_argument("--cc", default="none")
    p.add_argument("--no-views", action="store_true")
    p.add_argument("--exact", action="store_true")
    p.add_argument("--unfused", action="store_true")
    p.add_argument("--seed", type=int, default=0, help="other numbers, samples, places of special values and views")
    p.add_argument("--part", default="0/1", help="i/n: of the operations every nth, from the ith on")
    args = p.parse_intermixed_args()
    POINT.update(n for n, (f, _) in pointwise.OPS.items() if f.__module__ == "pointwise")
    part, parts = (int(x) for x in args.part.split("/"))
    total, bad, seen = dict.fromkeys(COLUMNS, 0), [], 0
    print("%-46s %7s %s" % ("operation", "samples", " ".join("%9s" % c for c in COLUMNS)))
    chosen = []
    for op in op_db:
        name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
        if name in pointwise.OPS and (not args.names or name in args.names):
            chosen.append((op, name))
    for op, name in chosen[part::parts]:
        lines = in_child(args, op, name)
        count = {c: sum(x[0] == c for x in lines) for c in COLUMNS}
        seen += 1
        for c in COLUMNS:
            total[c] += count[c]
        print("%-46s %7d %s" % (name, sum(count.values()), " ".join("%9s" % (count[c] or "-") for c in COLUMNS)), flush=True)
        shown = [x for x in lines if x[0] in ("differs", "crash", "zero sign") or args.names and x[0] != "agree"]
        for x in shown[:1000 if args.names else 6]:
            print("    %s %s: %s\n        %s" % (x[0], x[1], x[2], x[3]), flush=True)
        bad += [x for x in lines if x[0] in ("differs", "crash")]
    print("%-46s %7d %s" % ("%d operations" % seen, sum(total.values()), " ".join("%9d" % total[c] for c in COLUMNS)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
