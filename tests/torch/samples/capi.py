"""The C API of include/anneal.h for the sample campaign (tools/pytorch_samples.py): the shared library through ctypes,
and a tensor with operators. A refused call raises Refused with the library's sentence.

Does not: broadcast, promote or default anything that anneal.h does not, but for Python numbers beside a tensor."""
import ctypes as C
import random

import torch

F32, BF16, F16, F64, I32, I64, U8, BOOL = range(8)
TORCH = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool]
OF = {t: i for i, t in enumerate(TORCH)}
FLOATS = (F32, BF16, F16, F64)
ALL = 0xFFFFFFFF


class Refused(Exception):
    """anneal said no, with a sentence."""


class Unmapped(Exception):
    """The sample asks for what anneal.h does not have."""


class Shape(C.Structure):
    _fields_ = [("rank", C.c_int), ("dim", C.c_int64 * 8)]


class Init(C.Structure):
    _fields_ = [("kind", C.c_int), ("a", C.c_double), ("b", C.c_double)]


class Window(C.Structure):
    _fields_ = [(n, C.c_int) for n in ("kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w", "dilation_h",
                                       "dilation_w", "groups")]


class Options(C.Structure):
    _fields_ = [("device", C.c_char_p), ("seed", C.c_uint64), ("threads", C.c_int), ("isa", C.c_char_p),
                ("cc", C.c_char_p), ("cache_dir", C.c_char_p), ("budget_bytes", C.c_uint64), ("recompute", C.c_char_p),
                ("unfused", C.c_bool), ("place_apart", C.c_bool), ("verify", C.c_bool), ("dump", C.c_char_p),
                ("dump_dir", C.c_char_p), ("low", C.c_double), ("high", C.c_double), ("exact", C.c_bool),
                ("tf32", C.c_bool), ("fallback", C.c_char_p)]


def shape(dims):
    dims = list(dims)
    if len(dims) > 8:
        raise Unmapped("more than 8 axes")
    return Shape(len(dims), (C.c_int64 * 8)(*dims))


def axes(dims):
    mask = 0
    for d in dims:
        mask |= 1 << (d & 15)
    return mask


AT = b"samples:1"
P = C.c_void_p
TYPES = {"p": P, "d": C.c_double, "i": C.c_int, "l": C.c_int64, "u": C.c_uint32, "s": Shape, "b": C.c_bool, "w": Window,
         "o": P, "n": Init, "c": C.c_char_p, "t": C.c_int}
# What follows the place: p a tensor, d a double, i an int, l int64, u axes, s a shape, b a bool, w a window, o an
# output, n an initialisation, c text, t a dtype.
SIGNATURES = {
    "where": "ppp", "cast": "pt", "add_num": "pd", "mul_num": "pd", "reshape": "ps", "permute": "ps",
    "transpose": "pii", "expand": "ps", "slice": "pilll", "pad": "pilld", "flip": "pu", "concat": "Pii", "detach": "p",
    "sum": "pub", "mean": "pub", "max": "pub", "min": "pub", "var": "pub", "argmax": "pib", "matmul": "pp",
    "matmul_as": "ppt", "gather": "pp", "scatter_add": "ppl", "softmax": "pi", "log_softmax": "pi", "logsumexp": "pib",
    "layer_norm": "pppd", "rms_norm": "ppd", "batch_norm": "pppppddb", "dropout": "pd", "cross_entropy": "pp",
    "linear": "ppp", "attention": "pppdbdp", "conv2d": "pppw", "max_pool": "pw", "avg_pool": "pw", "cumsum": "pb",
    "sort": "pbo", "topk": "pio", "cholesky": "p", "qr": "po", "eigh": "po", "svd": "poo", "solve": "pp",
    "trisolve": "ppbb", "clamp": "pdd"}
UNARY = ("neg abs sign floor round sqrt rsqrt recip exp expm1 log log1p sin cos tanh erf atan asin acos sigmoid not isfinite relu gelu "
         "gelu_tanh silu softplus square").split()
BINARY = "add sub mul div idiv imod pow atan2 maximum minimum eq ne lt le gt ge and or xor".split()
SIGNATURES.update({n: "p" for n in UNARY})
SIGNATURES.update({n: "pp" for n in BINARY})


class Anneal:
    """One context. call("exp", x) is an_exp."""

    def __init__(self, library, device="cpu", cc="none", seed=1, views=None, exact=False, unfused=False):
        self.lib = C.CDLL(library)
        self.lib.an_open_sized.restype = P
        self.lib.an_open_sized.argtypes = [P, C.c_size_t]
        self.lib.an_error.restype = C.c_char_p
        self.lib.an_error.argtypes = [P]
        for name in ("an_close", "an_reset", "an_error_clear", "an_empty_cache"):
            getattr(self.lib, name).argtypes = [P]
        self.lib.an_grad.restype = P
        self.lib.an_grad.argtypes = [P]
        self.lib.an_shape_of.restype = Shape
        self.lib.an_shape_of.argtypes = [P]
        self.lib.an_dtype_of.argtypes = [P]
        self.lib.an_persist_find.argtypes = [P, C.c_char_p]
        self.lib.an_persist_write.argtypes = [P, C.c_int, C.c_char_p, C.c_size_t]
        self.lib.an_read_at.argtypes = [C.c_char_p, P, P, C.c_size_t]
        self.lib.an_eval_at.argtypes = [C.c_char_p, P, C.c_int]
        self.lib.an_backward_at.argtypes = [C.c_char_p, P]
        self.lib.an_backward_at.restype = None
        for name, args in (("input", [P, C.c_int, Shape, P]), ("full", [P, C.c_int, Shape, C.c_double]),
                           ("iota", [P, Shape, C.c_int]), ("state", [P, C.c_char_p, C.c_int, Shape, Init])):
            f = getattr(self.lib, "an_%s_at" % name)
            f.restype, f.argtypes = P, [C.c_char_p] + args
        for name, kinds in SIGNATURES.items():
            try:
                f = getattr(self.lib, "an_%s_at" % name)
            except AttributeError:
                continue  # an older library
            f.restype, f.argtypes = P, [C.c_char_p] + [TYPES[k.lower()] for k in kinds]
        self.options = Options(device=device.encode(), seed=seed, threads=2, cc=cc.encode() if cc else None, verify=True,
                               exact=exact, unfused=unfused)
        self.cx = self.lib.an_open_sized(C.byref(self.options), C.sizeof(Options))
        self.check()
        self.random, self.views, self.keep = random.Random(seed), views, []

    def check(self):
        text = self.lib.an_error(self.cx)
        if text:
            text = text.decode()
            self.lib.an_error_clear(self.cx)
            self.lib.an_reset(self.cx)
            raise Refused(text)

    def reset(self):
        self.lib.an_reset(self.cx)
        self.lib.an_error_clear(self.cx)
        self.keep = []

    def call(self, name, *args):
        outs, raw = [], []
        for kind, a in zip(SIGNATURES[name], args):
            if kind == "P":
                raw.append((P * len(a))(*[t.p for t in a]))
            elif kind == "o":
                outs.append(P())
                raw.append(C.addressof(outs[-1]))
            elif kind == "s":
                raw.append(shape(a))
            else:
                raw.append(a.p if isinstance(a, T) else a)
        first = T(self, getattr(self.lib, "an_%s_at" % name)(AT, *raw))
        self.check()
        return (first, *[T(self, o.value) for o in outs]) if outs else first

    def full(self, dtype, dims, x):
        t = T(self, self.lib.an_full_at(AT, self.cx, dtype, shape(dims), float(x)))
        self.check()
        return t

    def iota(self, dims, axis):
        t = T(self, self.lib.an_iota_at(AT, self.cx, shape(dims), axis))
        self.check()
        return t

    def state(self, x):
        """A new state that holds what an input holds, or ones."""
        self.states = getattr(self, "states", 0) + 1
        name = b"state%d" % self.states
        t = T(self, self.lib.an_state_at(AT, self.cx, name, x.dtype, shape(x.shape), Init(1, 1, 0)))
        self.check()
        data = getattr(x, "data", None)
        if data is not None and data.numel():
            raw = data.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
            self.lib.an_persist_write(self.cx, self.lib.an_persist_find(self.cx, name), raw, len(raw))
            self.check()
        return t

    def data(self, x):
        """A PyTorch tensor's bytes as an input."""
        x = x.detach().contiguous()
        raw = x.flatten().view(torch.uint8).numpy().tobytes() if x.numel() else b""
        t = T(self, self.lib.an_input_at(AT, self.cx, OF[x.dtype], shape(x.shape), raw if raw else None))
        self.check()
        return t

    def leaf(self, x):
        """x as an input, and as what the operation reads: in turn the input itself and views of it that equal x."""
        if x.dtype not in OF:
            raise Unmapped(str(x.dtype))
        way = self.random.randrange(6) if self.views else 0
        if way < 3 or x.dim() == 0 or x.dim() > 6:
            t = self.data(x)
            return t, t, lambda g: g
        if way == 3:  # transposed
            p = list(range(x.dim()))
            self.random.shuffle(p)
            back = [p.index(i) for i in range(x.dim())]
            t = self.data(x.permute(p))
            return t, t.permute(back), lambda g: g.permute(back)
        if way == 4:  # every second element, behind others
            wide = torch.zeros([2 * n + 1 for n in x.shape], dtype=x.dtype)
            at = tuple(slice(1, None, 2) for _ in x.shape)
            wide[at] = x.detach()
            t = self.data(wide)
            v = t
            for i in range(x.dim()):
                v = v.slice(i, 1, 2 * x.shape[i] + 1, 2)
            return t, v, lambda g: g[at]
        t = self.data(x.flip(list(range(x.dim()))))
        return t, self.call("flip", t, ALL), lambda g: g.flip(list(range(x.dim())))

    def eval(self, tensors):
        """The values of tensors as PyTorch's."""
        status = self.lib.an_eval_at(AT, (P * len(tensors))(*[t.p for t in tensors]), len(tensors))
        self.check()
        if status:
            raise Refused("status %d without a sentence" % status)
        out = []
        for t in tensors:
            dims, dtype = t.shape, TORCH[t.dtype]
            buffer = bytearray(max(1, torch.empty(dims, dtype=dtype).numel() * torch.empty(0, dtype=dtype).element_size()))
            n = torch.empty(dims, dtype=dtype).numel()
            if n:
                self.lib.an_read_at(AT, t.p, (C.c_char * len(buffer)).from_buffer(buffer), len(buffer))
                self.check()
                out.append(torch.frombuffer(buffer, dtype=dtype, count=n).reshape(dims))
            else:
                out.append(torch.empty(dims, dtype=dtype))
        return out

    def backward(self, loss):
        self.lib.an_backward_at(AT, loss.p)
        self.check()

    def grad(self, t):
        g = self.lib.an_grad(t.p)
        self.check()
        return T(self, g) if g else None


class T:
    """A tensor of anneal's. Numbers beside it take its dtype."""

    def __init__(self, A, p):
        self.A, self.p = A, p

    @property
    def shape(self):
        s = self.A.lib.an_shape_of(self.p)
        return tuple(s.dim[: s.rank])

    @property
    def dtype(self):
        return self.A.lib.an_dtype_of(self.p)

    @property
    def dim(self):
        return len(self.shape)

    @property
    def is_float(self):
        return self.dtype in FLOATS

    def num(self, x):
        if isinstance(x, T):
            return x
        if self.dtype == BOOL and not isinstance(x, bool):
            raise Unmapped("a number beside bools")
        if not self.is_float and isinstance(x, float) and x != int(x):
            raise Unmapped("a fraction beside integers")
        return self.A.full(self.dtype, (), x)

    def two(self, name, other, turned=False):
        other = self.num(other)
        return self.A.call(name, other, self) if turned else self.A.call(name, self, other)

    def __getattr__(self, name):
        if name in UNARY:
            return lambda: self.A.call(name, self)
        if name in BINARY or name + "_" in ("and_", "or_", "not_"):
            return lambda other: self.two(name, other)
        raise AttributeError(name)

    __add__ = lambda a, b: a.two("add", b)
    __radd__ = lambda a, b: a.two("add", b, True)
    __sub__ = lambda a, b: a.two("sub", b)
    __rsub__ = lambda a, b: a.two("sub", b, True)
    __mul__ = lambda a, b: a.two("mul", b)
    __rmul__ = lambda a, b: a.two("mul", b, True)
    __truediv__ = lambda a, b: a.two("div", b)
    __rtruediv__ = lambda a, b: a.two("div", b, True)
    __and__ = lambda a, b: a.two("and", b)
    __or__ = lambda a, b: a.two("or", b)
    __xor__ = lambda a, b: a.two("xor", b)
    __invert__ = lambda a: a.A.call("not", a)
    __neg__ = lambda a: a.A.call("neg", a)

    def axis(self, d):
        return d + self.dim if d < 0 else d

    def axes_of(self, dims):
        """Axes as PyTorch gives them: None or nothing for all."""
        if dims is None or (isinstance(dims, (tuple, list)) and len(dims) == 0):
            return list(range(self.dim))
        return [self.axis(d) for d in (dims if isinstance(dims, (tuple, list)) else [dims])]

    def mask(self, dims):
        return axes(dims) if len(dims) < self.dim or self.dim == 0 and dims else ALL

    def cast(self, dtype):
        return self.A.call("cast", self, dtype)

    def reduce(self, name, dims=None, keep=False):
        if self.dim == 0:
            return self.A.call(name, self, ALL, keep)
        return self.A.call(name, self, self.mask(self.axes_of(dims)), keep)

    sum = lambda self, dims=None, keep=False: self.reduce("sum", dims, keep)
    mean = lambda self, dims=None, keep=False: self.reduce("mean", dims, keep)
    max = lambda self, dims=None, keep=False: self.reduce("max", dims, keep)
    min = lambda self, dims=None, keep=False: self.reduce("min", dims, keep)
    var = lambda self, dims=None, keep=False: self.reduce("var", dims, keep)

    def reshape(self, *dims):
        return self.A.call("reshape", self, dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims)

    def expand(self, dims):
        return self.A.call("expand", self, dims)

    def permute(self, p):
        return self.A.call("permute", self, p)

    def transpose(self, i, j):
        return self.A.call("transpose", self, i, j)

    def slice(self, axis, start, stop, step=1):
        return self.A.call("slice", self, axis, start, stop, step)

    def pad(self, axis, before, after, value=0.0):
        return self.A.call("pad", self, axis, before, after, float(value))

    def flip(self, dims):
        return self.A.call("flip", self, axes(self.axes_of(dims))) if dims else self

    def moved_last(self, axis):
        return self if self.dim == 0 else self.transpose(axis, -1)

    def where(self, a, b):
        return self.A.call("where", self, a, b)
