"""PyTorch's elementwise operations and losses in terms of anneal.h: name -> function(A, input, *args, **kwargs).

A function that anneal.h has is called; one that it lacks is written with those it has, as a user of the C API would."""
import math

import torch
from capi import BF16, BOOL, F16, F32, F64, I64, OF, TORCH, T, Unmapped

OPS = {}


def op(*names, **options):
    def add(f):
        for n in names:
            OPS[n] = (f, options)
        return f
    return add


def like(t):
    return torch.empty(t.shape, dtype=TORCH[t.dtype]) if isinstance(t, T) else t


def promoted(*xs):
    """Tensors and numbers in PyTorch's common dtype; at least one is a tensor."""
    t = like(xs[0])
    for x in xs[1:]:
        t = torch.empty((2,) * (1 if any(isinstance(y, T) and y.dim for y in xs) else 0), dtype=torch.result_type(t, like(x)))
    return to_all(t.dtype, xs)


def to_all(dtype, xs):
    A = next(x.A for x in xs if isinstance(x, T))
    if dtype not in OF:
        raise Unmapped(str(dtype))
    return [x.cast(OF[dtype]) if isinstance(x, T) else A.full(OF[dtype], (), x) for x in xs]


def real(x):
    """Integers as float32, as PyTorch's functions of floats take them."""
    return x if x.is_float else x.cast(F32)


def plain(*given):
    """Keyword arguments that must have their defaults."""
    for value, default in given:
        if value != default:
            raise Unmapped("an argument of %r" % (value,))


def direct(name, f=None, floats=True):
    OPS[name] = ((lambda A, x: (f or (lambda x: A.call(name, x)))(real(x) if floats else x)), {})


for n in "sqrt rsqrt exp expm1 log log1p sin cos tanh erf sigmoid atan asin acos".split():
    direct(n)
direct("neg", lambda x: -x, floats=False)
direct("square", lambda x: x.square() if x.dtype != BOOL else x.cast(I64).square(), floats=False)
direct("reciprocal", lambda x: x.recip())
direct("deg2rad", lambda x: x * (math.pi / 180))
direct("rad2deg", lambda x: x * (180 / math.pi))
direct("exp2", lambda x: x.A.full(x.dtype, (), 2).pow(x))
direct("log2", lambda x: x.log() * (1 / math.log(2)))
direct("log10", lambda x: x.log() * (1 / math.log(10)))
direct("tan", lambda x: x.sin() / x.cos())
direct("sinh", lambda x: (x.expm1() - (-x).expm1()) * 0.5)
direct("cosh", lambda x: (x.exp() + (-x).exp()) * 0.5)
direct("erfc", lambda x: 1 - x.erf())
direct("nn.functional.relu", lambda x: x.relu(), floats=False)
direct("nn.functional.silu", lambda x: x.silu())
direct("nn.functional.logsigmoid", lambda x: -((-x).softplus()))
direct("nn.functional.mish", lambda x: x * x.softplus().tanh())


@op("nn.functional.softsign")
def _(A, x):
    if not x.is_float:
        raise Unmapped("wraps in integers")
    return x / (x.abs() + 1)


direct("nn.functional.tanhshrink", lambda x: x - x.tanh())
direct("special.entr", lambda x: (x.eq(0)).where(x.num(0), x.lt(0).where(x.num(-math.inf), -(x * x.log()))))
direct("special.ndtr", lambda x: ((x * (1 / math.sqrt(2))).erf() + 1) * 0.5)


def ceil(x):
    return -((-x).floor())


def trunc(x):
    return x.lt(0).where(ceil(x), x.floor()) if x.is_float else x


def isnan(x):
    return x.ne(x) if x.is_float else x.ne(x)


@op("sign", "sgn")
def _(A, x):
    return x.sign() if x.dtype != BOOL else x


@op("ceil")
def _(A, x):
    return ceil(x) if x.is_float else x


@op("floor")
def _(A, x):
    return x.floor() if x.is_float else x


@op("trunc", "fix")
def _(A, x):
    return trunc(x)


@op("frac")
def _(A, x):
    return x - trunc(x)


@op("round")
def _(A, x):
    return x.round() if x.is_float else x


@op("abs")
def _(A, x):
    return x.abs() if x.dtype != BOOL else x


@op("positive", "clone", "contiguous", "conj", "conj_physical", "resolve_conj", "resolve_neg", "real", "alias_copy")
def _(A, x, **kw):
    return x


@op("isfinite")
def _(A, x):
    return x.isfinite() if x.is_float else x.eq(x)


@op("isnan")
def _(A, x):
    return isnan(x)


def infinite(x, positive, negative):
    if not x.is_float:
        return x.ne(x)
    no = x.ne(x) & x.eq(x)
    return (x.eq(math.inf) if positive else no) | (x.eq(-math.inf) if negative else no)


for name, p, n in (("isinf", 1, 1), ("isposinf", 1, 0), ("isneginf", 0, 1)):
    OPS[name] = ((lambda A, x, p=p, n=n: infinite(x, p, n)), {})


@op("isreal")
def _(A, x):
    return x.eq(x) | x.ne(x)


@op("nan_to_num")
def _(A, x, nan=None, posinf=None, neginf=None):
    if not x.is_float:
        return x
    top = torch.finfo(TORCH[x.dtype]).max
    x = isnan(x).where(x.num(0.0 if nan is None else nan), x)
    x = x.eq(math.inf).where(x.num(top if posinf is None else posinf), x)
    return x.eq(-math.inf).where(x.num(-top if neginf is None else neginf), x)


@op("sinc")
def _(A, x):
    x = real(x)
    p = x * math.pi
    return x.eq(0).where(x.num(1), p.sin() / x.eq(0).where(x.num(1), p))


@op("logit")
def _(A, x, eps=None):
    x = real(x)
    if eps is not None:
        x = A.call("clamp", x, eps, 1 - eps)
    return (x / (1 - x)).log()


# ---- activations

@op("nn.functional.softplus")
def _(A, x, beta=1, threshold=20):
    plain((threshold, 20))
    return (x * beta).softplus() * (1 / beta) if beta != 1 else x.softplus()


@op("nn.functional.gelu")
def _(A, x, approximate="none"):
    return x.gelu() if approximate == "none" else x.gelu_tanh()


@op("nn.functional.hardswish")
def _(A, x):
    return x.le(-3).where(x.num(0), x.ge(3).where(x, x * (x + 3) * (1 / 6)))


@op("nn.functional.hardsigmoid")
def _(A, x):
    if x.dtype == F64:
        raise Unmapped("PyTorch's 1/6 is a float32")
    return x.le(-3).where(x.num(0), x.ge(3).where(x.num(1), (x + 3) * (1 / 6)))


@op("nn.functional.threshold")
def _(A, x, threshold, value, inplace=False):
    return x.le(threshold).where(x.num(value), x)


@op("nn.functional.softshrink")
def _(A, x, lambd=0.5):
    return x.gt(lambd).where(x - lambd, x.lt(-lambd).where(x + lambd, x * 0))


@op("nn.functional.hardshrink")
def _(A, x, lambd=0.5):
    return (x.ge(-lambd) & x.le(lambd)).where(x.num(0), x)


@op("nn.functional.hardtanh")
def _(A, x, min_val=None, max_val=None, inplace=False):
    low, high = (-1 if min_val is None else min_val), (1 if max_val is None else max_val)
    return x.le(low).where(x.num(low), x.ge(high).where(x.num(high), x))


@op("nn.functional.relu6")
def _(A, x, inplace=False):
    return x.le(0).where(x.num(0), x.ge(6).where(x.num(6), x))


@op("nn.functional.leaky_relu")
def _(A, x, negative_slope=0.01, inplace=False):
    return x.gt(0).where(x, x * negative_slope)


@op("nn.functional.elu")
def _(A, x, alpha=1.0, inplace=False):
    return x.gt(0).where(x, x.gt(0).where(x.num(0), x).expm1() * alpha)


@op("nn.functional.celu")
def _(A, x, alpha=1.0, inplace=False):
    return x.gt(0).where(x, (x.gt(0).where(x.num(0), x) * (1 / alpha)).expm1() * alpha)


@op("nn.functional.selu")
def _(A, x, inplace=False):
    scale, alpha = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
    return x.gt(0).where(x * scale, x.gt(0).where(x.num(0), x).expm1() * (alpha * scale))


@op("nn.functional.prelu")
def _(A, x, w):
    if w.dim == 1:
        w = w.reshape([w.shape[0] if i == 1 else 1 for i in range(x.dim)])
    return x.gt(0).where(x, w * x)


@op("nn.functional.glu")
def _(A, x, dim=-1):
    n = x.shape[dim] // 2
    return x.slice(dim, 0, n) * x.slice(dim, n, 2 * n).sigmoid()


@op("clamp", ties="operands")
def _(A, x, min=None, max=None):
    if isinstance(min, T) or isinstance(max, T):
        xs = promoted(*[y for y in (x, min, max) if y is not None])
        x, rest = xs[0], xs[1:]
        if min is not None:
            x = between(x, rest.pop(0), True)
        return between(x, rest.pop(0), False) if max is not None else x
    if not x.is_float and any(isinstance(y, float) and y != int(y) for y in (min, max)):
        x = x.cast(F32)
    low = min if min is not None else -math.inf if x.is_float else lowest(x)
    high = max if max is not None else math.inf if x.is_float else highest(x)
    return A.call("clamp", x, low, high)


def lowest(x):
    return torch.iinfo(TORCH[x.dtype]).min


def highest(x):
    return torch.iinfo(TORCH[x.dtype]).max


def between(x, bound, low):
    if x.dtype == BOOL:
        return x | bound if low else x & bound
    inside = bound.le(x) if low else x.le(bound)
    return inside.where(x, (isnan(x) | isnan(bound)).where(x.A.call("detach", x + bound), bound) if x.is_float else bound)


@op("clamp_min")
def _(A, x, low):
    return OPS["clamp"][0](A, x, min=low)


@op("clamp_max")
def _(A, x, high):
    return OPS["clamp"][0](A, x, max=high)


# ---- two operands

def scaled(x, alpha):
    return x if alpha == 1 else x * alpha


@op("add", "__radd__")
def _(A, a, b, alpha=1):
    a, b = promoted(a, b)
    return a | b if a.dtype == BOOL and alpha else a + scaled(b, alpha)


@op("sub")
def _(A, a, b, alpha=1):
    a, b = promoted(a, b)
    return a - scaled(b, alpha)


@op("rsub", "__rsub__")
def _(A, a, b, alpha=1):
    a, b = promoted(a, b)
    return b - scaled(a, alpha)


@op("mul", "__rmul__")
def _(A, a, b):
    a, b = promoted(a, b)
    return a & b if a.dtype == BOOL else a * b


@op("true_divide", "div.no_rounding_mode")
def _(A, a, b, rounding_mode=None):
    a, b = promoted(a, b)
    return real(a) / real(b)


@op("__rdiv__")
def _(A, a, b):
    a, b = promoted(a, b)
    return real(a).recip() * real(b)


def wide_enough(x):
    if x.dtype in (BF16, F16):
        raise Unmapped("the quotient is rounded to 16 bits before it is to an integer")
    return x


@op("div.floor_rounding", "floor_divide")
def _(A, a, b, rounding_mode=None):
    a, b = promoted(a, b)
    if a.dtype == BOOL:
        raise Unmapped("bool")
    return (wide_enough(a) / b).floor() if a.is_float else a.idiv(b)


@op("div.trunc_rounding")
def _(A, a, b, rounding_mode=None):
    a, b = promoted(a, b)
    if a.is_float:
        return trunc(wide_enough(a) / b)
    q = a.idiv(b)
    return ((q * b).ne(a) & (a.lt(0) ^ b.lt(0))).where(q + 1, q)


@op("fmod")
def _(A, a, b):
    a, b = promoted(a, b)
    if a.is_float:
        raise Unmapped("no floating fmod")
    r = a.imod(b)
    return (r.ne(0) & (a.lt(0) ^ b.lt(0))).where(r - b, r)


@op("remainder")
def _(A, a, b):
    a, b = promoted(a, b)
    if a.is_float:
        raise Unmapped("no floating remainder")
    return a.imod(b)


@op("__rmod__")
def _(A, a, b):
    a, b = promoted(a, b)
    if a.is_float:
        raise Unmapped("no floating remainder")
    return b.imod(a)


@op("pow")
def _(A, a, b):
    a, b = promoted(a, b)
    if not a.is_float:
        raise Unmapped("no power of integers")
    return a.pow(b)


@op("__rpow__")
def _(A, a, b):
    if not a.is_float and not (isinstance(b, T) and b.is_float):
        raise Unmapped("no power of integers")
    return OPS["pow"][0](A, b if isinstance(b, T) else real(a).num(b), real(a))


@op("float_power")
def _(A, a, b):
    a, b = to_all(torch.float64, (a, b))
    return a.pow(b)


@op("atan2")
def _(A, a, b):
    a, b = promoted(a, b)
    return real(a).atan2(real(b))


@op("maximum", "max.binary")
def _(A, a, b):
    a, b = promoted(a, b)
    return a | b if a.dtype == BOOL else a.maximum(b)


@op("minimum", "min.binary")
def _(A, a, b):
    a, b = promoted(a, b)
    return a & b if a.dtype == BOOL else a.minimum(b)


@op("fmax")
def _(A, a, b):
    a, b = promoted(a, b)
    if a.dtype == BOOL:
        return a | b
    return (a.ge(b) | isnan(b)).where(a, b)


@op("fmin")
def _(A, a, b):
    a, b = promoted(a, b)
    if a.dtype == BOOL:
        return a & b
    return (a.le(b) | isnan(b)).where(a, b)


for n in "eq ne lt le gt ge".split():
    def compare(A, a, b, n=n):
        a, b = promoted(a, b)
        if a.dtype == BOOL and n not in ("eq", "ne"):
            a, b = a.cast(F32), b.cast(F32)
        return getattr(a, n)(b)
    OPS[n] = (compare, {})


def truth(x):
    return x if x.dtype == BOOL else x.cast(BOOL)


for n, f in (("logical_and", lambda a, b: a & b), ("logical_or", lambda a, b: a | b), ("logical_xor", lambda a, b: a ^ b)):
    OPS[n] = ((lambda A, a, b, f=f: f(truth(a), truth(b))), {})


@op("logical_not")
def _(A, x):
    return ~truth(x)


@op("bitwise_not")
def _(A, x):
    return ~x if x.dtype == BOOL else x ^ x.num(-1)


for n, f in (("bitwise_and", lambda a, b: a & b), ("__rand__", lambda a, b: a & b), ("bitwise_or", lambda a, b: a | b),
             ("__ror__", lambda a, b: a | b), ("bitwise_xor", lambda a, b: a ^ b), ("__rxor__", lambda a, b: a ^ b)):
    OPS[n] = ((lambda A, a, b, f=f: f(*promoted(a, b))), {})


@op("xlogy")
def _(A, a, b):
    a, b = promoted(a, b)
    a, b = real(a), real(b)
    return isnan(b).where(b, a.eq(0).where(a.num(0), a * b.log()))


@op("special.xlog1py")
def _(A, a, b):
    a, b = promoted(a, b)
    a, b = real(a), real(b)
    return isnan(b).where(b, a.eq(0).where(a.num(0), a * b.log1p()))


@op("hypot")
def _(A, a, b):
    raise Unmapped("no hypot")


@op("logaddexp")
def _(A, a, b):
    a, b = promoted(a, b)
    dims = torch.broadcast_shapes(a.shape, b.shape)
    both = [real(t).expand(dims).reshape(dims + (1,)) for t in (a, b)]
    return A.call("logsumexp", A.call("concat", both, 2, len(dims)), len(dims), False)


@op("heaviside")
def _(A, a, b):
    if a.dtype == BOOL:
        raise Unmapped("bool")
    return a.eq(0).where(b, (isnan(a) | a.lt(0)).where(a.num(0), a.num(1)))


@op("isclose")
def _(A, a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    if not a.is_float or rtol != 1e-5:
        raise Unmapped("float tolerances only")
    near = ((a - b).abs().le(atol + rtol * b.abs())) & b.isfinite() & a.isfinite()
    same = a.eq(b) | near
    return same | (isnan(a) & isnan(b)) if equal_nan else same


@op("addcmul")
def _(A, x, a, b, value=1):
    return x + scaled(a * b, value)


@op("addcdiv")
def _(A, x, a, b, value=1):
    return x + scaled(a / b, value)


@op("lerp")
def _(A, a, b, weight):
    w = weight if isinstance(weight, T) else a.num(weight)
    return w.abs().lt(0.5).where(a + w * (b - a), b - (b - a) * (1 - w))


@op("where")
def _(A, a, cond, b, **kw):
    a, b = promoted(a, b)
    return cond.where(a, b)


@op("masked_fill")
def _(A, x, mask, value):
    value = value.cast(x.dtype) if isinstance(value, T) else x.num(value) if x.dtype != BOOL else A.full(BOOL, (), value)
    return mask.where(value, x)


# ---- casts

for n, t in (("float", torch.float32), ("half", torch.float16), ("bfloat16", torch.bfloat16), ("double", torch.float64),
             ("int", torch.int32), ("long", torch.int64), ("byte", torch.uint8), ("bool", torch.bool)):
    OPS[n] = ((lambda A, x, t=t, **kw: x.cast(OF[t])), {"cast": t})


# ---- losses

def reduced(y, reduction="mean", size_average=None, reduce=None):
    plain((size_average, None), (reduce, None))
    return y if reduction == "none" else y.mean() if reduction == "mean" else y.sum()


@op("nn.functional.mse_loss")
def _(A, x, y, weight=None, **kw):
    plain((weight, None))
    d = x - y
    return reduced(d * d, **kw)


@op("nn.functional.l1_loss")
def _(A, x, y, weight=None, **kw):
    plain((weight, None))
    return reduced((x - y).abs(), **kw)


@op("nn.functional.smooth_l1_loss")
def _(A, x, y, beta=1.0, **kw):
    d = (x - y).abs()
    if beta == 0:
        return reduced(d, **kw)
    return reduced(d.lt(beta).where(d * d * (0.5 / beta), d - 0.5 * beta), **kw)


@op("nn.functional.huber_loss")
def _(A, x, y, delta=1.0, weight=None, **kw):
    plain((weight, None))
    d = (x - y).abs()
    return reduced(d.lt(delta).where(d * d * 0.5, (d - 0.5 * delta) * delta), **kw)


@op("nn.functional.binary_cross_entropy_with_logits")
def _(A, x, y, weight=None, pos_weight=None, **kw):
    n = (-x).softplus()
    loss = (1 - y) * x + (n if pos_weight is None else n * ((pos_weight - 1) * y + 1))
    return reduced(loss if weight is None else loss * weight, **kw)


@op("nn.functional.binary_cross_entropy")
def _(A, x, y, weight=None, **kw):
    loss = -(y * x.log().maximum(-100) + (1 - y) * (1 - x).log().maximum(-100))
    return reduced(loss if weight is None else loss * weight, **kw)


@op("nn.functional.soft_margin_loss")
def _(A, x, y, **kw):
    return reduced((-(y * x)).softplus(), **kw)


@op("nn.functional.hinge_embedding_loss")
def _(A, x, y, margin=1.0, **kw):
    zero = wide_enough(x).num(0)
    return reduced(y.ne(1).where((margin - x).relu(), zero) + y.ne(-1).where(x, zero), **kw)


@op("nn.functional.margin_ranking_loss")
def _(A, a, b, y, margin=0.0, **kw):
    if not a.is_float:
        raise Unmapped("integers")
    return reduced(A.call("clamp", -(y * (a - b)) + margin, 0, math.inf), **kw)


@op("nn.functional.poisson_nll_loss")
def _(A, x, y, log_input=True, full=False, eps=1e-8, **kw):
    y = y.cast(x.dtype)
    loss = x.exp() - y * x if log_input else x - y * (x + eps).log()
    if full:
        s = y * y.log() - y + 0.5 * (y * (2 * math.pi)).log()
        loss = loss + y.gt(1).where(s, y.num(0))
    return reduced(loss, **kw)


@op("nn.functional.gaussian_nll_loss", room="inputs")
def _(A, x, y, var, full=False, eps=1e-6, reduction="mean"):
    if not isinstance(var, T):
        raise Unmapped("a number as variance")
    if var.dim == x.dim - 1:
        var = var.reshape(*var.shape, 1)
    v = var + A.call("detach", A.call("clamp", var, eps, math.inf) - var)
    d = x - y
    loss = (v.log() + d * d / v) * 0.5
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


@op("nn.functional.kl_div")
def _(A, x, y, log_target=False, reduction="mean", **kw):
    loss = y.exp() * (y - x) if log_target else y.eq(0).where(y.num(0), y * y.log()) - y * x
    if reduction == "batchmean":
        return loss.sum() * (1 / x.shape[0])
    return reduced(loss, reduction, **kw)
