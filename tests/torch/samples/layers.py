"""PyTorch's layers, windows and matrix functions in terms of anneal.h: see pointwise.py."""
import math

import torch
from capi import F32, F64, I32, TORCH, Unmapped, Window
from pointwise import OPS, op, plain
from reductions import norm, product


# ---- layers

@op("nn.functional.layer_norm")
def _(A, x, dims, weight=None, bias=None, eps=1e-5):
    k = math.prod(dims)
    lead = x.shape[:x.dim - len(dims)]
    flat = lambda t: t if t is None else t.reshape(k)
    return A.call("layer_norm", x.reshape(lead + (k,)), flat(weight), flat(bias), eps).reshape(x.shape)


@op("nn.functional.rms_norm")
def _(A, x, dims, weight=None, eps=None):
    k = math.prod(dims)
    lead = x.shape[:x.dim - len(dims)]
    eps = torch.finfo(TORCH[x.dtype] if x.dtype in (F32, F64) else torch.float32).eps if eps is None else eps
    return A.call("rms_norm", x.reshape(lead + (k,)), weight if weight is None else weight.reshape(k), eps).reshape(x.shape)


def channels_last(x):
    return x.permute([0] + list(range(2, x.dim)) + [1])


def channels_first(x):
    return x.permute([0, x.dim - 1] + list(range(1, x.dim - 1)))


@op("nn.functional.batch_norm", "nn.functional.batch_norm.without_cudnn")
def _(A, x, mean=None, var=None, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    c = x.shape[1]
    if mean is None:
        mean = var = A.full(F64 if x.dtype == F64 else F32, (c,), 1)
    m, v = A.state(mean), A.state(var)
    return channels_first(A.call("batch_norm", channels_last(x), weight, bias, m, v, momentum, eps, training))


@op("nn.functional.group_norm")
def _(A, x, groups, weight=None, bias=None, eps=1e-5):
    n, c, *rest = x.shape
    wide = F64 if x.dtype == F64 else F32
    y = A.call("layer_norm", x.cast(wide).reshape(n, groups, (c // groups) * math.prod(rest)), None, None, eps).reshape(x.shape)
    view = lambda t: t.cast(wide).reshape([1, c] + [1] * len(rest))
    y = y if weight is None else y * view(weight)
    return (y if bias is None else y + view(bias)).cast(x.dtype)


@op("nn.functional.instance_norm")
def _(A, x, mean=None, var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5):
    if mean is not None:
        raise Unmapped("running statistics")
    return OPS["nn.functional.group_norm"][0](A, x, x.shape[1], weight, bias, eps)


@op("nn.functional.normalize")
def _(A, x, p=2.0, dim=1, eps=1e-12, out=None):
    n = norm(x, float(p), [x.axis(dim)] if x.dim else None, True)
    return x / A.call("clamp", n, eps, math.inf)


@op("nn.functional.cosine_similarity")
def _(A, a, b, dim=1, eps=1e-8):
    if a.dim == 0 or b.dim == 0:
        raise Unmapped("scalars")
    dims = torch.broadcast_shapes(a.shape, b.shape)
    a, b = a.expand(dims), b.expand(dims)
    n = [A.call("clamp", norm(x, 2.0, [dim], True), eps, math.inf) for x in (a, b)]
    return ((a / n[0]) * (b / n[1])).sum([dim])


@op("nn.functional.pairwise_distance")
def _(A, a, b, p=2.0, eps=1e-6, keepdim=False):
    return norm(a - b + eps, float(p), [-1], keepdim)


@op("dist")
def _(A, a, b, p=2):
    return norm(a - b, float(p), None, False)


@op("nn.functional.cross_entropy", "nn.functional.nll_loss")
def _(A, x, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    plain((weight, None), (label_smoothing, 0.0), (size_average, None), (reduce, None))
    if target.is_float:
        raise Unmapped("probabilities as targets")
    if x.dim == 1:
        rows = x
    else:
        rows = channels_last(x) if x.dim > 2 else x
    t = target.cast(I32)
    keep = t.ne(ignore_index)
    loss = A.call("cross_entropy", rows, keep.where(t, t.num(-1)))
    if reduction == "none":
        return loss.cast(x.dtype)
    if reduction == "sum":
        return loss.sum().cast(x.dtype)
    return (loss.sum() / keep.cast(loss.dtype).sum()).cast(x.dtype)


@op("nn.functional.nll_loss")
def _(A, x, target, **kw):
    raise Unmapped("takes probabilities; an_cross_entropy takes logits")


@op("nn.functional.scaled_dot_product_attention", room="inputs")
def _(A, q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    plain((attn_mask, None), (dropout_p, 0.0), (enable_gqa, False))
    if q.shape[:-2] != k.shape[:-2] or q.shape[-1] != v.shape[-1] or is_causal and q.shape[-2] != k.shape[-2]:
        raise Unmapped("batches that broadcast, values of another width, or PyTorch's other corner of causal")
    four = lambda x: x.reshape((1,) * (4 - x.dim) + x.shape)
    y = A.call("attention", four(q), four(k), four(v), 0.0 if scale is None else float(scale), is_causal, 0.0, None)
    return y.reshape(q.shape)


def pair(x, n=2):
    return list(x) if isinstance(x, (tuple, list)) else [x] * n


def padding_of(padding, kernel, dilation):
    if padding == "valid":
        return [0] * len(kernel)
    if padding == "same":
        total = [d * (k - 1) for k, d in zip(kernel, dilation)]
        if any(t % 2 for t in total):
            raise Unmapped("uneven padding")
        return [t // 2 for t in total]
    return pair(padding, len(kernel))


@op("nn.functional.conv2d", "nn.functional.conv1d")
def _(A, x, w, bias=None, stride=1, padding=0, dilation=1, groups=1):
    n = w.dim - 2
    single = x.dim == w.dim - 1
    x = x.reshape((1,) + x.shape) if single else x
    stride, dilation = pair(stride, n), pair(dilation, n)
    padding = padding_of(padding, w.shape[2:], dilation)
    if n == 1:
        x, w = x.reshape(x.shape[:2] + (1,) + x.shape[2:]), w.reshape(w.shape[:2] + (1,) + w.shape[2:])
        stride, dilation, padding = [1] + stride, [1] + dilation, [0] + padding
    s = Window(0, 0, *stride, *padding, *dilation, groups)
    y = channels_first(A.call("conv2d", channels_last(x), channels_last(w), bias, s))
    if n == 1:
        y = y.reshape(y.shape[:2] + y.shape[3:])
    return y.reshape(y.shape[1:]) if single else y


def pool(name, n):
    def f(A, x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, count_include_pad=True, divisor_override=None, return_indices=False):
        plain((ceil_mode, False), (divisor_override, None), (return_indices, False))
        kernel = pair(kernel_size, n)
        stride = kernel if stride is None or stride == () or stride == [] else pair(stride, n)
        padding, dilation = pair(padding, n), pair(dilation, n)
        if not count_include_pad and any(padding):
            raise Unmapped("padding that does not count")
        single = x.dim == n + 1
        x = x.reshape((1,) + x.shape) if single else x
        if n == 1:
            x = x.reshape(x.shape[:2] + (1,) + x.shape[2:])
            kernel, stride, padding, dilation = [1] + kernel, [1] + stride, [0] + padding, [1] + dilation
        y = channels_first(A.call(name, channels_last(x), Window(*kernel, *stride, *padding, *dilation, 0)))
        if n == 1:
            y = y.reshape(y.shape[:2] + y.shape[3:])
        return y.reshape(y.shape[1:]) if single else y
    return f


OPS["nn.functional.max_pool1d"] = (pool("max_pool", 1), {})
OPS["nn.functional.max_pool2d"] = (pool("max_pool", 2), {})
avg = lambda n: (lambda A, x, k, s=None, p=0, c=False, inc=True, div=None, **kw: pool("avg_pool", n)(
    A, x, kw.pop("kernel_size", k), kw.pop("stride", s), kw.pop("padding", p), 1, kw.pop("ceil_mode", c),
    kw.pop("count_include_pad", inc), kw.pop("divisor_override", div)))
OPS["nn.functional.avg_pool1d"] = (avg(1), {})
OPS["nn.functional.avg_pool2d"] = (avg(2), {})


@op("nn.functional.interpolate.nearest", "nn.functional.upsample_nearest")
def _(A, x, size=None, scale_factor=None, mode="nearest", **kw):
    n = x.dim - 2
    if scale_factor is not None or size is None:
        raise Unmapped("a factor")
    for i, m in enumerate(pair(size, n)):
        k = x.shape[2 + i]
        if m % k:
            raise Unmapped("no multiple")
        x = OPS["repeat_interleave"][0](A, x, m // k, 2 + i)
    return x


@op("nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d")
def _(A, x, p=0.5, training=True, inplace=False):
    if training and p not in (0.0,):
        raise Unmapped("another random stream")
    return x


# ---- matrices

def identity(A, n, dtype):
    return A.iota((n, n), 0).eq(A.iota((n, n), 1)).cast(dtype)


def tall(x):
    if x.shape[-2] < x.shape[-1]:
        raise Unmapped("a wide matrix: see an_qr and an_svd")
    return x


@op("linalg.cholesky", "cholesky", matrix=True)
def _(A, x, upper=False):
    y = A.call("cholesky", x)
    return y.transpose(-1, -2) if upper else y


@op("linalg.qr", "qr", matrix=True, post=lambda o: qr_signs(*o))
def _(A, x, mode="reduced", some=None):
    if mode != "reduced" or some is False:
        raise Unmapped("another mode")
    if x.shape[-1] == 0:
        raise Unmapped("no columns")
    return A.call("qr", tall(x), None)


def qr_signs(q, r):
    """anneal's diagonal is not negative, LAPACK's is free."""
    s = torch.sign(torch.diagonal(r, dim1=-2, dim2=-1))
    s = torch.where(s == 0, torch.ones_like(s), s)
    return q * s.unsqueeze(-2), r * s.unsqueeze(-1)


@op("linalg.eigvalsh", matrix=True)
def _(A, x, UPLO="L"):
    return A.call("eigh", symmetric(x, UPLO), None)[0]


def symmetric(x, UPLO):
    """PyTorch reads one triangle, anneal both; the samples for the lower one are symmetric."""
    plain((UPLO, "L"))
    return x


@op("linalg.eigh", matrix=True, post=lambda o: (o[0], o[1] * o[1]))
def _(A, x, UPLO="L"):
    w, v = A.call("eigh", symmetric(x, UPLO), None)
    return w, v * v


@op("linalg.svdvals", matrix=True)
def _(A, x, **kw):
    x = x if x.shape[-2] >= x.shape[-1] else x.transpose(-1, -2)
    return A.call("svd", x, None, None)[1]


@op("linalg.svd", "svd", matrix=True, post=lambda o: (o[0] * o[0], o[1], o[2] * o[2]))
def _(A, x, full_matrices=None, some=True, compute_uv=True, **kw):
    if full_matrices or not some or not compute_uv:
        raise Unmapped("other factors")
    u, s, v = A.call("svd", tall(x), None, None)
    return u * u, s, (v * v).transpose(-1, -2) if full_matrices is not None else v * v


@op("linalg.solve", matrix=True)
def _(A, a, b, left=True):
    if not left:
        raise Unmapped("from the right")
    vector = b.dim == 1 or b.dim == a.dim - 1 and b.shape == a.shape[:-1]
    b = b.reshape(b.shape + (1,)) if vector else b
    lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    y = A.call("solve", a.expand(lead + a.shape[-2:]), b.expand(lead + b.shape[-2:]))
    return y.reshape(y.shape[:-1]) if vector else y


@op("linalg.inv", "inverse", matrix=True)
def _(A, x):
    return A.call("solve", x, identity(A, x.shape[-1], x.dtype).expand(x.shape))


@op("linalg.solve_triangular", matrix=True)
def _(A, t, b, upper=None, left=True, unitriangular=False):
    plain((unitriangular, False))
    lead = torch.broadcast_shapes(t.shape[:-2], b.shape[:-2])
    t, b = t.expand(lead + t.shape[-2:]), b.expand(lead + b.shape[-2:])
    if not left:
        return A.call("trisolve", t, b.transpose(-1, -2), upper, True).transpose(-1, -2)
    return A.call("trisolve", t, b, upper, False)


@op("triangular_solve", matrix=True, post=lambda o: o[0])
def _(A, b, t, upper=True, transpose=False, unitriangular=False):
    plain((unitriangular, False))
    lead = torch.broadcast_shapes(t.shape[:-2], b.shape[:-2])
    return A.call("trisolve", t.expand(lead + t.shape[-2:]), b.expand(lead + b.shape[-2:]), upper, transpose)


@op("cholesky_solve", matrix=True, grad=False)
def _(A, b, L, upper=False):
    lead = torch.broadcast_shapes(L.shape[:-2], b.shape[:-2])
    L, b = L.expand(lead + L.shape[-2:]), b.expand(lead + b.shape[-2:])
    y = A.call("trisolve", L, b, upper, upper)
    return A.call("trisolve", L, y, upper, not upper)


@op("cholesky_inverse", matrix=True, grad=False)
def _(A, L, upper=False):
    return OPS["cholesky_solve"][0](A, identity(A, L.shape[-1], L.dtype).expand(L.shape), L, upper)


@op("linalg.matrix_power", matrix=True)
def _(A, x, n):
    if n < 0:
        x, n = OPS["linalg.inv"][0](A, x), -n
    if n == 0:
        return identity(A, x.shape[-1], x.dtype).expand(x.shape)
    y = x
    for _ in range(n - 1):
        y = product(A, y, x)
    return y


# A formula of several operations has no corners of its own: PyTorch's own function is another formula, and differs at
# infinities and NaN as two users' formulas would. Only ordinary samples are judged.
for n in """nn.functional.elu nn.functional.celu nn.functional.selu nn.functional.hardswish nn.functional.hardsigmoid
        nn.functional.softshrink nn.functional.hardshrink nn.functional.hardtanh lerp nn.functional.smooth_l1_loss
        nn.functional.huber_loss nn.functional.binary_cross_entropy nn.functional.hinge_embedding_loss nn.functional.kl_div
        nn.functional.poisson_nll_loss nn.functional.gaussian_nll_loss logit special.entr xlogy special.xlog1py sinc
        nn.functional.bilinear logaddexp nn.functional.normalize nn.functional.cosine_similarity dist
        nn.functional.pairwise_distance nn.functional.margin_ranking_loss div.floor_rounding floor_divide
        div.trunc_rounding var var.unbiased std std.unbiased var_mean var_mean.unbiased std_mean std_mean.unbiased norm
        norm.inf norm.fro linalg.vector_norm nn.functional.prelu nn.functional.soft_margin_loss nn.functional.threshold tan sinh cosh""".split():
    if n in OPS:
        OPS[n][1]["corners"] = False
# Places in these get the gradient of one of equal elements; an_max shares it, as torch.amax does.
for n in ("max.reduction_no_dim", "min.reduction_no_dim", "max.reduction_with_dim", "min.reduction_with_dim", "aminmax",
          "sort", "msort", "topk", "kthvalue", "norm.inf"):
    OPS[n][1]["ties"] = False
