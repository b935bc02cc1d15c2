#!/usr/bin/env python3
"""Archives of torch.export with what PyTorch computes for them, for tests/import/test_goldens.c.

    python tools/pt2_goldens.py DIR              one archive a case: NAME.pt2, and NAME.safetensors with
                                                 in.K, out.K, ct.K (what results are multiplied by), din.K, dp.NAME
    python tools/pt2_goldens.py DIR --only WORD  those whose name has the word
    python tools/pt2_goldens.py tests/import/goldens --fixtures
                                                 a few large ones, without samples and stack traces: the committed set

Everything is float64 and drawn from a fixed seed. PyTorch is needed here and nowhere else.
"""
import argparse, os, sys, warnings
import torch, torch.nn as nn, torch.nn.functional as F
from pt2_strip import strip
from safetensors.torch import save_file

warnings.filterwarnings("ignore")
torch.set_default_dtype(torch.float64)


def _written(f, w):
    """As Fourier neural operators write the frequencies that they keep."""
    o = torch.zeros(2, 4, 5, dtype=f.dtype)
    o[:, :3] = torch.einsum("bfi,io->bfo", f[:, :3], w)
    return o.mul_(0.5)


def _complex(layer, x, y, z):
    """Rotary positions as Llama's own code has them, spectral layers, and every way into and out of complex numbers."""
    def parts(c):
        return torch.view_as_real(c)

    angles = torch.outer(torch.arange(6.0), torch.tensor([1.0, 0.1]))
    turn = torch.polar(torch.ones_like(angles), angles)
    a, c, w = torch.view_as_complex(x.reshape(2, 6, 2, 2)), torch.complex(x, y), torch.view_as_complex(layer.weight.view(4, 5, 2))
    half = torch.fft.rfft2(z[0], norm="ortho")
    return (parts(a * turn).flatten(2), parts(c * c.conj() + c / torch.complex(y, x * x + 1)), c.abs() + c.angle(), parts((c * 2.5 / 3)[:, ::2].transpose(0, 1)), parts(torch.cat([c, x + c * y], 1).sum(1)),
            parts(c @ w), parts(torch.einsum("bij,jk->bki", c, w)), parts(torch.fft.fft(x, dim=1)), parts(torch.fft.ifft(c, n=7, norm="ortho")), torch.fft.fftn(z, dim=(1, 2)).real, torch.fft.ifft2(torch.complex(x, y), norm="forward").imag,
            parts(torch.fft.rfft(z, dim=1, n=4)), torch.fft.irfft(torch.fft.rfft(z, dim=1), n=5, dim=1), torch.fft.irfft(torch.complex(x, y), norm="ortho"), torch.fft.irfft2(half * half.abs(), s=(5, 7), norm="ortho"), torch.fft.irfftn(torch.fft.rfftn(z) * 2), torch.fft.fftfreq(5, 0.5) * z[0, :, 0] + torch.fft.rfftfreq(8),
            parts(torch.fft.fftshift(c, dim=1) - torch.fft.ifftshift(c)), torch.fft.fftshift(z), torch.exp(c * 0.3).real, z.angle(), torch.where(x > 0, c, c.conj()).imag, parts(c.mean(1).unsqueeze(1).expand(2, 3, 4)), parts(-c.detach() + c[:, :1] - 2), torch.fft.irfft(_written(torch.fft.rfft(x, dim=1), w), dim=1))


def _complex_views(x, y):
    """Views and integers beside complex numbers: none has a part of its own that would be read as both."""
    def parts(c):
        return torch.view_as_real(c)

    c, whole, n = torch.complex(x, y), x * 1, (x.detach() * 3).int()
    row = whole[0]
    whole.mul_(3)  # row is read only as an operand of complex numbers
    turned, kept, first = c * 1, c * 1, c * 1
    turned.conj()[:, 0].mul_(torch.complex(y, x)[:, 0])
    copy = kept.conj().resolve_conj()
    copy.mul_(2)
    same = first.resolve_conj()
    same[1].mul_(torch.complex(y, x)[1])
    zero = torch.complex(x * (x > 0), y * (y > 0))
    written = c * 1
    written[0] = n[0]
    return (parts(c + row), parts(torch.cat([c[0], row])), parts(turned), parts(kept), parts(copy), parts(first), parts(c + n), parts(n - c), parts(c + (x > 0)), parts(torch.add(c, n, alpha=3)), parts(torch.cat([n, c], 1)),
            parts(torch.stack([c, n])), parts(torch.where(x > 0, c, n)), parts(torch.where(x > y, c, c.conj())), parts(written), zero.bool(), parts(c[:, [0, 2, 2]]))


class Cases(nn.Module):
    """One result a function, all over the same inputs."""

    def __init__(self, fns):
        super().__init__()
        self.fns = fns

    def forward(self, *xs):
        return tuple(f(*xs) for f in self.fns)


def write(folder, name, module, inputs, stripped=False, dynamic=None):
    module = module.double()
    inputs = tuple(x.double() if x.is_floating_point() else x for x in inputs)
    try:
        program = torch.export.export(module, inputs, strict=False, dynamic_shapes=dynamic)
    except Exception as e:
        print(f"{name}: not exported: {str(e).splitlines()[0][:120]}", file=sys.stderr)
        return False
    path = os.path.join(folder, name + ".pt2")
    torch.export.save(program, path)
    if stripped:
        strip(path)
    leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    # grads through clones, so that an operation in place may write its input
    out = module(*[x.clone() if x.is_floating_point() else x for x in leaves])
    out = out if isinstance(out, (tuple, list)) else (out,)
    made = torch.Generator().manual_seed(7)
    tensors, loss = {}, 0
    for k, x in enumerate(inputs):
        tensors[f"in.{k}"] = x.to(torch.int32) if x.dtype == torch.int64 else x
    for k, y in enumerate(out):
        if y is None:
            continue
        tensors[f"out.{k}"] = y.detach().to(torch.int32) if y.dtype == torch.int64 else y.detach()
        if y.is_floating_point() and y.requires_grad:
            tensors[f"ct.{k}"] = torch.randn(y.shape, generator=made)
            loss = loss + (y * tensors[f"ct.{k}"]).sum()
    if torch.is_tensor(loss):
        loss.backward()
    for k, x in enumerate(leaves):
        if x.is_floating_point() and x.grad is not None:
            tensors[f"din.{k}"] = x.grad
    for k, p in module.named_parameters():
        if p.grad is not None:
            tensors["dp." + k] = p.grad
    for k, b in module.named_buffers():
        tensors["buffer." + k] = b.to(torch.int32) if b.dtype == torch.int64 else b
    save_file({k: v.contiguous().clone() for k, v in tensors.items()}, os.path.join(folder, name + ".safetensors"))
    return True


def draw(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def ints(high, *shape):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(3))


# Values where implementations part: corners of activations, zeros, ties, halves.
CORNERS = torch.tensor([-7., -6, -3, -2.5, -1, -0.5, 0, 0.5, 1, 2.5, 3, 6, 7, 25, 1e-3, -1e-3, 0.1, -0.3, 1.7, -21])

UNARY = {f: (lambda f: lambda x: getattr(torch, f)(x))(f) for f in
         "neg abs sign floor ceil round trunc exp exp2 expm1 sin cos tanh erf erfc sigmoid square sinh cosh atan isfinite isnan isinf".split()}
UNARY |= {f: (lambda f: lambda x: getattr(F, f)(x))(f) for f in
          "relu relu6 gelu silu mish softsign softplus elu celu selu leaky_relu hardtanh hardsigmoid hardswish logsigmoid glu tanhshrink".split()}
UNARY |= {"gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "clamp": lambda x: x.clamp(-3, 6), "clamp_min": lambda x: x.clamp(min=0.5),
          "clamp_max": lambda x: x.clamp(max=1), "threshold": lambda x: F.threshold(x, 0.5, -2), "elu2": lambda x: F.elu(x, 0.7),
          "softplus2": lambda x: F.softplus(x, 2, 5), "hardtanh2": lambda x: F.hardtanh(x, -3, 2.5), "pow2": lambda x: x**2, "pow3": lambda x: x**3,
          "pow4": lambda x: x**4, "pow1": lambda x: x**1, "pow0": lambda x: x**0, "rpow": lambda x: 2.5**(x / 8), "recip": lambda x: 1 / (x + 0.01),
          "rsub": lambda x: 2 - x, "add_num": lambda x: x + 3, "mul_num": lambda x: x * -1.5, "div_num": lambda x: x / 7, "sub_alpha": lambda x: torch.sub(x, x * x, alpha=0.3),
          "where_num": lambda x: torch.where(x > 0, x, 0.0), "masked_fill": lambda x: x.masked_fill(x > 2, -1.0), "floor_div": lambda x: x.detach() // 2, "mod": lambda x: x % 2.3,
          "fmod": lambda x: torch.fmod(x, 2.3), "div_trunc": lambda x: torch.div(x, 1.3, rounding_mode="trunc"), "lt": lambda x: x < 0.5, "eq": lambda x: x == 1,
          "logical": lambda x: torch.logical_and(x > 0, x) | torch.logical_not(x), "to_int": lambda x: x.to(torch.int64), "to_bool": lambda x: x.bool(), "int_add": lambda x: x.int() + 2.5,
          "int_div": lambda x: x.int() / 2, "int_floor": lambda x: x.long() // 3, "int_mod": lambda x: x.long() % 3, "bool_sum": lambda x: (x > 0).sum(), "bool_not": lambda x: ~(x > 0),
          "elu_inf": lambda x: F.elu(x * 400)}
POSITIVE = {"sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "log": torch.log, "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p, "pow_half": lambda x: x**0.5,
            "pow_mhalf": lambda x: x**-0.5, "pow_m1": lambda x: x**-1, "pow_m2": lambda x: x**-2, "pow_any": lambda x: x**1.3, "tan": lambda x: torch.tan(x / 3),
            "asin": lambda x: torch.asin(x / 4), "acos": lambda x: torch.acos(x / 4), "reciprocal": torch.reciprocal}
BINARY = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "div": lambda x, y: x / (y + 5), "pow": lambda x, y: (x.abs() + 0.1)**y,
          "maximum": torch.maximum, "minimum": torch.minimum, "atan2": lambda x, y: torch.atan2(x, y + 5), "where": lambda x, y: torch.where(x > y, x, y),
          "lerp": lambda x, y: torch.lerp(x, y, 0.3), "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5), "addcdiv": lambda x, y: torch.addcdiv(x, x, y + 5),
          "rem": lambda x, y: torch.remainder(x, y + 5), "clamp_t": lambda x, y: torch.clamp(x, y - 1, y + 1), "broadcast": lambda x, y: x[:, None] * y[None, :, None],
          "tie": lambda x, y: torch.maximum(x, x.detach() * 1.0), "mse": F.mse_loss, "l1": F.l1_loss, "smooth": F.smooth_l1_loss, "huber": lambda x, y: F.huber_loss(x, y, delta=0.5),
          "bce_logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), "bce": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
          "kl": lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"), "cosine": lambda x, y: F.cosine_similarity(x, y, dim=1),
          "mse_sum": lambda x, y: F.mse_loss(x, y, reduction="sum"), "pos_weight": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=torch.full((6,), 2.0)),
          "matmul": lambda x, y: x @ y.transpose(0, 1), "einsum": lambda x, y: torch.einsum("ij,kj->ki", x, y), "outer": lambda x, y: torch.outer(x[0], y[1]), "dot": lambda x, y: x[0] @ y[1],
          "mv": lambda x, y: x @ y[1], "baddbmm": lambda x, y: torch.baddbmm(x[None], x[None, :, :4], y[None], beta=0.5, alpha=2), "einsum1": lambda x, y: torch.einsum("ij->j", x),
          "einsum_batch": lambda x, y: torch.einsum("bi,bj->bij", x, y), "stack": lambda x, y: torch.stack([x, y], 1), "cat": lambda x, y: torch.cat([x, y, x], -1)}
# Functions that are formulas here; CORNERS, moved to where they are defined.
SPECIAL = {"asinh": torch.asinh, "asinh_far": lambda x: torch.asinh(x * 1e12), "acosh": lambda x: torch.acosh(x.abs() + 1.001), "acosh_far": lambda x: torch.acosh(x.abs() * 1e11 + 2), "atanh": lambda x: torch.atanh(x / 26), "erfinv": lambda x: torch.erfinv(torch.tanh(x / 3)),
           "erfinv_ends": lambda x: torch.erfinv((x / 3).detach().clamp(-1, 1)), "lgamma": lambda x: torch.lgamma(x.abs() + 0.1), "lgamma_below": lambda x: torch.lgamma(x / 2 - 0.35), "lgamma_pole": lambda x: torch.lgamma(x.detach()), "lgamma_far": lambda x: torch.lgamma(x.abs() * 1e9 + 1),
           "digamma": lambda x: torch.digamma(x.abs() + 0.1), "digamma_below": lambda x: torch.digamma(x / 2 - 0.35), "digamma_pole": lambda x: torch.digamma(x.detach()), "frac": torch.frac, "sinc": torch.sinc, "rad2deg": torch.rad2deg, "deg2rad": torch.deg2rad, "ndtr": torch.special.ndtr,
           "entr": lambda x: torch.special.entr(x.abs() + 0.1), "entr_ends": lambda x: torch.special.entr(x.detach()), "signbit": lambda x: torch.signbit(x * 0), "isposinf": lambda x: torch.isposinf(1 / x), "isneginf": lambda x: torch.isneginf(-1 / x.abs()), "nan_to_num": lambda x: torch.nan_to_num(x, 0.5) + torch.nan_to_num(x.detach() / 0, 0.5, 2.0),
           "nan_to_num_ends": lambda x: torch.nan_to_num(x.detach() / 0), "logit": lambda x: torch.logit(torch.sigmoid(x / 3)), "logit_eps": lambda x: torch.logit(torch.sigmoid(x), eps=0.1), "round_decimals": lambda x: torch.round(x.detach() * 1.234567, decimals=2), "round_tens": lambda x: torch.round(x.detach() * 7, decimals=-1),
           "hardshrink": F.hardshrink, "softshrink": lambda x: F.softshrink(x, 1.0), "rrelu": lambda x: F.rrelu(x, 0.1, 0.3, training=False), "any_dims": lambda x: (x.view(5, 4) > 6).any((0, 1)), "all_dims": lambda x: (x.view(5, 4) > -30).all((0, 1)), "names": lambda x: torch.absolute(torch.subtract(torch.multiply(x, 2), 1)) + torch.clip(torch.negative(x), -1.2, 2.2) + torch.special.expit(x)
           + torch.true_divide(x, 3) + torch.greater(x, 0) * torch.arctan(x) + torch.concat([x, x])[:20] + torch.fix(x.detach()), "shift": lambda x: (x.int() << 3) + (x.int() >> 1) + (x.int() << torch.arange(20))}
SPECIAL_2 = {"logaddexp": torch.logaddexp, "logaddexp_same": lambda x, y: torch.logaddexp(x, x.detach() * 1.0), "logaddexp2": torch.logaddexp2, "logaddexp_ends": lambda x, y: torch.logaddexp((x / 0).detach(), (x / 0).detach()), "hypot": torch.hypot, "hypot_far": lambda x, y: torch.hypot(x * 1e200, y * 1e200), "copysign": torch.copysign, "copysign_zero": lambda x, y: torch.copysign(x, y * 0),
             "copysign_num": lambda x, y: torch.copysign(x, -0.0), "fmax": torch.fmax, "fmin": torch.fmin, "fmax_same": lambda x, y: torch.fmax(x, x.detach() * 1.0), "fmin_nan": lambda x, y: torch.fmin(x, torch.where(y > 0, y, torch.nan)), "fmax_nan": lambda x, y: torch.fmax(torch.where(y > 0, x, torch.nan), y), "xlogy": lambda x, y: torch.xlogy(x, y.abs() + 0.1), "xlogy_zero": lambda x, y: torch.xlogy(x.relu(), y.abs()),
             "xlogy_num": lambda x, y: torch.xlogy(2, y.abs()) + torch.xlogy(x, 3), "xlog1py": lambda x, y: torch.special.xlog1py(x, y.abs()), "heaviside": lambda x, y: torch.heaviside(x.round(), y).detach(), "isclose": lambda x, y: torch.isclose(x, x + y * 1e-5), "ldexp": lambda x, y: torch.ldexp(x, (y * 3).int())}
SHAPE = {"view": lambda x: x.view(6, -1) * 2, "reshape": lambda x: x.permute(2, 0, 1).reshape(-1, 3), "flatten": lambda x: x.flatten(1) * 1.0, "unflatten": lambda x: x.unflatten(-1, (2, -1)) * 1.0,
         "squeeze": lambda x: x[:, :1].squeeze(1) * 1.0, "movedim": lambda x: x.movedim(0, 2) * 1.0, "expand": lambda x: x[:, :1].expand(-1, 5, -1) * 1.0, "select": lambda x: x[:, -2] * 1.0,
         "slice": lambda x: x[:, 1:9999:2, :-1] * 1.0, "split": lambda x: torch.cat([a * (i + 1) for i, a in enumerate(x.split(2, 2))], 2), "chunk": lambda x: sum(c.sum() * (i + 1) for i, c in enumerate(x.chunk(3, 1))),
         "unbind": lambda x: sum(a * (i + 1) for i, a in enumerate(x.unbind(1))), "repeat": lambda x: x.repeat(2, 1, 3), "repeat_new": lambda x: x.repeat(2, 1, 1, 2), "interleave": lambda x: x.repeat_interleave(3, 1),
         "flip": lambda x: x.flip(0, 2), "roll": lambda x: x.roll((1, -2), (0, 2)), "roll_flat": lambda x: x.roll(5), "tril": lambda x: x.tril(), "triu": lambda x: x.triu(1), "narrow": lambda x: x.narrow(2, 1, 2) * 1.0,
         "pad": lambda x: F.pad(x, (1, 2, 0, 3), value=0.5), "pad_neg": lambda x: F.pad(x, (-1, 2)), "reflect": lambda x: F.pad(x, (2, 1), mode="reflect"), "replicate": lambda x: F.pad(x, (2, 1), mode="replicate"),
         "circular": lambda x: F.pad(x, (2, 1), mode="circular"), "sum_dim": lambda x: x.sum((0, 2)), "mean_keep": lambda x: x.mean(1, keepdim=True), "amax": lambda x: x.amax(2), "amin": lambda x: x.amin((0, 1)),
         "max_dim": lambda x: x.max(2)[0], "max_idx": lambda x: x.max(2)[1], "min_dim": lambda x: x.min(1, keepdim=True)[0], "argmax": lambda x: x.argmax(), "argmin": lambda x: x.argmin(1), "var": lambda x: x.var(2), "std": lambda x: x.std((1, 2), keepdim=True),
         "var0": lambda x: x.var(2, unbiased=False), "norm": lambda x: torch.linalg.vector_norm(x, dim=2), "norm1": lambda x: torch.linalg.vector_norm(x, 1, dim=1), "norm3": lambda x: torch.linalg.vector_norm(x, 3, dim=1), "norm0": lambda x: torch.linalg.vector_norm(x * 0, dim=1),
         "norm_inf": lambda x: torch.linalg.vector_norm(x, float("inf"), dim=1), "normalize": lambda x: F.normalize(x, dim=-1), "lse": lambda x: x.logsumexp(1), "softmax": lambda x: x.softmax(1), "log_softmax": lambda x: x.log_softmax(-1), "cumsum": lambda x: x.cumsum(1),
         "cumprod": lambda x: x.cumprod(2), "prod": lambda x: x.prod(2), "prod_all": lambda x: x[0, 0].prod(), "diff": lambda x: x.diff(dim=1), "sort": lambda x: x.sort(1, descending=True)[0], "topk": lambda x: x.topk(2, 1)[0], "any": lambda x: (x > 1).any(1), "all": lambda x: (x > -9).all(),
         "inplace": lambda x: (x * 1.0).add_(2).mul_(x).relu_(), "inplace_view": lambda x: _write(x * 1.0), "inplace_select": lambda x: _write2(x * 1.0), "copy_": lambda x: _write3(x * 1.0), "detach": lambda x: x.detach() * x, "no_grad": lambda x: _no_grad(x),
         "ste": lambda x: x + (x.round() - x).detach(), "ones_like": lambda x: torch.ones_like(x) * x, "index": lambda x: x[:, torch.tensor([0, 2, 2, -1])], "index2": lambda x: x[torch.tensor([0, 1, 1]), :, torch.tensor([3, 0, 2])],
         "index_put": lambda x: _put(x * 1.0), "masked_put": lambda x: _put2(x * 1.0), "gather": lambda x: x.gather(2, (x[:, :, :2] > 0).long() + 1), "index_select": lambda x: x.index_select(1, torch.tensor([2, 0, 1, 1])),
         "scatter": lambda x: torch.zeros_like(x).scatter(2, torch.tensor([[[3], [1], [0]]]).expand(2, 3, 1), x[:, :, :1]), "scatter_add": lambda x: torch.zeros_like(x).scatter_add(1, torch.tensor([[[0], [0], [2]]]).expand(2, 3, 4), x),
         "index_add": lambda x: x.index_add(1, torch.tensor([0, 0]), x[:, :2]), "one_hot": lambda x: F.one_hot((x[:, :, 0] > 0).long(), 3) * x[:, :, :3], "take_along": lambda x: torch.take_along_dim(x, x.argsort(2), 2), "arange": lambda x: x + torch.arange(4) * 0.5,
         "eye": lambda x: x @ torch.eye(4), "linspace": lambda x: x * torch.linspace(0, 1, 4), "glu_dim": lambda x: F.glu(x, 2), "mean_all": lambda x: x.mean(), "max_all": lambda x: x.max(), "cdist": lambda x: (x[:, :, None] - x[:, None]).pow(2).sum(-1), "bucket": lambda x: x.new_full((2, 1, 1), 3.0) * x}


# Order, counts, diagonals, windows, pairs: of a tensor [2,3,4] and, in IMAGES, [2,4,6,5].
ORDER = {"median": lambda x: x.median(), "median_dim": lambda x: x.median(1)[0], "median_place": lambda x: x.median(2, keepdim=True)[1], "median_nan": lambda x: torch.where(x > 1, torch.nan, x).median(2)[0], "nanmedian": lambda x: torch.where(x > 1, torch.nan, x).nanmedian(1)[0], "nanmedian_all": lambda x: torch.where(x > 1, torch.nan, x).nanmedian(),
         "kthvalue": lambda x: x.kthvalue(2, 1, keepdim=True)[0], "cummax": lambda x: x.cummax(2)[0], "cummax_place": lambda x: x.cummax(1)[1], "cummin": lambda x: x.cummin(0)[0], "cummax_tie": lambda x: x.round().cummax(2)[1], "cummax_nan": lambda x: torch.where(x > 1, torch.nan, x).detach().cummax(2)[0],
         "cummax_int": lambda x: (x * 9).int().cummax(2)[0], "logcumsumexp": lambda x: x.logcumsumexp(1), "logcumsumexp_ends": lambda x: torch.where(x > 0, -torch.inf, x).detach().logcumsumexp(2), "bucketize": lambda x: torch.bucketize(x, torch.arange(-2.0, 3.0)), "bucketize_right": lambda x: torch.bucketize(x.round(), torch.arange(-2.0, 3.0), right=True),
         "searchsorted": lambda x: torch.searchsorted(x.sort(-1)[0], x * 1.5), "searchsorted_side": lambda x: torch.searchsorted(torch.arange(-1.0, 2.0), x.round(), side="right"), "isin": lambda x: torch.isin(x.round(), torch.tensor([1.0, 0.0])), "isin_not": lambda x: torch.isin(x.int(), 1, invert=True), "nansum": lambda x: torch.where(x > 1, torch.nan, x).nansum(1),
         "nanmean": lambda x: torch.where(x > 1, torch.nan, x).nanmean((0, 2), keepdim=True), "count": lambda x: torch.count_nonzero(x > 0), "count_dim": lambda x: torch.count_nonzero(x.round(), (0, 2)), "aminmax": lambda x: sum(torch.aminmax(x, dim=2)), "aminmax_all": lambda x: torch.aminmax(x)[0], "renorm": lambda x: x.renorm(2, 1, 1.5), "renorm1": lambda x: x.renorm(1, 0, 4.0), "renorm3": lambda x: x.renorm(3, 0, 1.0),
         "std_mean": lambda x: sum(torch.std_mean(x, 1)), "var_mean": lambda x: sum(torch.var_mean(x, (0, 1), keepdim=True)), "std_mean_all": lambda x: sum(torch.std_mean(x)), "std_mean0": lambda x: sum(torch.std_mean(x, 2, correction=0)), "diagonal": lambda x: x.diagonal(0, 1, 2) * 1.0, "diagonal_up": lambda x: x.diagonal(1, 0, 2) * 1.0, "diagonal_down": lambda x: x.diagonal(-1, 1, 2) * 1.0,
         "diag": lambda x: torch.diag(x[0]), "diag_up": lambda x: torch.diag(x[1], 2), "diag_list": lambda x: torch.diag(x[0, 0], -1), "diag_embed": lambda x: torch.diag_embed(x, 1, 0, 2), "diag_embed_last": lambda x: torch.diag_embed(x), "trace": lambda x: x[0].trace(), "diagonal_scatter": lambda x: x.diagonal_scatter(x[:, 1, :2] * 3, -1, 1, 2), "unfold": lambda x: x.unfold(2, 3, 1) * 1.0,
         "unfold_first": lambda x: x.unfold(1, 2, 1) * 1.0, "unfold_step": lambda x: x.reshape(24).unfold(0, 5, 3) * 1.0, "rot90": lambda x: torch.rot90(x, 1, (0, 2)), "rot180": lambda x: torch.rot90(x, 2, (1, 2)), "rot270": lambda x: torch.rot90(x, -1, (1, 2)), "mT": lambda x: x.mT * 1.0, "ravel": lambda x: x.ravel() * 1.0, "cdist2": lambda x: torch.cdist(x, x[:, :2] + 0.3), "cdist1": lambda x: torch.cdist(x, x[:1] * 0.5, p=1),
         "cdist3": lambda x: torch.cdist(x, x + 1, p=3), "cdist_inf": lambda x: torch.cdist(x, x * 0.5 + 1, p=float("inf")), "cdist_self": lambda x: torch.cdist(x, x), "pairwise": lambda x: F.pairwise_distance(x, x.flip(0)), "take": lambda x: x.take(torch.tensor([0, -1, 5, 5])), "index_fill": lambda x: x.index_fill(1, torch.tensor([0, -1]), 2.0), "index_fill_t": lambda x: x.index_fill(2, torch.tensor([1]), x.detach()[0, 0, 0]),
         "masked_scatter": lambda x: x.masked_scatter(x > 0, x.flip(0) * 2), "masked_scatter_row": lambda x: x.masked_scatter(torch.tensor([True, False, False, True]), x * 3), "ranking": lambda x: F.margin_ranking_loss(x, x.flip(1), x.sign().detach(), 0.1), "soft_margin": lambda x: F.soft_margin_loss(x, x.flip(0).sign().detach()), "hinge": lambda x: F.hinge_embedding_loss(x, x.flip(0).sign().detach(), reduction="none"),
         "max_bool": lambda x: (x > 0).max(1)[0], "max_bool_place": lambda x: (x > 0).min(2)[1], "argmax_bool": lambda x: (x > 0).to(torch.int32).argmax(1),
         "poisson": lambda x: F.poisson_nll_loss(x, x.detach().abs(), reduction="sum"), "poisson_plain": lambda x: F.poisson_nll_loss(x.abs(), x.detach().flip(0).abs(), log_input=False), "empty": lambda x: torch.empty_permuted((2, 3, 4), (1, 0, 2)) * 0 + x + x.new_empty_strided((4,), (1,)) * 0}
IMAGES = {"im2col": lambda x: F.unfold(x, 2), "im2col_more": lambda x: F.unfold(x, (3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1)), "col2im": lambda x: F.fold(x.reshape(2, 4, 30), (5, 6), 1), "col2im_more": lambda x: F.fold(x.reshape(2, 6, 20)[:, :, :9], (5, 6), (2, 3), dilation=1, padding=1, stride=2), "adaptive_max": lambda x: F.adaptive_max_pool2d(x, (4, 3)), "adaptive_max_equal": lambda x: F.adaptive_max_pool2d(x.relu(), (3, 1)),
          "adaptive_max_tie": lambda x: F.adaptive_max_pool2d(x.round(), (2, 2)) * x[:, :, :2, :2], "adaptive_max1d": lambda x: F.adaptive_max_pool1d(x[:, :, 0], 2), "grid": lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1) * 0.8, align_corners=False), "grid_corners": lambda x: F.grid_sample(x, x[:, 1:3].permute(0, 2, 3, 1) * 0.8, align_corners=True), "grid_border": lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1), padding_mode="border", align_corners=False),
          "grid_reflect": lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1) * 1.3, padding_mode="reflection", align_corners=False), "grid_reflect_corners": lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1) * 1.3, padding_mode="reflection", align_corners=True), "grid_nearest": lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).detach() * 0.8, mode="nearest", align_corners=False)}


# What few models have and some do: of a tensor [2,3,4]. Each row is a class that was wrong or missing once.
RARE = {"pad_cut": lambda x: F.pad(x, (-1, 2), mode="replicate"), "pad_cut_circular": lambda x: F.pad(x, (2, -2), mode="circular"), "pad_cut_reflect": lambda x: F.pad(x, (-1, 3), mode="reflect"), "take_along_ones": lambda x: torch.take_along_dim(x, torch.tensor([[[0], [2]]]), 1), "std_equal": lambda x: (x[:, :1].expand(2, 3, 4) * 1.0).std(1) + x[:, 0], "norm3_zero": lambda x: torch.linalg.vector_norm(x * (x > 0), 3, dim=2) + torch.linalg.vector_norm(x * 0, 0.5, dim=2),
        "min_bool": lambda x: torch.minimum(x > 0, x < 1), "bytes": lambda x: ((x.abs() * 90).to(torch.uint8) + 250) * 2 + ((x * 90).to(torch.int8) - 100) + ((x * 9000).to(torch.int16) * 7 + 30000) + x, "sinh_small": lambda x: torch.sinh(x * 1e-12) * 1e12, "einsum_dots": lambda x: torch.einsum("...ij,...kj->...ik", x, x), "einsum_implied": lambda x: torch.einsum("bij,bkj", x, x),
        "einsum_three": lambda x: torch.einsum("bij,bkj,bkl->bil", x, x, x), "einsum_diagonal": lambda x: torch.einsum("bii->bi", x[..., :3]) + torch.einsum("bii", x[..., :3])[:, None], "einsum_ones": lambda x: torch.einsum("bij,bij->bi", x, x[:, :1]), "einsum_scalar": lambda x: torch.einsum(",ij->j", x[0, 0, 0], x[1]), "slice_step": lambda x: _step(x * 1.0), "slice_scatter_step": lambda x: x.slice_scatter(x[..., :2] * 2, 2, 1, 4, 2),
        "stacks": lambda x: torch.hstack([x, x])[:, :3] + torch.dstack([x, x])[..., 2:6] + torch.vstack([x[0], x[0, 0]])[:3] + torch.column_stack([x[0, 0], x[1, 1]])[0, 1] + torch.atleast_3d(x[0])[:, :, 0], "tile": lambda x: x.tile(2, 1, 1, 3) + x.tile(3), "meshgrid": lambda x: sum(torch.meshgrid(x[0, 0], x[1, 1, :3], indexing="ij")) + torch.meshgrid(x[0, 1, :3], x[1, 0], indexing="xy")[0], "cartesian": lambda x: torch.cartesian_prod(x[0, 0], x[1, 1, :3]),
        "block_diag": lambda x: torch.block_diag(x[0], x[1, :2, :2], x[0, 0]), "kron": lambda x: torch.kron(x[0, :2, :2], x[1, :3, 0]), "tensordot": lambda x: torch.tensordot(x, x, dims=([0, 2], [0, 2])) + torch.tensordot(x, x.permute(1, 2, 0), 2).sum(), "inner": lambda x: torch.inner(x, x[0]), "vecdot": lambda x: torch.linalg.vecdot(x, x.flip(0), dim=1) + torch.vdot(x[0, 0], x[1, 1]), "multi_dot": lambda x: torch.linalg.multi_dot([x[0, 0], x[0].T, x[1], x[1, 2]]),
        "addmv": lambda x: torch.addmv(x[0, :, 0], x[0], x[1, 0], beta=0.5, alpha=2) + torch.addr(x[0], x[0, :, 0], x[1, 0], beta=0, alpha=2)[:, 1] + torch.addbmm(x[0, :, :3], x, x.transpose(1, 2), beta=2, alpha=0.3)[0], "cross": lambda x: torch.linalg.cross(x, x.flip(2), dim=1) + torch.cross(x, x * x, 1), "inverse": lambda x: torch.linalg.inv(x[..., :3] + 5 * torch.eye(3)) + torch.linalg.solve(x[..., :3] + 5 * torch.eye(3), x[..., :1]) + torch.linalg.solve(x[..., :3] + 5 * torch.eye(3), x[:1, :, :3], left=False),
        "triangles": lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(3)) + torch.linalg.solve_triangular(x[..., :3].triu() + 3 * torch.eye(3), x, upper=True)[..., :1] + torch.linalg.solve_triangular(x[..., :3].tril() + 3 * torch.eye(3), x[..., :3], upper=False, left=False), "values": lambda x: torch.linalg.eigvalsh(x @ x.mT) + torch.linalg.svdvals(x) + torch.linalg.slogdet(x[..., :3] + 2 * torch.eye(3))[1][:, None], "powers": lambda x: torch.linalg.matrix_power(x[..., :3], 3) + torch.linalg.matrix_power(x[..., :3] + 5 * torch.eye(3), -2) + x[..., :3].abs().float_power(1.5),
        "trapezoid": lambda x: torch.trapezoid(x, dim=1) + torch.trapezoid(x, x[0, :, 0].cumsum(0), dim=1), "trapezoids": lambda x: torch.cumulative_trapezoid(x, dx=0.5), "quantile": lambda x: torch.quantile(x, 0.3, dim=1, keepdim=True) + torch.quantile(x, torch.tensor([0.1, 0.5, 1.0]), dim=0).sum(0) + torch.quantile(x, 0.7), "fill_diagonal": lambda x: (x[0] * 1.0).fill_diagonal_(3.0) + (x.reshape(12, 2) * 1.0).fill_diagonal_(2.0, wrap=True).sum(), "flips": lambda x: torch.flipud(x) + torch.fliplr(x) + x.msort() + x.argsort(dim=2, stable=True),
        "hills": lambda x: x * torch.hann_window(4) + torch.hamming_window(4, periodic=False), "parts": lambda x: torch.cat(x.tensor_split(3, -1)[::-1], -1) + torch.cat(x.tensor_split((1, 3), -1)[::-1], -1) + torch.cat(x.hsplit(3)[::-1], 1) + torch.cat(x.vsplit([1])[::-1], 0), "split_many": lambda x: torch.cat(x.reshape(24).repeat(4).split([1] * 70 + [26])[::-1]), "scatter_sum": lambda x: x.scatter_reduce(1, torch.tensor([[[0, 1, 0, 2]]]).expand(2, 2, 4), x[:, 1:], "sum") + x.scatter_reduce(1, torch.tensor([[[0, 1, 0, 2]]]).expand(2, 2, 4), x[:, 1:], "mean", include_self=False),
        "scatter_max": lambda x: x.scatter_reduce(1, torch.tensor([[[0, 1, 0, 2]]]).expand(2, 2, 4), x[:, 1:] * 2, "amax") + x.scatter_reduce(0, torch.tensor([1, 1])[:, None, None].expand(2, 3, 4), x * 2, "amin", include_self=False), "lse_axes": lambda x: x.logsumexp((0, 2)) + x.logsumexp((0, 1, 2), keepdim=True), "number": lambda x: x.sum().softmax(0) + x.sum().log_softmax(0) * x, "none": lambda x: (x[:0] > 0).any(0) * x + (x[:0] > 0).all() + x[:0].prod(0), "five_axes": lambda x: F.scaled_dot_product_attention(*(x[None, None].expand(2, 3, 2, 3, 4) * k for k in (1, 2, 3)), is_causal=True),
        "shuffles": lambda x: F.pixel_shuffle(x.reshape(2, 4, 3, 1), 2).sum() + F.pixel_unshuffle(x.reshape(1, 1, 3, 2, 4), 2).sum() * F.channel_shuffle(x, 3), "triplet": lambda x: F.triplet_margin_loss(x, x.flip(0), x.flip(1), swap=True, margin=2.0) + F.triplet_margin_loss(x, x * 0.5, x.flip(2), p=1.0, reduction="sum"), "cosine_embedding": lambda x: F.cosine_embedding_loss(x[0], x[1], torch.tensor([1.0, -1.0, 1.0]), 0.1), "multi_margin": lambda x: F.multi_margin_loss(x[0], torch.tensor([0, 3, 1]), p=2, margin=0.7, weight=torch.arange(1.0, 5)) + F.multilabel_margin_loss(x[0], torch.tensor([[0, 2, -1, 1], [3, -1, 0, 0], [1, 0, 2, 3]])),
        "poisson_full": lambda x: F.poisson_nll_loss(x, x.detach().abs() * 3, full=True), "bce_ends": lambda x: F.binary_cross_entropy((x * 100).clamp(0, 1), (x.detach() > 0.2).to(x.dtype)) * 1e-9, "ce_masked": lambda x: F.cross_entropy(x[0].masked_fill(torch.tensor([False, True, False, False]), -torch.inf), torch.tensor([0, 2, 3]), weight=torch.arange(1.0, 5)), "affine": lambda x: F.affine_grid(x.reshape(4, 2, 3), (4, 1, 3, 2), align_corners=False).sum((1, 2)) + F.affine_grid(x.reshape(2, 3, 4), (2, 1, 2, 3, 2), align_corners=True).sum()}
# Where PyTorch's definition shows at an edge: infinite and missing numbers, integers of 8 and 16 bits, divisors of pools, which triangle is read.
_GAP = torch.tensor([1.0, 2.0, torch.inf])
EDGES = {"quantile_infinite": lambda x: torch.quantile(_GAP, torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0])) + x[0, 0, 0], "quantile_least": lambda x: torch.quantile(-_GAP, 0.25) + torch.quantile(-_GAP, 0.5) * x, "quantile_nan": lambda x: torch.quantile(torch.where(x.detach() > x.max() - 1e-9, torch.nan, x.detach()), 0.3, dim=1), "quantile_rows": lambda x: torch.quantile(x, torch.tensor([0.0, 0.5, 1.0]), dim=1),
         "divisor_uncounted": lambda x: F.avg_pool2d(x, 2, 1, 1, count_include_pad=False, divisor_override=3), "divisor_ceil": lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True, divisor_override=3), "divisor_volume": lambda x: F.avg_pool3d(x[None], 2, 2, 1, ceil_mode=True, count_include_pad=False, divisor_override=5),
         "cholesky_lower": lambda x: torch.linalg.cholesky(x[..., :3] + 9 * torch.eye(3)), "cholesky_upper": lambda x: torch.linalg.cholesky(x[..., :3] + 9 * torch.eye(3), upper=True), "eigenvalues_lower": lambda x: torch.linalg.eigvalsh(x[..., :3]), "eigenvalues_upper": lambda x: torch.linalg.eigvalsh(x[..., :3], UPLO="U"), "triangle_missing": lambda x: torch.linalg.eigvalsh(x[..., :3].masked_fill(torch.ones(3, 3).triu(1) > 0, torch.nan)), "eigenvectors_upper": lambda x: torch.linalg.eigh(x[..., :3], UPLO="U")[1].square(),
         "square_bytes": lambda x: torch.square((x * 90).to(torch.int8)) + torch.square((x.abs() * 90).to(torch.uint8)) + torch.square((x * 9000).to(torch.int16)) + x, "abs_least": lambda x: torch.abs((x * 0).to(torch.int8) - 128) + torch.abs((x * 0).to(torch.int16) - 32768) + x, "pow_bytes": lambda x: torch.pow((x * 90).to(torch.int8), (x.abs() * 30).to(torch.int8)) + torch.pow((x * 9000).to(torch.int16), (x * 9).to(torch.int16)) + torch.pow((x * 3).to(torch.int32), (x * 20).to(torch.int32)) + x,
         "addcmul_bytes": lambda x: torch.addcmul((x * 90).to(torch.int8), (x * 50).to(torch.int8), (x * 40).to(torch.int8), value=3) + x, "floor_least": lambda x: ((x * 0).to(torch.int8) - 128) // ((x > 0).to(torch.int8) - 2) + x}
VOLUMES = {"ceil_max": lambda x: F.max_pool3d(x, 3, 2, 1, ceil_mode=True), "ceil_avg": lambda x: F.avg_pool3d(x, 3, 2, 1, ceil_mode=True), "ceil_uncounted": lambda x: F.avg_pool3d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), "adaptive": lambda x: F.adaptive_avg_pool3d(x, (2, 3, 5)), "adaptive_max": lambda x: F.adaptive_max_pool3d(x, (2, 1, 3)), "nearest": lambda x: F.interpolate(x, scale_factor=1.5), "trilinear": lambda x: F.interpolate(x, size=(3, 7, 2), mode="trilinear", align_corners=False),
           "exact": lambda x: F.interpolate(x, size=(3, 7, 2), mode="nearest-exact"), "bicubic": lambda x: F.interpolate(x[:, :, 0], scale_factor=1.4, mode="bicubic") , "bicubic_corners": lambda x: F.interpolate(x[:, :, 0], size=(3, 9), mode="bicubic", align_corners=True), "exact1": lambda x: F.interpolate(x[:, :, 0, 0], size=7, mode="nearest-exact"), "exact2": lambda x: F.interpolate(x[:, :, 0], scale_factor=0.7, mode="nearest-exact")}


def _step(x):
    x[..., 1::2] = x[..., :2] * 3
    x[:, ::2, 0] += 1
    return x


def _write(x):
    x[:, 1:].mul_(2)
    x.transpose(1, 2)[:, 0] += 1
    return x


def _write2(x):
    y = x.view(6, 4)
    x[0, 1] = 5.0
    y[5].fill_(1)
    return x * y.view(2, 3, 4)


def _write3(x):
    z = torch.zeros(2, 3, 4)
    z.copy_(x)
    z[:, :, 1:3] = x[:, :, :2]
    return z


def _no_grad(x):
    with torch.no_grad():
        y = x * 3
    return x * y


def _put(x):
    x[:, torch.tensor([0, 2])] = x[:, :2] * 3
    return x


def _put2(x):
    x[x > 1] = 0.25
    return x


class Net(nn.Module):
    def __init__(self, fn, **parts):
        super().__init__()
        self.fn = fn
        for k, v in parts.items():
            setattr(self, k, v)

    def forward(self, *xs):
        return self.fn(self, *xs)


def mask_net(mask):
    net = Net(lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=m.mask))
    net.register_buffer("mask", mask, persistent=False)
    return net


def layers():
    image, seq, rows = draw(2, 4, 9, 7), draw(2, 5, 6), draw(4, 6)
    q, k, v = draw(2, 4, 5, 6), draw(2, 4, 5, 6, seed=2), draw(2, 4, 5, 6, seed=3)
    yield "linear", nn.Linear(6, 3), (seq,)
    yield "bilinear_form", Net(lambda m, x, y: m.a(x, y), a=nn.Bilinear(6, 6, 3)), (seq, draw(2, 5, 6, seed=4))
    yield "linear_nobias", nn.Linear(6, 3, bias=False), (rows,)
    for name, conv in {"conv": nn.Conv2d(4, 6, 3, padding=1), "conv_stride": nn.Conv2d(4, 6, (3, 2), stride=(2, 3), padding=(1, 0)), "conv_dilated": nn.Conv2d(4, 2, 3, dilation=2, padding=2),
                       "conv_groups": nn.Conv2d(4, 8, 3, groups=2, bias=False), "conv_depthwise": nn.Conv2d(4, 4, 3, groups=4), "conv_same": nn.Conv2d(4, 3, (4, 2), padding="same"), "conv_valid": nn.Conv2d(4, 3, 2, padding="valid"),
                       "deconv": nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1), "deconv_groups": nn.ConvTranspose2d(4, 6, (2, 3), stride=(3, 1), groups=2, dilation=(1, 2)), "conv_reflect": nn.Conv2d(4, 2, 3, padding=1, padding_mode="reflect")}.items():
        yield name, conv, (image,)
    yield "conv1d", nn.Conv1d(5, 4, 3, padding=1), (seq,)
    yield "deconv1d", nn.ConvTranspose1d(5, 4, 3, stride=2), (seq,)
    for name, pool in {"max_pool": nn.MaxPool2d(2), "max_pool_pad": nn.MaxPool2d(3, 2, 1), "max_pool_ceil": nn.MaxPool2d(3, 2, ceil_mode=True), "max_pool_dilated": nn.MaxPool2d(2, 1, dilation=2), "avg_pool": nn.AvgPool2d(2),
                       "avg_pool_pad": nn.AvgPool2d(3, 2, 1), "avg_pool_uncounted": nn.AvgPool2d(3, 2, 1, count_include_pad=False), "avg_pool_ceil": nn.AvgPool2d(2, 2, ceil_mode=True), "avg_pool_ceil_pad": nn.AvgPool2d(3, 2, 1, ceil_mode=True),
                       "avg_pool_divisor": nn.AvgPool2d(2, divisor_override=3), "adaptive1": nn.AdaptiveAvgPool2d(1), "adaptive": nn.AdaptiveAvgPool2d((4, 3)), "adaptive_up": nn.AdaptiveAvgPool2d(10),
                       "nearest": nn.Upsample(scale_factor=2), "nearest_odd": nn.Upsample(size=(5, 11)), "bilinear": nn.Upsample(scale_factor=2, mode="bilinear"), "bilinear_corners": nn.Upsample(size=(5, 12), mode="bilinear", align_corners=True),
                       "instance_norm": nn.InstanceNorm2d(4, affine=True), "group_norm": nn.GroupNorm(2, 4), "dropout_eval": nn.Dropout(0.0), "softmax2d": nn.Softmax2d(), "pixel_shuffle": nn.PixelShuffle(2), "prelu": nn.PReLU(4),
                       "zero_pad": nn.ZeroPad2d((1, 2, 0, 1)), "batch_norm": nn.BatchNorm2d(4), "batch_norm_eval": nn.BatchNorm2d(4).eval(), "batch_norm_bare": nn.BatchNorm2d(4, affine=False, momentum=0.3), "batch_norm_batch": nn.BatchNorm2d(4, track_running_stats=False)}.items():
        yield name, pool, (image,)
    yield "avg_pool1d", nn.AvgPool1d(2), (seq,)
    yield "max_pool1d", nn.MaxPool1d(2), (seq,)
    yield "batch_norm1d", nn.BatchNorm1d(6), (rows,)
    yield "batch_norm_seq", nn.BatchNorm1d(5), (seq,)
    yield "layer_norm", nn.LayerNorm(6), (seq,)
    yield "layer_norm2", nn.LayerNorm((5, 6), elementwise_affine=False), (seq,)
    yield "rms_norm", nn.RMSNorm(6), (seq,)
    volume = draw(2, 3, 5, 6, 7)
    yield "conv3d", nn.Conv3d(3, 4, (3, 2, 3), (2, 1, 2), (1, 0, 2), (1, 2, 1)), (volume,)
    yield "conv3d_groups", nn.Conv3d(4, 6, 3, groups=2, bias=False), (draw(2, 4, 4, 5, 5),)
    yield "max_pool3d", nn.MaxPool3d(3, 2, 1), (volume.clamp(-1, 0.3),)
    yield "avg_pool3d", Cases([lambda x: F.avg_pool3d(x, 2), lambda x: F.avg_pool3d(x, 3, 2, 1), lambda x: F.avg_pool3d(x, 3, 2, 1, count_include_pad=False), lambda x: F.avg_pool3d(x, 2, divisor_override=3), lambda x: F.adaptive_avg_pool3d(x, (1, 3, 7))]), (volume,)
    yield "bags", Net(lambda m, x: (m.a(x), m.b(x), m.b(x.flatten()[:7], torch.tensor([0, 2, 2, 5]))), a=nn.EmbeddingBag(9, 4, mode="sum"), b=nn.EmbeddingBag(9, 4, mode="mean", padding_idx=3)), (ints(9, 4, 3),)
    yield "bag_max", Net(lambda m, x: (m.a(x), m.b(x.flatten(), torch.tensor([0, 2, 2, 5]))), a=nn.EmbeddingBag(9, 4, mode="max"), b=nn.EmbeddingBag(9, 4, mode="max", padding_idx=3)), (ints(9, 4, 3),)
    yield "bag_frequency", Net(lambda m, x: (m.a(x), m.b(x.flatten(), torch.tensor([0, 2, 2, 5]))), a=nn.EmbeddingBag(9, 4, mode="sum", scale_grad_by_freq=True, padding_idx=3), b=nn.EmbeddingBag(9, 4, scale_grad_by_freq=True)), (torch.arange(6).repeat(2).view(4, 3),)  # each id twice: where they differ, PyTorch's CPU kernel divides by other ids' counts
    yield "bools", Cases([lambda x, y, f: torch.add(x, y, alpha=True) ^ torch.add(x, y, alpha=False), lambda x, y, f: torch.fmax(x, y) & torch.clamp(x, max=y), lambda x, y, f: torch.clamp_min(x, y) ^ torch.fmin(x, y), lambda x, y, f: torch.sign(x) ^ torch.square(y), lambda x, y, f: torch.heaviside(x, y),
        lambda x, y, f: torch.outer(x[0], y[1]), lambda x, y, f: torch.kron(x, y), lambda x, y, f: torch.addr(torch.zeros(6, 6, dtype=torch.bool), x[0], y[1]), lambda x, y, f: x.max() ^ y.amin(), lambda x, y, f: x.amax(1), lambda x, y, f: x.sort(1)[0], lambda x, y, f: torch.argsort(x, dim=1, stable=True), lambda x, y, f: torch.signbit(x), lambda x, y, f: ((f.abs() * 90).to(torch.uint8) @ (f.T.abs() * 50).to(torch.uint8)).int(), lambda x, y, f: ((f * 20).to(torch.int8).diff(dim=1) * (f * 20).to(torch.int8)[:, 1:]).int(), lambda x, y, f: x.to(torch.uint8).any(1).to(torch.int32), lambda x, y, f: x.index_add(0, torch.tensor([1, 1, 0]), y[:3]),
        lambda x, y, f: (f.detach().half() * 13).fmod(f.detach().half().flip(0)).double(), lambda x, y, f: (f.detach().half() * 13).remainder(f.detach().half().flip(0)).double(), lambda x, y, f: torch.floor_divide(f.detach().half() * 13, f.detach().half().flip(0)).double(),
        lambda x, y, f: torch.fmax(f, f * 1.0) + torch.fmin(f.round(), f.flip(1).round()), lambda x, y, f: torch.clamp(f, torch.where(x, torch.nan, -1.0), torch.where(y, torch.nan, 0.5)), lambda x, y, f: torch.heaviside(torch.where(x, torch.nan, f.detach()), f.detach())]), (draw(4, 6) > 0, draw(4, 6, seed=5) > 0, draw(4, 6))
    yield "complex", Net(lambda m, x, y, z: _complex(m.weight, x, y, z), weight=nn.Linear(2, 20)), (draw(2, 6, 4), draw(2, 6, 4, seed=9), draw(3, 5, 7))
    yield "complex_views", Net(lambda m, x, y: _complex_views(x, y)), (draw(2, 3, 4), draw(2, 3, 4, seed=9))
    yield "groups_whole", Cases([(lambda how, own: lambda x, y, i: (x * 9).int().scatter_reduce(0, i, (y * 9).int(), reduce=how, include_self=own) + (x * 90).to(torch.int8).scatter_reduce(0, i, (y * 90).to(torch.int8), reduce=how, include_self=own))(how, own) for how in ("prod", "amax", "amin") for own in (True, False)]), (draw(4, 3), draw(5, 3), ints(3, 5, 3))
    yield "groups", Cases([(lambda how, own: lambda x, y, i, w: x.scatter_reduce(0, i, y, reduce=how, include_self=own))(how, own) for how in ("prod", "amax", "amin") for own in (True, False)] + [(lambda how, own: lambda x, y, i, w: x.index_reduce(1, i[0, :3], w, how, include_self=own))(how, own) for how in ("prod", "mean", "amax", "amin") for own in (True, False)] + [lambda x, y, i, w: (x.detach() * 9).int().scatter_reduce(0, i, (y.detach() * 9).int(), reduce="amax") + (x.detach() * 9).int().scatter_reduce(0, i, (y.detach() * 9).int(), reduce="prod"), lambda x, y, i, w: x[0, 0].scatter_reduce(0, i[0, 0] * 0, y[0, 0], reduce="prod")]), (draw(4, 3), draw(5, 3) * (draw(5, 3, seed=4) > -1), ints(3, 5, 3), draw(4, 3, seed=6))
    yield "pdist", Cases([lambda x: F.pdist(x), lambda x: F.pdist(x, 1.0), lambda x: F.pdist(x, 3.0), lambda x: F.pdist(x, float("inf"))]), (draw(5, 3),)
    yield "stft", Cases([lambda x, w: torch.stft(x, 8, 3, window=w, return_complex=True).abs(), lambda x, w: torch.view_as_real(torch.stft(x[0], 10, 4, 8, w, center=False, normalized=True, return_complex=True)), lambda x, w: torch.view_as_real(torch.stft(x, 7, return_complex=True, onesided=False, window=w[:7]))]), (draw(2, 21), draw(8))
    yield "embedding_frequency", nn.Embedding(9, 4, scale_grad_by_freq=True, padding_idx=1), (ints(9, 4, 3),)
    yield "norm_twice", Net(lambda m, x: m.a(F.relu(m.a(x)))[:, :3] + m.b(x)[:, :3], a=nn.BatchNorm2d(4), b=nn.InstanceNorm2d(4, affine=True, track_running_stats=True)), (image,)
    yield "weight_norm_whole", nn.utils.weight_norm(nn.Linear(6, 3), dim=None), (seq,)
    yield "spectral_norm", nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3)), (seq,)
    yield "conv3d_same", nn.Conv3d(3, 4, (3, 2, 4), padding="same", dilation=(1, 2, 1)), (draw(2, 3, 5, 6, 7),)
    yield "deconv3d", nn.ConvTranspose3d(4, 6, (3, 2, 1), (2, 1, 3), (1, 0, 0), (1, 0, 2), groups=2, dilation=(1, 2, 1)), (draw(2, 4, 3, 4, 2),)
    yield "bag_weights", Net(lambda m, x, w: m.a(x, per_sample_weights=w), a=nn.EmbeddingBag(9, 4, mode="sum")), (ints(9, 4, 3), draw(4, 3))
    yield "triangle_indices", Cases([lambda x: x[tuple(torch.tril_indices(4, 6, -1))], lambda x: x[tuple(torch.triu_indices(4, 6, 1))], lambda x: x.swapaxes(0, 1) * 2]), (rows,)
    yield "dropout_in_place", Net(lambda m, x: m.d(x * 2), d=nn.Dropout(0.0, inplace=True)), (rows,)
    yield "embedding", nn.Embedding(9, 4, padding_idx=2), (ints(9, 3, 5),)
    yield "weight_norm", nn.utils.weight_norm(nn.Linear(6, 3)), (seq,)
    yield "conv_chain", nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(6, 5, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3)), (image,)
    yield "conv_cat", Net(lambda m, x: torch.cat([m.a(x), m.b(x), x], 1).mean((2, 3)) * x.amax((2, 3)).sum(1, keepdim=True), a=nn.Conv2d(4, 3, 3, padding=1), b=nn.Conv2d(4, 2, 1)), (image,)
    yield "squeeze_excite", Net(lambda m, x: m.a(x) * m.b(x.mean((2, 3), keepdim=True)).sigmoid() + m.a(x).sum(1, keepdim=True), a=nn.Conv2d(4, 4, 1), b=nn.Conv2d(4, 4, 1)), (image,)
    yield "attention", Net(lambda m, *x: F.scaled_dot_product_attention(*x)), (q, k, v)
    yield "attention_causal", Net(lambda m, *x: F.scaled_dot_product_attention(*x, is_causal=True)), (q, k, v)
    yield "attention_scale", Net(lambda m, *x: F.scaled_dot_product_attention(*x, scale=0.3)), (q, k, v[..., :4])
    yield "attention_gqa", Net(lambda m, *x: F.scaled_dot_product_attention(*x, enable_gqa=True)), (q, k[:, :2], v[:, :2])
    yield "attention_repeated", Net(lambda m, q, k, v: (F.scaled_dot_product_attention(q, k.repeat_interleave(2, 1), v[:, :, None].expand(-1, -1, 2, -1, -1).reshape(q.shape), is_causal=True), F.scaled_dot_product_attention(q, k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)))), (q, k[:, :2], v[:, :2])
    yield "histc", Net(lambda m, x: (torch.histc(x, 5, -1, 1), torch.histc(x, 4), torch.histc(x.detach() * 0 + 2, 3), torch.histc(x, 7, -0.25, 0.5), x.sum())), (seq,)
    yield "attention_narrow_values", Net(lambda m, q, k, v: (F.scaled_dot_product_attention(q, k, v[..., :3], is_causal=True), F.scaled_dot_product_attention(q, k, v[..., :2], attn_mask=torch.ones(5, 5, dtype=torch.bool).tril()))), (q, k, v)
    yield "attention_cross", Net(lambda m, *x: F.scaled_dot_product_attention(*x, is_causal=True)), (q[:, :, :3], k, v)
    yield "attention_computed", Net(lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=torch.arange(5)[None, :] <= torch.arange(5)[:, None])), (q, k, v)
    yield "attention_data", Net(lambda m, q, k, v, a: F.scaled_dot_product_attention(q, k, v, attn_mask=(a > -0.5))), (q, k, v, draw(5, 5))
    yield "attention_bias", Net(lambda m, q, k, v, a: F.scaled_dot_product_attention(q, k, v, attn_mask=a)), (q, k, v, draw(4, 5, 5))
    yield "attention_blind_bias", mask_net(torch.zeros(5, 5).index_fill(0, torch.tensor([1]), float("-inf"))), (q, k, v)
    yield "attention_window", mask_net((torch.arange(5)[None] - torch.arange(5)[:, None]).abs() < 2), (q, k, v)
    yield "attention_sliding", mask_net((torch.arange(5)[None] <= torch.arange(5)[:, None]) & (torch.arange(5)[None] > torch.arange(5)[:, None] - 3)), (q, k, v)
    yield "attention_all", mask_net(torch.ones(1, 1, 5, 5, dtype=torch.bool)), (q, k, v)
    yield "attention_blind", mask_net(torch.tensor([[True] * 5, [False] * 5, [True, False] * 2 + [True]] + [[True] * 5] * 2)), (q, k, v)
    yield "mha", Net(lambda m, x: m.a(x, x, x, need_weights=False)[0], a=nn.MultiheadAttention(6, 2, batch_first=True)), (seq,)
    yield "encoder", nn.TransformerEncoderLayer(6, 2, 12, dropout=0.0, batch_first=True), (seq,)
    yield "lstm", Net(lambda m, x: m.a(x)[0], a=nn.LSTM(6, 4, 2, batch_first=True)), (seq,)
    yield "lstm_both", Net(lambda m, x: m.a(x)[0], a=nn.LSTM(6, 4, bidirectional=True)), (seq,)
    yield "lstm_projected", Net(lambda m, x: (lambda o: (o[0], *o[1]))(m.a(x)), a=nn.LSTM(6, 4, 2, bidirectional=True, proj_size=3)), (seq,)
    yield "lstm_projected_plain", Net(lambda m, x: m.a(x)[0], a=nn.LSTM(6, 4, batch_first=True, bias=False, proj_size=2)), (seq,)
    yield "gru", Net(lambda m, x: m.a(x)[0], a=nn.GRU(6, 4, 2, batch_first=True, bidirectional=True)), (seq,)
    yield "rnn", Net(lambda m, x: m.a(x)[0], a=nn.RNN(6, 4)), (seq,)
    yield "lstm_cell", Net(lambda m, x: m.a(x)[0], a=nn.LSTMCell(6, 4)), (rows,)
    yield "gru_cell", Net(lambda m, x: m.a(x), a=nn.GRUCell(6, 4)), (rows,)
    logits, labels = draw(7, 5), ints(5, 7)
    labels[2] = -100
    yield "ce", Net(lambda m, x, y: F.cross_entropy(x, y)), (logits, labels)
    yield "ce_sum", Net(lambda m, x, y: F.cross_entropy(x, y, reduction="sum")), (logits, labels)
    yield "ce_none", Net(lambda m, x, y: F.cross_entropy(x, y, reduction="none")), (logits, labels)
    yield "ce_ignore", Net(lambda m, x, y: F.cross_entropy(x, y, ignore_index=1)), (logits, ints(5, 7))
    yield "ce_smooth", Net(lambda m, x, y: F.cross_entropy(x, y, label_smoothing=0.1)), (logits, labels)
    yield "ce_weight", Net(lambda m, x, y: F.cross_entropy(x, y, weight=torch.arange(1.0, 6.0))), (logits, labels)
    yield "ce_weight_smooth", Net(lambda m, x, y: F.cross_entropy(x, y, weight=torch.arange(1.0, 6.0), label_smoothing=0.2)), (logits, labels)
    yield "ce_image", Net(lambda m, x, y: F.cross_entropy(x, y)), (image, ints(4, 2, 9, 7))
    yield "ce_soft", Net(lambda m, x, y: F.cross_entropy(x, y.softmax(1))), (logits, draw(7, 5, seed=9))
    yield "nll", Net(lambda m, x, y: F.nll_loss(x.log_softmax(1), y)), (logits, labels)
    yield "autocast_off", WithoutAutocast(), (seq,)
    with torch.no_grad():
        yield "two_names", TwoNames(), (draw(4).abs() + 1, draw(4, seed=5).abs() + 1)
    yield "tied", Net(lambda m, x: F.linear(m.e(x), m.e.weight), e=nn.Embedding(7, 4)), (ints(7, 2, 3),)


class Block(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b)
        self.c2, self.b2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
        self.down = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b)) if a != b or stride != 1 else None

    def forward(self, x):
        y = self.b2(self.c2(F.relu(self.b1(self.c1(x)), inplace=True)))
        y += x if self.down is None else self.down(x)
        return F.relu(y, inplace=True)


def resnet(width=4):
    w = [width, 2 * width, 4 * width, 8 * width]
    layers = [nn.Conv2d(3, w[0], 7, 2, 3, bias=False), nn.BatchNorm2d(w[0]), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    a = w[0]
    for i, b in enumerate(w):
        layers += [Block(a, b, 1 if i == 0 else 2), Block(b, b, 1)]
        a = b
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(a, 10))


class Attention(nn.Module):
    def __init__(self, C, heads, T, flash):
        super().__init__()
        self.attn, self.proj, self.heads, self.flash = nn.Linear(C, 3 * C), nn.Linear(C, C), heads, flash
        self.register_buffer("mask", torch.tril(torch.ones(T, T)).view(1, 1, T, T), persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.attn(x).split(C, 2))
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            a = (q @ k.transpose(-2, -1)) * (1.0 / (C // self.heads) ** 0.5)
            y = F.softmax(a.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf")), -1) @ v
        return self.proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Decoder(nn.Module):
    """A decoder with learned positions and tied embeddings, as GPT-2."""

    def __init__(self, V=17, C=12, T=8, layers=2, heads=3, flash=True):
        super().__init__()
        self.wte, self.wpe, self.ln = nn.Embedding(V, C), nn.Embedding(T, C), nn.LayerNorm(C)
        self.h = nn.ModuleList(nn.ModuleDict(dict(l1=nn.LayerNorm(C), a=Attention(C, heads, T, flash), l2=nn.LayerNorm(C), m=nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C)))) for _ in range(layers))
        self.head = nn.Linear(C, V, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe(torch.arange(ids.size(1)))
        for h in self.h:
            x = x + h["a"](h["l1"](x))
            x = x + h["m"](h["l2"](x))
        return F.cross_entropy(self.head(self.ln(x)).view(-1, 17), labels.view(-1), ignore_index=-1)


class Encoder(nn.Module):
    """Bidirectional, with a padding mask made of data, as BERT."""

    def __init__(self):
        super().__init__()
        self.e, self.p, self.ln, self.out = nn.Embedding(13, 8, padding_idx=0), nn.Embedding(6, 8), nn.LayerNorm(8), nn.Linear(8, 13)
        self.t = nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))
        self.f = nn.ModuleList(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(approximate="tanh"), nn.Linear(16, 8)) for _ in range(2))
        self.register_buffer("ids", torch.arange(6)[None])

    def forward(self, ids):
        x = self.ln(self.e(ids) + self.p(self.ids[:, : ids.size(1)]))
        seen = (ids != 0)[:, None, None, :]
        for a, f in zip(self.t, self.f):
            q, k, v = F.linear(x, a.in_proj_weight, a.in_proj_bias).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind(0)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen.expand(-1, 2, 6, 6))
            x = x + a.out_proj(y.transpose(1, 2).flatten(2))
            x = x + f(x)
        return self.out(x)


class Rotary(nn.Module):
    """RMS norms, rotary positions under no_grad, shared key heads and a gated feed-forward part, as Llama."""

    def __init__(self):
        super().__init__()
        self.e, self.n1, self.n2, self.q, self.k, self.v, self.o = nn.Embedding(11, 16), nn.RMSNorm(16), nn.RMSNorm(16), nn.Linear(16, 16, bias=False), nn.Linear(16, 8, bias=False), nn.Linear(16, 8, bias=False), nn.Linear(16, 16, bias=False)
        self.g, self.u, self.d = nn.Linear(16, 24, bias=False), nn.Linear(16, 24, bias=False), nn.Linear(24, 16, bias=False)
        self.register_buffer("inv_freq", 1.0 / (10000 ** (torch.arange(0, 4, 2) / 4)), persistent=False)

    def forward(self, ids):
        x = self.e(ids)
        B, T, C = x.shape
        with torch.no_grad():
            f = torch.outer(torch.arange(T, device=x.device).to(x.dtype), self.inv_freq)
            f = torch.cat([f, f], -1)
            cos, sin = f.cos(), f.sin()
        y = self.n1(x)
        q, k, v = (t.view(B, T, -1, 4).transpose(1, 2) for t in (self.q(y), self.k(y), self.v(y)))
        turn = lambda t: t * cos + torch.cat([-t[..., 2:], t[..., :2]], -1) * sin
        k, v = (t[:, :, None].expand(-1, -1, 2, -1, -1).reshape(B, 4, T, 4) for t in (turn(k), v))
        mask = torch.full((T, T), float("-inf")).triu(1)
        y = F.scaled_dot_product_attention(turn(q), k, v, attn_mask=mask)
        x = x + self.o(y.transpose(1, 2).reshape(B, T, C))
        y = self.n2(x)
        return x + self.d(F.silu(self.g(y)) * self.u(y))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.up, self.c = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1), nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x):
        a = self.a(x).relu()
        return self.c(torch.cat([a, self.up(self.b(F.max_pool2d(a, 2)).relu())], 1)).sigmoid()


def inverted_residual():
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(inplace=True), nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU6(inplace=True), nn.Conv2d(8, 4, 1, bias=False), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(4, 5))


class WithoutAutocast(nn.Module):
    """A region that turns autocast off, as code of rotary positions has it, inside of another one without gradients."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 4)
        self.register_buffer("f", torch.arange(4.0))

    def forward(self, x):
        y = self.a(x)
        with torch.autocast("cpu", enabled=False):
            z = y * self.f.cos()
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            q = y * 2
        return z + q * y


class TwoNames(nn.Module):
    """A constant under two names, and a tensor that a quotient is written into, whole and through a view."""

    def __init__(self):
        super().__init__()
        self.a = torch.arange(1.0, 5.0)
        self.b = self.a.detach()
        self.register_buffer("kept", torch.zeros(4))

    def forward(self, x, y):
        t = torch.zeros(2, 4)
        torch.div(x, y, out=t[0])
        torch.div(y, x, out=self.kept).mul_(2)
        return x + self.a.cos() + self.b.cos(), t + 1, self.kept + 1


def whole():
    image, ids = draw(2, 3, 40, 40), ints(17, 2, 8)
    labels = ints(17, 2, 8).flip(0)
    labels[0, 3] = -1
    yield "whole_mlp", nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.LayerNorm(9), nn.Linear(9, 4)), (draw(5, 6),)
    yield "whole_resnet", resnet(), (image,)
    yield "whole_mobilenet", inverted_residual(), (image,)
    yield "whole_gpt", Decoder(), (ids, labels)
    yield "whole_gpt_eager", Decoder(flash=False), (ids, labels)
    yield "whole_bert", Encoder(), (torch.tensor([[3, 5, 1, 12, 0, 0], [7, 7, 2, 9, 4, 0]]),)
    yield "whole_llama", Rotary(), (ints(11, 2, 5),)
    yield "whole_lstm", Net(lambda m, x: m.o(m.l(m.e(x))[0]), e=nn.Embedding(17, 6), l=nn.LSTM(6, 8, 2, batch_first=True), o=nn.Linear(8, 17)), (ids,)
    yield "whole_unet", UNet(), (draw(2, 1, 8, 8),)
    yield "whole_vit", Net(lambda m, x: m.o(m.t(m.p(x).flatten(2).transpose(1, 2) + m.pos).mean(1)), p=nn.Conv2d(3, 8, 8, 8), pos=nn.Parameter(draw(1, 25, 8)), t=nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True), 2, enable_nested_tensor=False), o=nn.Linear(8, 4)), (image,)


def cases():
    torch.manual_seed(0)
    yield from whole()
    for name, fn in UNARY.items():
        yield "unary_" + name, Cases([fn]), (CORNERS,)
    for name, fn in POSITIVE.items():
        yield "positive_" + name, Cases([fn]), (draw(12).abs() + 0.1,)
    for name, fn in BINARY.items():
        yield "binary_" + name, Cases([fn]), (draw(4, 6), draw(4, 6, seed=5))
    for name, fn in SHAPE.items():
        yield "shape_" + name, Cases([fn]), (draw(2, 3, 4),)
    for name, fn in ORDER.items():
        yield "order_" + name, Cases([fn]), (draw(2, 3, 4),)
    for name, fn in RARE.items():
        yield "rare_" + name, Cases([fn]), (draw(2, 3, 4),)
    for name, fn in EDGES.items():
        yield "edges_" + name, Cases([fn]), (draw(2, 3, 4),)
    for name, fn in VOLUMES.items():
        yield "volumes_" + name, Cases([fn]), (draw(2, 3, 5, 6, 4),)
    for name, fn in IMAGES.items():
        yield "images_" + name, Cases([fn]), (draw(2, 4, 6, 5),)
    for name, fn in WRITTEN.items():
        yield "written_" + name, Cases([fn]), (draw(2, 3, 4),)
    for name, fn in PLACES.items():
        yield "places_" + name, Cases([fn]), (draw(2, 3, 8, 6),)
    for name, fn in PLACES_3D.items():
        yield "places3d_" + name, Cases([fn]), (draw(1, 3, 4, 4, 4),)
    for name, fn in SPECIAL.items():
        yield "special_" + name, Cases([fn]), (CORNERS,)
    for name, fn in SPECIAL_2.items():
        yield "special2_" + name, Cases([fn]), (draw(4, 6), draw(4, 6, seed=5))
    torch.manual_seed(0)
    yield from layers()


# Where elements lie: positions of maxima and maxima put back, places in an image, strides, filters as wide as the step.
def _grid(x):
    return torch.stack([x[:, 0] * 0.9, x[:, 1] * 0.8], -1)


PLACES = {"unpool": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
          "unpool_overlapping": lambda x: F.max_unpool2d(*F.max_pool2d(x, 3, 2, 1, return_indices=True), 3, 2, 1, output_size=x.shape),
          "unpool_between": lambda x: (lambda v, i: F.max_unpool2d(F.relu(v * 2), i, (2, 2), output_size=x.shape) * x)(*F.max_pool2d(x, 2, return_indices=True)),
          "unpool1d": lambda x: F.max_unpool1d(*F.max_pool1d(x[0], 2, return_indices=True), 2), "unpool_alone": lambda x: F.max_unpool2d(*F.max_pool2d(x[0], 2, return_indices=True), 2),
          "positions": lambda x: F.max_pool2d(x, 3, 2, 1, dilation=2, ceil_mode=True, return_indices=True)[1], "positions_tie": lambda x: F.max_pool2d(x.round(), 3, 1, return_indices=True)[1],
          "positions_nan": lambda x: F.max_pool2d(torch.where(x > 1, torch.nan, x), (3, 2), (2, 1), (1, 0), return_indices=True)[1],
          "positions_indexed": lambda x: (lambda y: y.flatten()[F.max_pool2d(y[None], 2, return_indices=True)[1]])(x[0, 0]), "positions_stacked": lambda x: (lambda i: torch.stack([i, i + 1]))(F.max_pool2d(x, 2, return_indices=True)[1]), "positions_joined": lambda x: torch.cat([F.max_pool2d(x, 2, return_indices=True)[1]]),
          "positions_least": lambda x: F.max_pool2d(torch.full_like(x, -torch.inf), 3, 1, 1, dilation=(1, 2), return_indices=True)[1],
          "unpool_infinite": lambda x: F.max_unpool2d(*F.max_pool2d(torch.where(x > 1.5, torch.inf, x.masked_fill(x < -0.5, -torch.inf)), 2, return_indices=True), 2), "unpool_infinite_overlapping": lambda x: F.max_unpool2d(*F.max_pool2d(torch.where(x > 1.5, torch.inf, x).detach(), 3, 2, 1, return_indices=True), 3, 2, 1, output_size=x.shape),
          "grid_nan": lambda x: F.grid_sample(x.detach(), torch.where(x[:, :2] > 0.5, torch.nan, x[:, :2]).permute(0, 2, 3, 1).detach(), padding_mode="border", align_corners=False),
          "strided_none": lambda x: (x * 2).as_strided((0, 3), (4, 1)), "strided_one": lambda x: (x * 2).as_strided((1, 3), (2**40, 1)), "strided": lambda x: (x * 2).as_strided((3, 2), (6, 1), 1), "strided_overlapping": lambda x: (x + 1).reshape(-1).as_strided((5, 4), (4, 2)), "strided_again": lambda x: (x * 3).as_strided((2, 3, 4), (0, 4, 1), 2),
          "smooth": lambda x: F.interpolate(x, size=(5, 3), mode="bilinear", antialias=True), "smooth_more": lambda x: F.interpolate(x, size=(3, 11), mode="bilinear", antialias=True, align_corners=True),
          "smooth_one": lambda x: F.interpolate(x, size=(1, 1), mode="bicubic", antialias=True), "smooth_cubes": lambda x: F.interpolate(x, size=(3, 11), mode="bicubic", antialias=True), "smooth_factor": lambda x: F.interpolate(x, scale_factor=0.6, mode="bicubic", antialias=True)}
PLACES |= {f"cubes_{p}_{c}": (lambda p, c: lambda x: F.grid_sample(x, _grid(x), mode="bicubic", padding_mode=p, align_corners=c))(p, c) for p in ("zeros", "border", "reflection") for c in (True, False)}
PLACES_3D = {f"volume_{m}_{p}_{c}": (lambda m, p, c: lambda x: F.grid_sample(x, x.movedim(1, -1) * 0.9, mode=m, padding_mode=p, align_corners=c))(m, p, c)
             for m in ("bilinear", "nearest") for p in ("zeros", "border", "reflection") for c in (True, False)}
PLACES_3D |= {"unpool": lambda x: F.max_unpool3d(*F.max_pool3d(x, 2, return_indices=True), 2), "unpool_overlapping": lambda x: F.max_unpool3d(*F.max_pool3d(x, 3, 2, 1, return_indices=True), 3, 2, 1, output_size=x.shape)}


# Of x [2,4,4] and y [2,4,2]; vectors of singular values are compared where their signs cancel.
_FOUR = torch.diag(torch.tensor([3., -2, 4, 1]))
_ID4 = torch.eye(4)
FACTORS = {"det": lambda x, y: torch.linalg.det(x + _FOUR), "det3": lambda x, y: torch.det(x[..., :3, :3]), "det3_singular": lambda x, y: torch.det(x[..., :3, :1] @ x[..., :1, :3]), "det2": lambda x, y: torch.linalg.det(x[..., 1:3, :2]), "det1": lambda x, y: torch.det(x[0, :1, :1]),
           "det_triangle": lambda x, y: torch.linalg.det(torch.triu(x - 2 * _ID4)), "det_swapped": lambda x, y: torch.linalg.det((x + _FOUR)[..., [1, 0, 2, 3], :]), "slogdet": lambda x, y: torch.linalg.slogdet(x + _FOUR)[0], "slogdet_log": lambda x, y: torch.linalg.slogdet(x + _FOUR)[1], "slogdet3": lambda x, y: torch.slogdet(x[..., :3, 1:])[0],
           "logdet": lambda x, y: torch.logdet(x @ x.mT + _ID4), "logdet_below": lambda x, y: torch.logdet(-_ID4[:3, :3] + 0 * x[0, :3, :3].detach()),
           "qr_q": lambda x, y: torch.linalg.qr(x)[0], "qr_r": lambda x, y: torch.linalg.qr(x)[1], "qr_tall": lambda x, y: torch.qr(y)[0], "qr_tall_r": lambda x, y: torch.qr(y)[1], "qr_wide": lambda x, y: torch.linalg.qr(x[:, :2])[1], "qr_wide_q": lambda x, y: torch.linalg.qr(x[:, :2])[0], "qr_triangle": lambda x, y: torch.linalg.qr(torch.triu(x - 2 * _ID4))[0], "qr_only_r": lambda x, y: torch.linalg.qr(x.detach(), mode="r")[1],
           "reflections": lambda x, y: torch.linalg.householder_product(x, y[:, :3, 0]), "svd": lambda x, y: (lambda u, s, v: u @ torch.diag_embed(s * s) @ v)(*torch.linalg.svd(x)), "svd_wide": lambda x, y: (lambda u, s, v: u @ torch.diag_embed(s.sqrt()) @ v)(*torch.linalg.svd(y.mT, full_matrices=False)), "svd_old": lambda x, y: (lambda u, s, v: u @ torch.diag_embed(s.exp()) @ v.mT)(*torch.svd(y)), "svd_values": lambda x, y: torch.linalg.svd(y, full_matrices=True)[1],
           "pinv": lambda x, y: torch.linalg.pinv(y), "pinv_wide": lambda x, y: torch.linalg.pinv(y.mT), "pinv_flat": lambda x, y: torch.linalg.pinv(y[..., :1] @ y[..., :1].mT, rtol=1e-6), "pinverse": lambda x, y: torch.pinverse(x), "pinv_atol": lambda x, y: torch.linalg.pinv(y, atol=1e-3),
           "rank": lambda x, y: torch.linalg.matrix_rank(y @ y.mT), "rank_tol": lambda x, y: torch.linalg.matrix_rank(x, tol=1.5), "cond": lambda x, y: torch.linalg.cond(x), "cond_less": lambda x, y: torch.linalg.cond(y, -2),
           "exp": lambda x, y: torch.linalg.matrix_exp(x), "exp_large": lambda x, y: torch.matrix_exp(x * 3), "exp_zero": lambda x, y: torch.matrix_exp(x * 0), "triangular": lambda x, y: torch.triangular_solve(y, x + 3 * _ID4)[0], "triangular_lower": lambda x, y: torch.triangular_solve(y, x + 3 * _ID4, upper=False, transpose=True)[0]}
FACTORS |= {f"norm_{o}": (lambda o: lambda x, y: torch.linalg.matrix_norm(x + y[..., :1], o))(o) for o in (1, -1, 2, -2, torch.inf, -torch.inf, "nuc")}
FACTORS |= {"norm_axes": lambda x, y: torch.linalg.norm(y, 1, dim=(2, 0), keepdim=True), "norm_nuc": lambda x, y: torch.linalg.norm(x[0], "nuc"), "norm_double": lambda x, y: torch.linalg.vector_norm(x.float(), dtype=torch.float64),
            "least_of": lambda x, y: torch.clamp_min(x, x[0, 0].detach() * 0.5 + y.mT[0, 0]), "most_of": lambda x, y: torch.clamp_max(x, y[..., :1]), "copies": lambda x, y: torch.ops.aten.permute_copy(torch.ops.aten.view_copy(x, [4, 8]), [1, 0]), "expanded": lambda x, y: torch.ops.aten.expand_copy(y[..., :1], [2, 4, 3]),
            "groups": lambda x, y: torch.ops.aten.native_group_norm(x, None, None, 2, 4, 4, 2, 0.1)[0], "safe": lambda x, y: torch.ops.aten._safe_softmax(x.masked_fill(x < x.mean(-1, keepdim=True), -torch.inf), -1), "safe_none": lambda x, y: torch.ops.aten._safe_softmax(torch.where(_ID4[0] > 0, -torch.inf, x), -2), "repeats": lambda x, y: y[0].repeat(2, 70, 3), "repeats_none": lambda x, y: y.repeat(1, 0, 1),
            "cosine_wide": lambda x, y: F.cosine_similarity(x[:1], y[:, 1:2, :1], dim=-2), "cosine_numbers": lambda x, y: F.cosine_similarity(x[0, 0, 0], y[0, 0, 0], dim=0), "cumprod_number": lambda x, y: torch.cumprod(x[0, 0, 0], 0), "argmax_number": lambda x, y: torch.argmax(x[0, 0, 0], 0)}

# Of x [2,3,4]; an identity keeps matrices regular.
_EYE = torch.eye(3)
MATRICES = {"inv_ex": lambda x: torch.linalg.inv_ex(x[..., :3] + 4 * _EYE)[0], "solve_ex": lambda x: torch.linalg.solve_ex(x[..., :3] + 4 * _EYE, x)[0], "solve_ex_right": lambda x: torch.linalg.solve_ex(x[..., :3] + 4 * _EYE, x.mT, left=False)[0], "cholesky_ex": lambda x: torch.linalg.cholesky_ex(x @ x.mT + _EYE)[0], "cholesky_ex_upper": lambda x: torch.linalg.cholesky_ex(x @ x.mT + _EYE, upper=True)[0],
            "cholesky_solve": lambda x: torch.cholesky_solve(x, x[..., :3].tril() + 3 * _EYE), "cholesky_solve_upper": lambda x: torch.cholesky_solve(x, x[..., :3].triu() + 3 * _EYE, upper=True), "cholesky_inverse": lambda x: torch.cholesky_inverse(x[..., :3].tril() + 3 * _EYE), "cholesky_inverse_upper": lambda x: torch.cholesky_inverse(x[..., :3].triu() + 3 * _EYE, upper=True),
            "triangle_unread": lambda x: torch.cholesky_solve(x, (x[..., :3].tril() + 3 * _EYE + torch.full((3, 3), torch.inf, dtype=x.dtype).triu(1)).detach()), "triangle_other": lambda x: torch.cholesky_solve(x, x[..., :3] + 3 * _EYE),
            "vander": lambda x: torch.linalg.vander(x), "vander_more": lambda x: torch.linalg.vander(x[0] * (x[0] > 0), N=6), "dist": lambda x: torch.dist(x[0], x[1, :1]), "dist_zero": lambda x: torch.dist(x, x * 1.0), "dist_1": lambda x: torch.dist(x[0], x[1], 1), "dist_3": lambda x: torch.dist(x[0], x[1], 3), "dist_least": lambda x: torch.dist(x[0], x[1], -torch.inf), "dist_minus": lambda x: torch.dist(x[0], x[1], -2), "dist_inf": lambda x: torch.dist(x[0], x[1], torch.inf), "dist_none": lambda x: torch.dist(x[0].detach(), x[1].detach(), 0) + x,
            "norm_all": lambda x: torch.linalg.norm(x), "norm_plane": lambda x: torch.linalg.norm(x, dim=(0, 2), keepdim=True), "norm_row": lambda x: torch.linalg.norm(x, 3, dim=1), "norm_list": lambda x: torch.linalg.norm(x[0, 0], torch.inf), "norm_least": lambda x: torch.linalg.norm(x, -torch.inf, dim=-1), "norm_zero": lambda x: torch.linalg.norm(x * 0, dim=2), "norm_fro": lambda x: torch.linalg.norm(x, "fro", dim=(1, 2)) + torch.linalg.norm(x[0], "fro")}


# A write in place through a view that has all elements, maybe in another order: of a tensor [2,3,4]; and what is no view.
def _through(view, x):
    y = x * 2
    v = view(y)
    v.mul_(torch.arange(1.0, v.numel() + 1).reshape(v.shape).to(v.dtype))
    return y


WRITTEN = {k: (lambda v: lambda x: _through(v, x))(v) for k, v in {"swapaxes": lambda y: y.swapaxes(0, 2), "swapdims": lambda y: y.swapdims(-1, 0), "transpose": lambda y: y.transpose(1, -1), "movedim": lambda y: y.movedim(0, 2), "movedims": lambda y: y.movedim((0, 2), (1, 0)),
           "moveaxis": lambda y: y.moveaxis(-1, 0), "mT": lambda y: y.mT, "adjoint": lambda y: y[0].adjoint(), "matrix_H": lambda y: y[1].H, "T": lambda y: y[0].T, "T3": lambda y: y.T, "t": lambda y: y[1].t(), "permute": lambda y: y.permute(2, 0, 1), "view": lambda y: y.view(4, 6), "flatten": lambda y: y.flatten(1),
           "unflatten": lambda y: y.unflatten(2, (2, 2)), "new": lambda y: y[:, None].squeeze(1), "expand": lambda y: y.expand(1, 2, 3, 4), "deep": lambda y: y.swapaxes(0, 2).movedim(1, 0)[1].T, "other": lambda y: y.to(torch.float32), "copied": lambda y: y.to(torch.float64, copy=True), "same": lambda y: y.to(torch.float64), "contiguous": lambda y: y.contiguous(),
           "channels": lambda y: y[None].contiguous(memory_format=torch.channels_last), "turned": lambda y: y.mT.reshape(2, 12),
           "channels_there": lambda y: y[None].permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last), "channels_to": lambda y: y[None].permute(0, 3, 1, 2).to(torch.float64, memory_format=torch.channels_last), "channels_away": lambda y: y[None].permute(0, 3, 1, 2).contiguous(), "turned_same": lambda y: y.mT.to(torch.float64), "channels_other": lambda y: y[None].to(torch.float64, memory_format=torch.channels_last),
           "channels_one_to": lambda y: y[:, None].to(torch.float64, memory_format=torch.channels_last), "channels_pixel": lambda y: y.reshape(2, 12, 1, 1).to(torch.float64, memory_format=torch.channels_last), "type_as": lambda y: y.mT.type_as(y), "channels_one": lambda y: y[:, :1, None].contiguous(memory_format=torch.channels_last), "part": lambda y: y[:, 1:].reshape(2, 8), "part_flat": lambda y: y[:, :2].flatten(1), "part_copied": lambda y: y[..., :2].reshape(2, 6), "part_split": lambda y: y[..., 1:].reshape(6, 3), "turned_split": lambda y: y.mT.reshape(2, 2, 2, 3), "turned_one": lambda y: y.mT.reshape(1, 2, 4, 1, 3), "turned_ravel": lambda y: y[0, 1:].ravel(), "stepped": lambda y: y[:, ::2].reshape(2, 1, 8), "stepped_flat": lambda y: y.flatten()[::2].reshape(3, 4)}.items()}


# What is drawn differs from PyTorch's; what holds of it does not.
def _near(x, want, by):
    return (x.double().mean() - want).abs() < by


DRAWN = {"exponential": lambda x: _near(torch.empty_like(x).exponential_(2.0), 0.5, 0.05), "exponential_ends": lambda x: (torch.empty_like(x).exponential_() > 0).all(), "gumbel": lambda x: F.gumbel_softmax(x, hard=True).sum(1).round(),
         "gumbel_of": lambda x: _near(F.gumbel_softmax(x * 0 + torch.tensor([0.0, 0.6931471805599453]).repeat(2), hard=True)[:, 1::2].sum(1), 2 / 3, 0.07), "normal_mean": lambda x: _near(torch.normal(x * 0 + 3, 0.5), 3, 0.05),
         "normal_std": lambda x: _near(torch.normal(2.0, x * 0 + 4).sub(2).square(), 16, 1.5), "normal_wide": lambda x: _near(torch.normal(x.float(), x.abs() + 1) - x, 0, 0.15), "randperm_none": lambda x: torch.randperm(0), "normal_both": lambda x: _near(torch.normal(x, x.abs() + 1) - x, 0, 0.15), "randint": lambda x: (lambda r: (r.min(), r.max(), _near(r, 4.5, 0.1))[0])(torch.randint(3, 7, (2000,))),
         "randint_max": lambda x: torch.randint(3, 7, (2000,)).max(), "randint_mean": lambda x: _near(torch.randint(10, (4000,)), 4.5, 0.25), "randint_like": lambda x: torch.randint_like(x, -2, 3).amin(), "randperm": lambda x: torch.randperm(50).sort()[0], "randperm_moves": lambda x: (torch.randperm(50) != torch.arange(50)).any(),
         "multinomial_all": lambda x: x[:3].softmax(1).multinomial(4).sort(1)[0], "multinomial": lambda x: _near(torch.multinomial(torch.tensor([1.0, 0.0, 3.0]), 3000, replacement=True), 1.5, 0.06), "multinomial_zero": lambda x: (torch.multinomial(torch.tensor([1.0, 0.0, 3.0]), 2) != 1).all(),
         "multinomial_rows": lambda x: _near(x.softmax(1).mul(0).add(torch.tensor([2.0, 0, 0, 1])).multinomial(1), 1, 0.25), "multinomial_again": lambda x: _near((x[:9] * 0 + torch.tensor([2.0, 0, 0, 1])).multinomial(300, True), 1, 0.1),
         "alpha": lambda x: _near(F.alpha_dropout(x, 0.3, True), x.mean(), 0.1), "alpha_square": lambda x: _near(F.alpha_dropout(x, 0.3, True).square(), 1, 0.15), "alpha_channels": lambda x: (lambda y: (y == y[:, :, :1]).all())(F.feature_alpha_dropout(x[:, :, None].expand(-1, -1, 3) * 0, 0.5, True)),
         "alpha_none": lambda x: F.alpha_dropout(x[:2], 0.3, False) * x[:2]}


# Integers of 32 bits, which float32 does not hold, and of 8 and 16, which wrap; x [6,5] and y [4,5]. Floats beyond.
_AT = torch.tensor([3, 0, 5, 1])
_TWICE = torch.tensor([2, 4, 2, 2])
_ENDLESS = torch.tensor([3., 3, torch.inf, -torch.inf, torch.inf, -2, 2.5])
INTEGERS = {"put": lambda x, y: x.index_put((_AT,), y), "put_added": lambda x, y: (x >> 3).index_put((_TWICE,), y >> 4, accumulate=True), "scatter": lambda x, y: x.scatter(0, _AT[:, None].expand(4, 5), y),
            "scatter_add": lambda x, y: (x >> 3).scatter_add(0, _TWICE[:, None].expand(4, 5), y >> 4), "minus": lambda x, y: (x >> 1).scatter_add(0, torch.zeros(900, 5, dtype=torch.int64), -torch.ones(900, 5, dtype=torch.int64)),
            "copied": lambda x, y: x.index_copy(0, _AT, y), "added": lambda x, y: (x >> 3).index_add(0, _TWICE, y >> 6, alpha=3), "filled": lambda x, y: x.index_fill(0, _AT, 2**30 + 7), "placed": lambda x, y: x.put(torch.tensor([7, 29, 0, 3]), y[:, 1]),
            "placed_added": lambda x, y: (x >> 3).put(torch.tensor([7, 7, 0, 3]), y[:, 1] >> 3, accumulate=True), "same": lambda x, y: x.index_put((torch.zeros(300, dtype=torch.int64),), y[0].expand(300, 5)),
            "sums": lambda x, y: (x >> 4).cumsum(0), "sums_bool": lambda x, y: (x > 0).cumsum(1), "sums_byte": lambda x, y: x.to(torch.uint8).cumsum(0, dtype=torch.uint8).long(), "sums_short": lambda x, y: x.to(torch.int16).cumsum(0, dtype=torch.int16).long(),
            "added_short": lambda x, y: x.to(torch.int16).index_add(0, _TWICE, y.to(torch.int16)).long(), "put_byte": lambda x, y: x.to(torch.uint8).index_put((_AT,), y.to(torch.uint8)).long(), "put_bool": lambda x, y: (x > 0).index_put((_AT,), y > 0).long(),
            "masked": lambda x, y: x.masked_scatter(x > 0, x.flip(0)), "gathered": lambda x, y: x.gather(0, _AT[:, None].expand(4, 5)), "gathered_number": lambda x, y: x[0, 0].gather(0, torch.tensor([0, 0])),
            "steps": lambda x, y: torch.linspace(-3, 8.7, 9, dtype=torch.int64), "steps_down": lambda x, y: torch.linspace(50, 1.5, 8, dtype=torch.int32), "step": lambda x, y: torch.linspace(4.3, 9, 1, dtype=torch.int64), "no_step": lambda x, y: torch.linspace(4, 9, 0),
            "undiffered": lambda x, y: x.diff(0, 0, prepend=y), "sum_of_one": lambda x, y: x[0, 0].sign().logsumexp(0), "halves": lambda x, y: torch.linspace(0, 1, 7) + torch.linspace(5, -1, 7, dtype=torch.float64),
            "remainder": lambda x, y: torch.remainder(x[0, :1].double().sign() * torch.tensor([5.5, -5.5, 3, 7, -3, 0, 7.75]), _ENDLESS), "fmod": lambda x, y: torch.fmod(x[0, :1].double().sign() * torch.tensor([5.5, -5.5, 3, 7, -3, 0, 7.75]), _ENDLESS)}


def _whole(*shape):
    return torch.randint(-2**31, 2**31, shape, generator=torch.Generator().manual_seed(sum(shape)))


def fixtures():
    yield "unary", Cases([f for k, f in UNARY.items() if k != "hardsigmoid"]), (CORNERS,)
    yield "positive", Cases(list(POSITIVE.values())), (draw(12).abs() + 0.1,)
    yield "binary", Cases(list(BINARY.values())), (draw(4, 6), draw(4, 6, seed=5))
    yield "shape", Cases(list(SHAPE.values())), (draw(2, 3, 4),)
    yield "order", Cases(list(ORDER.values())), (draw(2, 3, 4),)
    yield "rare", Cases(list(RARE.values())), (draw(2, 3, 4),)
    yield "edges", Cases(list(EDGES.values())), (draw(2, 3, 4),)
    yield "volumes", Cases(list(VOLUMES.values())), (draw(2, 3, 5, 6, 4),)
    yield "images", Cases(list(IMAGES.values())), (draw(2, 4, 6, 5),)
    yield "special", Cases(list(SPECIAL.values())), (CORNERS,)
    yield "special2", Cases(list(SPECIAL_2.values())), (draw(4, 6), draw(4, 6, seed=5))
    yield "drawn", Cases(list(DRAWN.values())), (draw(700, 4),)
    yield "factors", Cases(list(FACTORS.values())), (draw(2, 4, 4), draw(2, 4, 2))
    yield "integers", Cases(list(INTEGERS.values())), (_whole(6, 5), _whole(4, 5))
    yield "matrices", Cases(list(MATRICES.values())), (draw(2, 3, 4),)
    yield "written", Cases(list(WRITTEN.values())), (draw(2, 3, 4),)
    yield "places", Cases(list(PLACES.values())), (draw(2, 3, 8, 6),)
    yield "places3d", Cases(list(PLACES_3D.values())), (draw(1, 3, 4, 4, 4),)
    torch.manual_seed(0)
    for case in layers():
        if case[0] in FIXTURES:
            yield case


FIXTURES = set("bilinear_form conv_chain conv_cat deconv avg_pool_ceil_pad bilinear encoder lstm lstm_projected attention_computed attention_sliding attention_narrow_values attention_gqa attention_bias attention_blind_bias ce_smooth batch_norm embedding tied conv3d max_pool3d avg_pool3d bags triangle_indices dropout_in_place bag_max groups groups_whole pdist stft complex complex_views bools bag_frequency embedding_frequency norm_twice weight_norm_whole spectral_norm conv3d_same deconv3d autocast_off two_names".split())


def write_planes(path):
    """1x1 convolutions over planes in float32: tests/import/test_exact.c."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Conv2d(3, 20, 1), nn.ReLU(), nn.Conv2d(20, 7, 1, bias=False)).float()
    torch.export.save(torch.export.export(net, (draw(2, 3, 5, 7).float(),), strict=False), path)
    strip(path)


class Rotary(nn.Module):
    """Angles of rotary positions, computed where autocast is off, of positions and frequencies that the policy would narrow."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(1, 1, bias=False)
        self.register_buffer("frequency", 10000.0 ** -(torch.arange(8.0) / 8))

    def forward(self, positions):
        x = self.scale(positions)
        with torch.autocast("cpu", enabled=False):
            angles = self.frequency[:, None].float() @ x.transpose(0, 1).float()
            return angles.cos()


def write_rotary(path):
    """In float32, under a narrow policy: tests/import/test_autocast.c."""
    net = Rotary().float()
    nn.init.ones_(net.scale.weight)
    torch.export.save(torch.export.export(net, (torch.arange(64.0).float()[:, None] * 4,), strict=False), path)
    strip(path)


class Refused(nn.Module):
    """A write in place through a view that is refused when a step is built."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 3)

    def forward(self, rows):
        y = self.a(rows)
        y.as_strided((3, 8), (1, 3)).mul_(2)
        return y


def write_refused(path):
    """In float32: tests/cli/test_import.sh."""
    torch.export.save(torch.export.export(Refused().float(), (draw(8, 4).float(),), strict=False), path)
    strip(path)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("--only", default="")
    p.add_argument("--fixtures", action="store_true")
    p.add_argument("--planes", action="store_true", help="FOLDER/planes.pt2 alone, in float32")
    p.add_argument("--rotary", action="store_true", help="FOLDER/rotary.pt2 alone, in float32")
    p.add_argument("--refused", action="store_true", help="FOLDER/refused.pt2 alone, in float32")
    o = p.parse_args()
    os.makedirs(o.folder, exist_ok=True)
    if o.planes:
        return write_planes(os.path.join(o.folder, "planes.pt2"))
    if o.refused:
        return write_refused(os.path.join(o.folder, "refused.pt2"))
    if o.rotary:
        return write_rotary(os.path.join(o.folder, "rotary.pt2"))
    made = 0
    for name, module, inputs in fixtures() if o.fixtures else cases():
        if o.only in name:
            made += write(o.folder, name, module, inputs, o.fixtures)
    print(f"{made} archives in {o.folder}")


if __name__ == "__main__":
    main()
