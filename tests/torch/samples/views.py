"""PyTorch's views in terms of anneal.h: see pointwise.py."""
import math

import torch
from capi import BOOL, I64, OF, T, Unmapped
from pointwise import OPS, op, promoted


def sizes(args):
    """(2, 3) and ((2, 3),) are the same."""
    return list(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list, torch.Size)) else list(args)


def filled(dims, x):
    """-1 in a shape."""
    dims = list(dims)
    if -1 in dims:
        i, rest = dims.index(-1), math.prod(d for d in dims if d != -1)
        dims[i] = math.prod(x.shape) // rest if rest else 0
    return dims


def widened(x):
    """What a sum of integers and bools is in PyTorch."""
    return x if x.is_float else x.cast(I64)


# ---- views

@op("reshape", "view", "view_copy", "_unsafe_view")
def _(A, x, *dims):
    return x.reshape(filled(sizes(dims), x))


@op("reshape_as", "view_as")
def _(A, x, other):
    return x.reshape(other.shape)


@op("flatten")
def _(A, x, start_dim=0, end_dim=-1):
    if x.dim == 0:
        return x.reshape(1)
    a, b = x.axis(start_dim), x.axis(end_dim)
    return x.reshape(x.shape[:a] + (math.prod(x.shape[a:b + 1]),) + x.shape[b + 1:])


@op("ravel")
def _(A, x):
    return x.reshape(math.prod(x.shape))


@op("unflatten")
def _(A, x, dim, dims):
    d = x.axis(dim)
    part = list(dims)
    if -1 in part:
        rest = math.prod(p for p in part if p != -1)
        part[part.index(-1)] = x.shape[d] // rest
    return x.reshape(x.shape[:d] + tuple(part) + x.shape[d + 1:])


@op("squeeze", "squeeze.multiple", "squeeze_copy")
def _(A, x, dim=None):
    dims = [] if dim is not None and x.dim == 0 else x.axes_of(dim) if dim != () else []
    return x.reshape([n for i, n in enumerate(x.shape) if not (n == 1 and i in dims)])


@op("unsqueeze", "unsqueeze_copy")
def _(A, x, dim):
    d = dim + x.dim + 1 if dim < 0 else dim
    return x.reshape(x.shape[:d] + (1,) + x.shape[d:])


@op("permute", "permute_copy")
def _(A, x, *dims):
    return x.permute(sizes(dims))


@op("transpose", "transpose_copy", "swapaxes", "swapdims")
def _(A, x, i, j):
    return x.transpose(i, j) if x.dim else x


@op("t", "T", "t_copy")
def _(A, x):
    return x.permute(list(range(x.dim))[::-1])


@op("mT", "mH")
def _(A, x):
    return x.transpose(-1, -2)


@op("H")
def _(A, x):
    return x.transpose(0, 1) if x.dim else x


@op("movedim")
def _(A, x, source, destination):
    s, d = x.axes_of(source), x.axes_of(destination)
    p = [i for i in range(x.dim) if i not in s]
    for b, a in sorted(zip(d, s)):
        p.insert(b, a)
    return x.permute(p)


@op("expand", "broadcast_to", "expand_copy")
def _(A, x, *dims):
    dims = sizes(dims)
    own = [1] * (len(dims) - x.dim) + list(x.shape)
    return x.expand([o if d == -1 else d for o, d in zip(own, dims)])


@op("expand_as")
def _(A, x, other):
    return x.expand(other.shape)


@op("broadcast_tensors")
def _(A, *xs):
    dims = torch.broadcast_shapes(*[x.shape for x in xs])
    return [x.expand(dims) for x in xs]


@op("sum_to_size")
def _(A, x, *dims):
    dims = sizes(dims)
    lead = x.dim - len(dims)
    over = [i for i in range(x.dim) if i < lead or (dims[i - lead] == 1 and x.shape[i] != 1)]
    return (x.sum(over, True) if over else x).reshape(dims)


@op("repeat", "tile")
def _(A, x, *dims):
    dims = sizes(dims)
    dims = [1] * (x.dim - len(dims)) + dims
    own = [1] * (len(dims) - x.dim) + list(x.shape)
    wide = x.reshape([n for o in own for n in (1, o)]).expand([n for r, o in zip(dims, own) for n in (r, o)])
    return wide.reshape([r * o for r, o in zip(dims, own)])


@op("flip")
def _(A, x, *given, dims=None):
    return x.flip(sizes(given) if dims is None else dims)


@op("fliplr")
def _(A, x):
    return x.flip([1])


@op("flipud")
def _(A, x):
    return x.flip([0])


@op("roll")
def _(A, x, shifts, dims=None):
    if dims is None or dims == ():
        y = x.reshape(math.prod(x.shape))
        return rolled(A, y, shifts if isinstance(shifts, int) else shifts[0], 0).reshape(x.shape)
    many = lambda y: y if isinstance(y, (tuple, list)) else [y]
    for s, d in zip(many(shifts), many(dims)):
        x = rolled(A, x, s, x.axis(d))
    return x


def rolled(A, x, s, d):
    n = x.shape[d]
    s = s % n if n else 0
    return cat(A, [x.slice(d, n - s, n), x.slice(d, 0, n - s)], d) if s else x


@op("rot90")
def _(A, x, k=1, dims=(0, 1)):
    i, j = x.axes_of(list(dims))
    k %= 4
    if k == 0:
        return x
    if k == 2:
        return x.flip([i, j])
    return x.flip([j]).transpose(i, j) if k == 1 else x.transpose(i, j).flip([j])


@op("narrow", "narrow_copy")
def _(A, x, dim, start, length):
    start = start if isinstance(start, int) else None
    if start is None:
        raise Unmapped("a tensor as start")
    d = x.axis(dim)
    start = start + x.shape[d] if start < 0 else start
    return x.slice(d, start, start + length)


@op("slice")
def _(A, x, dim=0, start=None, end=None, step=1):
    n = x.shape[dim]
    a, b, s = slice(start, end, step).indices(n)
    return x.slice(dim, a, max(a, b), s)


@op("select", "select_copy")
def _(A, x, dim, index):
    d = x.axis(dim)
    i = index + x.shape[d] if index < 0 else index
    return x.slice(d, i, i + 1).reshape(x.shape[:d] + x.shape[d + 1:])


def pieces(x, dim, lengths):
    out, at = [], 0
    for n in lengths:
        out.append(x.slice(dim, at, at + n))
        at += n
    return out


@op("split", "split.list_args", "unsafe_split", "split_with_sizes", "split_with_sizes_copy")
def _(A, x, size, dim=0):
    d = x.axis(dim)
    n = x.shape[d]
    return pieces(x, d, size if isinstance(size, (tuple, list)) else [min(size, n - i) for i in range(0, n, size)] or [0])


@op("chunk", "unsafe_chunk")
def _(A, x, chunks, dim=0):
    d = x.axis(dim)
    n = x.shape[d]
    step = max(1, -(-n // chunks))
    return pieces(x, d, [min(step, n - i) for i in range(0, n, step)])


def at_indices(A, x, how, dim):
    n = x.shape[dim]
    if isinstance(how, int):
        q, r = divmod(n, how)
        return pieces(x, dim, [q + (i < r) for i in range(how)])
    if isinstance(how, T):
        raise Unmapped("a tensor of places")
    cut = [slice(a, b).indices(n)[:2] for a, b in zip([0] + list(how), list(how) + [n])]
    return [x.slice(dim, a, max(a, b)) for a, b in cut]


@op("tensor_split")
def _(A, x, how, dim=0):
    return at_indices(A, x, how, x.axis(dim))


@op("hsplit")
def _(A, x, how):
    return at_indices(A, x, how, 0 if x.dim == 1 else 1)


@op("vsplit")
def _(A, x, how):
    return at_indices(A, x, how, 0)


@op("dsplit")
def _(A, x, how):
    return at_indices(A, x, how, 2)


@op("unbind", "unbind_copy")
def _(A, x, dim=0):
    d = x.axis(dim)
    return [x.slice(d, i, i + 1).reshape(x.shape[:d] + x.shape[d + 1:]) for i in range(x.shape[d])]


def cat(A, xs, dim=0):
    xs = [x for x in xs if not (x.dim == 1 and x.shape[0] == 0 and any(y.dim > 1 for y in xs))]
    xs = promoted(*xs) if len(xs) > 1 else xs
    return A.call("concat", xs, len(xs), dim)


@op("cat", "concat", "concatenate")
def _(A, xs, dim=0, **kw):
    return cat(A, xs, dim)


def stacked(A, xs, dim=0):
    d = dim + xs[0].dim + 1 if dim < 0 else dim
    return cat(A, [x.reshape(x.shape[:d] + (1,) + x.shape[d:]) for x in xs], d)


@op("stack")
def _(A, xs, dim=0):
    return stacked(A, xs, dim)


def at_least(x, n):
    if x.dim >= n:
        return x
    if n == 1:
        return x.reshape(1)
    if n == 2:
        return x.reshape((1, 1) if x.dim == 0 else (1,) + x.shape)
    return x.reshape({0: (1, 1, 1), 1: (1,) + x.shape + (1,), 2: x.shape + (1,)}[x.dim])


for k in (1, 2, 3):
    OPS["atleast_%dd" % k] = ((lambda A, *xs, k=k: [at_least(x, k) for x in (xs[0] if isinstance(xs[0], list) else xs)]), {})


@op("hstack")
def _(A, xs):
    xs = [at_least(x, 1) for x in xs]
    return cat(A, xs, 0 if xs[0].dim == 1 else 1)


@op("vstack")
def _(A, xs):
    return cat(A, [at_least(x, 2) for x in xs], 0)


@op("dstack")
def _(A, xs):
    return cat(A, [at_least(x, 3) for x in xs], 2)


@op("column_stack")
def _(A, xs):
    return cat(A, [x.reshape(math.prod(x.shape), 1) if x.dim < 2 else x for x in xs], 1)


@op("meshgrid.variadic_tensors", "meshgrid.list_of_tensors")
def _(A, *xs, indexing="ij"):
    xs = list(xs[0]) if isinstance(xs[0], (list, tuple)) else list(xs)
    turn = indexing == "xy" and len(xs) > 1
    dims = [math.prod(x.shape) for x in xs]
    out = [x.reshape([dims[i] if j == i else 1 for j in range(len(xs))]).expand(dims) for i, x in enumerate(xs)]
    return [y.transpose(0, 1) for y in out] if turn else out


def rows_and_columns(A, x):
    d = [1] * (x.dim - 2) + list(x.shape[-2:])
    return A.iota(d, x.dim - 2), A.iota(d, x.dim - 1)


@op("tril")
def _(A, x, k=0):
    i, j = rows_and_columns(A, x)
    return (j - i).le(k).where(x, zero(A, x))


@op("triu")
def _(A, x, k=0):
    i, j = rows_and_columns(A, x)
    return (j - i).ge(k).where(x, zero(A, x))


def zero(A, x):
    return A.full(x.dtype, (), 0)


def diagonal(A, x, offset=0, dim1=0, dim2=1):
    """By a reshape: the elements of a matrix [n, m] that lie m + 1 apart."""
    a, b = x.axis(dim1), x.axis(dim2)
    x = x.permute([i for i in range(x.dim) if i not in (a, b)] + [a, b])
    n, m = x.shape[-2:]
    x = x.slice(-1, min(offset, m), m) if offset > 0 else x.slice(-2, min(-offset, n), n)
    n, m = x.shape[-2:]
    k = min(n, m)
    lead = x.shape[:-2]
    if k == 0:
        return x.slice(-2, 0, 0).slice(-1, 0, 0).reshape(*lead, 0)
    x = x.slice(-2, 0, k).slice(-1, 0, k).reshape(*lead, k * k)
    return x.slice(-1, 0, k * k, k + 1)


@op("diagonal", "diagonal_copy")
def _(A, x, offset=0, dim1=0, dim2=1):
    return diagonal(A, x, offset, dim1, dim2)


@op("linalg.diagonal")
def _(A, x, offset=0, dim1=-2, dim2=-1):
    return diagonal(A, x, offset, dim1, dim2)


@op("trace")
def _(A, x):
    return diagonal(A, widened(x)).sum()


def embedded(A, x, offset=0, dim1=-2, dim2=-1):
    n, k = x.shape[-1], abs(offset)
    i, j = A.iota((n + k, n + k), 0), A.iota((n + k, n + k), 1)
    row = x.pad(x.dim - 1, k, 0) if offset > 0 else x.pad(x.dim - 1, 0, k)
    y = (j - i).eq(offset).where(row.reshape(x.shape[:-1] + (1, n + k)), zero(A, x))
    r = y.dim
    a, b = dim1 % r, dim2 % r
    if a > b:
        raise Unmapped("turned axes")
    p = list(range(r - 2))
    p.insert(a, r - 2)
    p.insert(b, r - 1)
    return y.permute(p)


@op("diag_embed")
def _(A, x, offset=0, dim1=-2, dim2=-1):
    return embedded(A, x, offset, dim1, dim2)


@op("diag")
def _(A, x, k=0, diagonal=0):
    k = k or diagonal
    return embedded(A, x, k) if x.dim == 1 else globals()["diagonal"](A, x, k)


@op("diagflat")
def _(A, x, offset=0):
    return embedded(A, x.reshape(math.prod(x.shape)), offset)


@op("constant_pad_nd", "nn.functional.pad.constant")
def _(A, x, pads, value=0, mode="constant"):
    value = value or 0
    for i in range(len(pads) // 2):
        d, (before, after) = x.dim - 1 - i, pads[2 * i: 2 * i + 2]
        n = x.shape[d]
        if before < 0 or after < 0:
            x = x.slice(d, max(-before, 0), n - max(-after, 0))
        x = x.pad(d, max(before, 0), max(after, 0), value)
    return x


def mirrored(A, x, pads, mode):
    for i in range(len(pads) // 2):
        d, (before, after) = x.dim - 1 - i, pads[2 * i: 2 * i + 2]
        n = x.shape[d]
        if before < 0 or after < 0:
            raise Unmapped("negative padding")
        parts = [x]
        if mode == "reflect":
            parts = [x.slice(d, 1, before + 1).flip([d]), x, x.slice(d, n - 1 - after, n - 1).flip([d])]
        elif mode == "circular":
            parts = [x.slice(d, n - before, n), x, x.slice(d, 0, after)]
        elif mode == "replicate":
            wide = lambda y, k: y.expand(y.shape[:d] + (k,) + y.shape[d + 1:])
            parts = [wide(x.slice(d, 0, 1), before), x, wide(x.slice(d, n - 1, n), after)]
        x = cat(A, [p for p in parts], d)
    return x


for m in ("reflect", "replicate", "circular"):
    OPS["nn.functional.pad." + m] = ((lambda A, x, pads, mode=None, value=None, m=m: mirrored(A, x, pads, m)), {})


@op("nn.functional.pixel_shuffle")
def _(A, x, upscale_factor):
    r = upscale_factor
    *lead, c, h, w = x.shape
    n = len(lead)
    y = x.reshape(*lead, c // (r * r), r, r, h, w)
    return y.permute(list(range(n)) + [n, n + 3, n + 1, n + 4, n + 2]).reshape(*lead, c // (r * r), h * r, w * r)


@op("nn.functional.pixel_unshuffle")
def _(A, x, downscale_factor):
    r = downscale_factor
    *lead, c, h, w = x.shape
    n = len(lead)
    y = x.reshape(*lead, c, h // r, r, w // r, r)
    return y.permute(list(range(n)) + [n, n + 2, n + 4, n + 1, n + 3]).reshape(*lead, c * r * r, h // r, w // r)


@op("nn.functional.channel_shuffle")
def _(A, x, groups):
    n, c, *rest = x.shape
    y = x.reshape(n, groups, c // groups, *rest)
    return y.transpose(1, 2).reshape(x.shape)


@op("repeat_interleave")
def _(A, x, repeats, dim=None, **kw):
    if not isinstance(repeats, int):
        raise Unmapped("a tensor of repeats")
    if dim is None:
        x, dim = x.reshape(math.prod(x.shape)), 0
    d = x.axis(dim)
    y = x.reshape(x.shape[:d + 1] + (1,) + x.shape[d + 1:])
    y = y.expand(y.shape[:d + 1] + (repeats,) + y.shape[d + 2:])
    return y.reshape(x.shape[:d] + (x.shape[d] * repeats,) + x.shape[d + 1:])


@op("diff")
def _(A, x, n=1, dim=-1, prepend=None, append=None):
    if n == 0:
        return x
    d = x.axis(dim)
    x = cat(A, [y for y in (prepend, x, append) if y is not None], d) if prepend is not None or append is not None else x
    for _ in range(n):
        k = x.shape[d]
        a, b = x.slice(d, min(1, k), k), x.slice(d, 0, max(k - 1, 0))
        x = a ^ b if x.dtype == BOOL else a - b
    return x


# ---- values without operands

for n, value in (("zeros_like", 0), ("ones_like", 1)):
    OPS[n] = ((lambda A, x, value=value, dtype=None, **kw: A.full(OF[dtype] if dtype else x.dtype, x.shape, value)), {})


@op("full_like")
def _(A, x, value, dtype=None, **kw):
    return A.full(OF[dtype] if dtype else x.dtype, x.shape, value)
