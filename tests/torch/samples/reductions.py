"""PyTorch's reductions, products and rows by index in terms of anneal.h: see pointwise.py."""
import math

import torch
from capi import BOOL, I32, I64, OF, Unmapped
from pointwise import OPS, isnan, op, plain, promoted, real, truth
from views import cat, diagonal, widened


# ---- reductions

def simple(name, f):
    OPS[name] = ((lambda A, x, dim=None, keepdim=False, dtype=None, **kw: f(x if dtype is None else x.cast(OF[dtype]), dim, keepdim)), {})


simple("sum", lambda x, d, k: widened(x).sum(d, k))
simple("mean", lambda x, d, k: x.mean(d, k))
simple("amax", lambda x, d, k: bools(x, lambda y: y.max(d, k)))
simple("amin", lambda x, d, k: bools(x, lambda y: y.min(d, k)))
simple("all", lambda x, d, k: truth(x).cast(I32).min(d, k).cast(BOOL) if math.prod(x.shape) else nothing(x, d, k, 1))
simple("any", lambda x, d, k: truth(x).cast(I32).sum(d, k).cast(BOOL))
simple("nansum", lambda x, d, k: widened(x).sum(d, k) if not x.is_float else isnan(x).where(x.num(0), x).sum(d, k))


def nothing(x, d, k, value):
    ones = truth(x).cast(I32)
    return (ones ^ 1).sum(d, k).eq(0)


def bools(x, f):
    return f(x.cast(I32)).cast(BOOL) if x.dtype == BOOL else f(x)


@op("count_nonzero")
def _(A, x, dim=None):
    return truth(x).cast(I64).sum(dim)


@op("aminmax")
def _(A, x, dim=None, keepdim=False):
    return bools(x, lambda y: y.min(dim, keepdim)), bools(x, lambda y: y.max(dim, keepdim))


for n in ("max", "min"):
    OPS[n + ".reduction_no_dim"] = ((lambda A, x, n=n: bools(x, lambda y: getattr(y, n)())), {})


def extreme(A, x, dim, keepdim=False, least=False):
    """Values and the place of the first, as torch.max with a dim gives them."""
    if x.dim == 0:
        return x, A.full(I64, (), 0)
    y = x.cast(I32) if x.dtype == BOOL else x
    sign = -y if least and y.is_float else y ^ y.num(-1) if least else y
    return (bools(x, lambda z: (z.min if least else z.max)([dim], keepdim)), A.call("argmax", sign, dim, keepdim).cast(I64))


@op("max.reduction_with_dim", first=True)
def _(A, x, dim, keepdim=False):
    return extreme(A, x, dim, keepdim)


@op("min.reduction_with_dim", first=True)
def _(A, x, dim, keepdim=False):
    return extreme(A, x, dim, keepdim, True)


def arg(A, x, dim, keepdim, least):
    if dim is None:
        n, dims = math.prod(x.shape), x.shape
        x, dim = x.reshape(n), 0
        y = extreme(A, x, 0, False, least)[1]
        return y.reshape([1] * len(dims)) if keepdim else y
    return extreme(A, x, dim, keepdim, least)[1]


@op("argmax")
def _(A, x, dim=None, keepdim=False):
    return arg(A, x, dim, keepdim, False)


@op("argmin")
def _(A, x, dim=None, keepdim=False):
    return arg(A, x, dim, keepdim, True)


def variance(x, dim, unbiased, correction, keepdim):
    c = correction if correction is not None else 0 if unbiased is False else 1
    dims = x.axes_of(dim)
    n = math.prod(x.shape[i] for i in dims)
    v = x.var(dims, keepdim)
    return v * (n / (n - c) if n - c > 0 else math.inf if n else math.nan)


def spread(A, x, *args, **kw):
    args, dim, unbiased = list(args), kw.pop("dim", None), kw.pop("unbiased", None)
    if args and isinstance(args[0], bool):
        unbiased = args.pop(0)
    if args:
        dim = args.pop(0)
    if args:
        unbiased = args.pop(0)
    keepdim = args.pop(0) if args else kw.pop("keepdim", False)
    correction = kw.pop("correction", None)
    if kw:
        raise Unmapped(str(kw))
    return variance(x, dim, unbiased, correction, keepdim), x.mean(dim, keepdim)


for n in ("", ".unbiased"):
    OPS["var" + n] = ((lambda A, x, *a, **k: spread(A, x, *a, **k)[0]), {})
    OPS["std" + n] = ((lambda A, x, *a, **k: spread(A, x, *a, **k)[0].sqrt()), {})
    OPS["var_mean" + n] = ((lambda A, x, *a, **k: spread(A, x, *a, **k)), {})
    OPS["std_mean" + n] = ((lambda A, x, *a, **k: (lambda v: (v[0].sqrt(), v[1]))(spread(A, x, *a, **k))), {})


def norm(x, p, dims, keep):
    if p == 2:
        return (x * x).sum(dims, keep).sqrt()
    if p == 1:
        return x.abs().sum(dims, keep)
    if p == math.inf:
        return x.abs().max(dims, keep)
    if p == -math.inf:
        return x.abs().min(dims, keep)
    if p == 0:
        return x.ne(0).cast(x.dtype).sum(dims, keep)
    raise Unmapped("a norm of order %r" % (p,))


@op("linalg.vector_norm")
def _(A, x, ord=2, dim=None, keepdim=False, dtype=None):
    x = x if dtype is None else x.cast(OF[dtype])
    return norm(x, float(ord), dim, keepdim)


@op("norm", "norm.fro", "norm.inf")
def _(A, x, p="fro", dim=None, keepdim=False, dtype=None):
    x = x if dtype is None else x.cast(OF[dtype])
    return norm(x, 2.0 if p in ("fro", None) else float(p), dim, keepdim)


@op("logsumexp")
def _(A, x, dim, keepdim=False):
    x = real(x)
    dims = x.axes_of(dim)
    if x.dim == 0:
        return x.reshape(1).A.call("logsumexp", x.reshape(1), 0, False)
    if len(dims) != 1:
        raise Unmapped("several axes")
    return A.call("logsumexp", x, dims[0], keepdim)


def softmax(name):
    def f(A, x, dim=None, dtype=None, _stacklevel=3):
        x = x.cast(OF[dtype]) if dtype else x
        if x.dim == 0:
            return A.call(name, x.reshape(1), 0).reshape(())
        return A.call(name, x, dim)
    return f


for n in ("softmax", "log_softmax"):
    for v in ("", ".with_dtype"):
        OPS[n + v] = (softmax(n), {})
for v in ("", ".with_dtype"):
    OPS["nn.functional.softmin" + v] = ((lambda A, x, dim=None, dtype=None: softmax("softmax")(A, -(x.cast(OF[dtype]) if dtype else x), dim)), {})


@op("cumsum")
def _(A, x, dim, dtype=None):
    x = widened(x) if dtype is None else x.cast(OF[dtype])
    if x.dim == 0:
        return x
    return A.call("cumsum", x.moved_last(dim), False).moved_last(dim)


def ordered(A, x, dim, descending):
    if x.dim == 0:
        return x, A.full(I64, (), 0)
    y = x.cast(I32) if x.dtype == BOOL else x
    v, p = A.call("sort", y.moved_last(dim), descending, None)
    v = v.cast(BOOL) if x.dtype == BOOL else v
    return v.moved_last(dim), p.cast(I64).moved_last(dim)


@op("sort", "msort", first="ties")
def _(A, x, *args, dim=-1, descending=False, stable=False):
    if args:
        dim = args[0]
        descending = args[1] if len(args) > 1 else descending
    return ordered(A, x, dim, descending)


@op("msort")
def _(A, x):
    return ordered(A, x, 0, False)[0]


@op("argsort", first="ties")
def _(A, x, dim=-1, descending=False, stable=False):
    return ordered(A, x, dim, descending)[1]


@op("topk", first="ties")
def _(A, x, k, dim=-1, largest=True, sorted=True):
    if x.dim == 0:
        return x, A.full(I64, (), 0)
    if not largest:
        raise Unmapped("the smallest")
    v, p = A.call("topk", x.moved_last(dim), k, None)
    return v.moved_last(dim), p.cast(I64).moved_last(dim)


@op("kthvalue", first="ties")
def _(A, x, k, dim=-1, keepdim=False):
    if x.dim == 0:
        return x, A.full(I64, (), 0)
    d = x.axis(dim)
    cut = lambda y: (lambda z: z if keepdim else z.reshape(z.shape[:d] + z.shape[d + 1:]))(y.slice(d, k - 1, k))
    return [cut(y) for y in ordered(A, x, dim, False)]


# ---- products

def product(A, a, b):
    a, b = promoted(a, b)
    if a.dtype == BOOL:
        raise Unmapped("bool")
    rank1 = (a.dim == 1, b.dim == 1)
    if a.dim == 1 and b.dim == 1:
        return (a * b).sum()
    x = a.reshape((1,) + a.shape) if rank1[0] else a
    y = b.reshape(b.shape + (1,)) if rank1[1] else b
    z = A.call("matmul", x, y)
    if rank1[0]:
        z = z.reshape(z.shape[:-2] + z.shape[-1:])
    return z.reshape(z.shape[:-1]) if rank1[1] else z


for n in ("matmul", "mm", "bmm", "mv", "dot", "vdot"):
    OPS[n] = ((lambda A, a, b, **kw: product(A, a, b)), {})
OPS["__rmatmul__"] = ((lambda A, a, b: product(A, b, a)), {})


def plus(x, y, beta, alpha):
    y = y if alpha == 1 else y * alpha
    return y if beta == 0 else (x if beta == 1 else x * beta) + y


@op("addmm", "addmm.decomposed", "addmv", "baddbmm")
def _(A, x, a, b, beta=1, alpha=1):
    return plus(x, product(A, a, b), beta, alpha)


@op("addbmm")
def _(A, x, a, b, beta=1, alpha=1):
    return plus(x, product(A, a, b).sum([0]), beta, alpha)


@op("addr")
def _(A, x, a, b, beta=1, alpha=1):
    x, a, b = promoted(x, a, b)
    if x.dtype == BOOL:
        raise Unmapped("bool")
    return plus(x, a.reshape(a.shape[0], 1) * b, beta, alpha)


@op("outer", "ger")
def _(A, a, b):
    a, b = promoted(a, b)
    a = a.reshape(a.shape[0], 1)
    return a & b if a.dtype == BOOL else a * b


@op("inner")
def _(A, a, b):
    if a.dim == 0 or b.dim == 0:
        return a * b
    return product(A, a, b if b.dim == 1 else b.reshape(math.prod(b.shape[:-1]), b.shape[-1]).transpose(0, 1)).reshape(a.shape[:-1] + b.shape[:-1])


@op("kron")
def _(A, a, b):
    a, b = promoted(a, b)
    r = max(a.dim, b.dim)
    x, y = [(1,) * (r - t.dim) + t.shape for t in (a, b)]
    a = a.reshape([n for i in x for n in (i, 1)])
    b = b.reshape([n for i in y for n in (1, i)])
    return (a & b if a.dtype == BOOL else a * b).reshape([i * j for i, j in zip(x, y)])


@op("linalg.multi_dot")
def _(A, xs):
    y = xs[0]
    for x in xs[1:]:
        y = product(A, y, x)
    return y


@op("linalg.vecdot")
def _(A, a, b, dim=-1):
    return (a * b).sum([dim]) if a.dim or b.dim else a * b


@op("linalg.cross", "cross")
def _(A, a, b, dim=None):
    if dim is None:
        raise Unmapped("no axis")
    d = max(a.dim, b.dim)
    dims = torch.broadcast_shapes(a.shape, b.shape)
    a, b = a.expand(dims), b.expand(dims)
    dim = dim % d
    at = lambda x, i: x.slice(dim, i, i + 1)
    return cat(A, [at(a, (i + 1) % 3) * at(b, (i + 2) % 3) - at(a, (i + 2) % 3) * at(b, (i + 1) % 3) for i in range(3)], dim)


@op("nn.functional.linear")
def _(A, x, w, bias=None):
    if w.dim == 1:
        y = product(A, x, w)
        return y if bias is None else y + bias
    if x.dim == 0 or not x.is_float:
        raise Unmapped("no linear layer of integers")
    return A.call("linear", x, w, bias)


@op("nn.functional.bilinear")
def _(A, a, b, w, bias=None):
    o, n, m = w.shape
    lead = a.shape[:-1]
    p = a.reshape(lead + (n, 1)) * b.reshape(lead + (1, m))
    y = A.call("linear", p.reshape(lead + (n * m,)), w.reshape(o, n * m), bias)
    return y


# ---- rows by index

def flat_index(A, index, shape, dim):
    """The linear place of x.gather(dim, index)[i] in x: ids of an input would be checked, so they are computed here."""
    strides = [math.prod(shape[i + 1:]) for i in range(len(shape))]
    place = None
    for i in range(len(shape)):
        part = (index.cast(I32) if i == dim else A.iota(index.shape, i)) * strides[i]
        place = part if place is None else place + part
    return place


@op("gather")
def _(A, x, dim, index, sparse_grad=False):
    if x.dim == 0 or index.dim == 0:
        raise Unmapped("a scalar")
    d = x.axis(dim)
    return A.call("gather", x.reshape(math.prod(x.shape)), flat_index(A, index, x.shape, d))


@op("take_along_dim")
def _(A, x, index, dim=None):
    if dim is None or x.dim == 0:
        raise Unmapped("flattened")
    d = x.axis(dim)
    dims = torch.broadcast_shapes(x.shape[:d] + (1,) + x.shape[d + 1:], index.shape[:d] + (1,) + index.shape[d + 1:])
    xs, ix = list(dims), list(dims)
    xs[d], ix[d] = x.shape[d], index.shape[d]
    x, index = x.expand(xs), index.cast(I32).expand(ix)
    index = index.lt(0).where(index + xs[d], index)
    return A.call("gather", x.reshape(math.prod(xs)), flat_index(A, index, xs, d))


@op("index_select")
def _(A, x, dim, index):
    if x.dim == 0:
        raise Unmapped("a scalar")
    d = x.axis(dim)
    rows = x.permute([d] + [i for i in range(x.dim) if i != d])
    y = A.call("gather", rows, (index.reshape(math.prod(index.shape))).cast(I32))
    p = list(range(1, y.dim))
    p.insert(d, 0)
    return y.permute(p)


@op("take")
def _(A, x, index):
    n = math.prod(x.shape)
    i = index.cast(I32)
    return A.call("gather", x.reshape(n), i.lt(0).where(i + n, i))


@op("scatter_add")
def _(A, x, dim, index, src):
    if x.dim == 0 or index.dim == 0:
        raise Unmapped("a scalar")
    d = x.axis(dim)
    for i, n in enumerate(index.shape):
        if src.shape[i] != n:
            src = src.slice(i, 0, n)
    n = math.prod(x.shape)
    place = flat_index(A, index, x.shape, d)
    k = math.prod(place.shape)
    if x.dtype == BOOL:
        raise Unmapped("bool")
    return x + A.call("scatter_add", place.reshape(k), src.reshape(k), n).reshape(x.shape)


@op("index_add")
def _(A, x, dim, index, src, alpha=1):
    if x.dim == 0 or x.dtype == BOOL:
        raise Unmapped("a scalar")
    d = x.axis(dim)
    rows = src.permute([d] + [i for i in range(src.dim) if i != d])
    y = A.call("scatter_add", index.reshape(math.prod(index.shape)).cast(I32), rows, x.shape[d])
    p = list(range(1, y.dim))
    p.insert(d, 0)
    y = y.permute(p)
    return x + (y if alpha == 1 else y * alpha)


@op("nn.functional.embedding")
def _(A, w, index, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    plain((max_norm, None), (scale_grad_by_freq, False), (padding_idx, None))
    return A.call("gather", w, index.cast(I32))


@op("nn.functional.one_hot")
def _(A, x, num_classes=-1):
    if num_classes < 0:
        raise Unmapped("a count that depends on the data")
    y = x.cast(I32).reshape(x.shape + (1,))
    return y.eq(A.iota((num_classes,), 0)).cast(I64)
