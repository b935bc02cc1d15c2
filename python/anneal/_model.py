"""anneal.load: a model of an archive over arrays of any library that has DLPack; PyTorch is not needed."""
import ctypes as c
import math
import warnings

from ._dlpack import BYTES, REACHED, Borrowed, Result
from ._handle import Handle
from ._library import INPUT, OUTPUT, Array, Counts, Persist, Update, alive
from ._library import Result as StepResult

DEFAULTS = {  # of torch.optim
    "adamw": {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01},
    "adam": {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    "sgd": {"momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False},
}


class Model(Handle):
    """y = model(x): the program for evaluation, over arrays that have __dlpack__ and are read where they lie; model(x, out=y) writes into y.
    loss = model.step(x, y, lr=1e-3): one update of its parameters, of a model whose first result is the loss. state_dict() has the
    parameters and buffers. Threads may share a model: their calls run one after the other."""

    def __init__(self, path, threads=0, seed=1, device="cpu"):
        if device not in REACHED:
            raise ValueError(f"device={device!r}: a model over arrays computes on {' or '.join(REACHED)}")
        super().__init__()
        self._device, self._stream = device, None
        self.file = self.lib.an_import_open(str(path).encode(), self.why)
        self.check(ValueError)
        self.lib.an_import_note(self.file, self.why)
        if self.why.value:
            warnings.warn(self.sentence(), stacklevel=3)
        self.bind(self.lib.an_import_declare, ValueError, threads, seed, device)
        self._stream = self.lib.an_stream(self.context) or None
        self.lib.an_params_decay(self.context, b"*", True)  # as torch.optim decays: biases too
        if self.lib.an_import_fill(self.model, self.why) != 0:
            self._fail(ValueError)
        self._n = self.lib.an_import_count(self.file, INPUT)
        self._n_out = self.lib.an_import_count(self.file, OUTPUT)
        alive.add(self)
        self._optimizer, self.updates, self.norm = None, 0, math.nan

    def _fail(self, kind):
        raise kind(self.sentence())

    def _open(self):
        if not self.model:
            raise RuntimeError("the model is closed")

    def _borrowed(self, x, writable=False):
        return Borrowed(x, writable, self._device, self._stream)

    def _taken(self, inputs):
        self._open()
        if len(inputs) != self._n:
            raise TypeError(f"the model takes {self._n} arrays, not {len(inputs)}")
        held = [self._borrowed(x) for x in inputs]
        return held, (Array * max(1, self._n))(*(h.array for h in held))

    def __call__(self, *inputs, out=None, train=False):
        """One array, or a tuple of them. `out`: an array or a tuple of arrays, which take the results. train: the program for training
        (dropout, batch norm by the batch), which changes the model's buffers (running statistics) as PyTorch's train() does."""
        with self.lock:
            return self._call(inputs, out, train)

    def _call(self, inputs, out, train):
        held, given = self._taken(inputs)
        results = (Array * max(1, self._n_out))()
        self.lib.an_import_call_mode(self.model, 0 if train else 1)
        if self.lib.an_import_call_plan(self.model, given, results, self.why) != 0:
            self._fail(ValueError)
        named = [i for i in range(self._n_out) if results[i].dtype >= 0]
        if out is None and self._device != "cpu":
            raise ValueError(f"results on {self._device} are written into arrays of your library: give out=")
        if out is None:
            made = [Result(results[i].dim[:results[i].rank], results[i].dtype) for i in named]
            arrays = [m.as_array() for m in made]
        else:
            made = list(out) if isinstance(out, (tuple, list)) else [out]
            if len(made) != len(named):
                raise TypeError(f"the model has {len(named)} results, not {len(made)}")
            kept = [self._borrowed(x, writable=True) for x in made]
            arrays = [k.array for k in kept]
        for i, a in zip(named, arrays):
            results[i] = a
        if self.lib.an_import_call(self.model, given, results, self.why) != 0:
            self._fail(ValueError)
        return made[0] if len(made) == 1 else tuple(made)

    def step(self, *inputs, optimizer="adamw", lr=1e-3, clip=0.0, **options):
        """Forward pass, backward pass, clipping and update as one plan; returns the loss before it. Options are torch.optim's."""
        if optimizer not in DEFAULTS:
            raise ValueError(f"optimizer {optimizer!r} is not there; there are {', '.join(DEFAULTS)}")
        unknown = [k for k in options if k not in DEFAULTS[optimizer]]
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: no option of {optimizer}; there are {', '.join(DEFAULTS[optimizer])}")
        o = {**DEFAULTS[optimizer], **options}
        with self.lock:
            return self._step(inputs, optimizer, lr, clip, o)

    def _step(self, inputs, optimizer, lr, clip, o):
        if self._optimizer not in (None, optimizer):
            raise ValueError(f"this model's updates are those of {self._optimizer}")
        held, given = self._taken(inputs)
        beta1, beta2 = o.get("betas", (0.0, 0.0))
        u = Update(optimizer.encode(), lr, beta1, beta2, o.get("eps", 0.0), o["weight_decay"], o.get("momentum", 0.0), o.get("dampening", 0.0), clip,
                   int(o.get("nesterov", False)), self.updates + 1)
        result = StepResult()
        if self.lib.an_import_step(self.model, given, c.byref(u), c.byref(result), self.why) != 0:
            self._fail(ValueError)
        self._optimizer, self.norm = optimizer, result.norm
        self.updates += math.isfinite(result.norm)
        return result.loss

    def state_dict(self):
        """Copies of the parameters and buffers, by name (tied ones once): arrays that have __dlpack__. Integers are int32."""
        state, entry = {}, Persist()
        with self.lock:
            self._open()
            for i in range(self.lib.an_persist_count(self.context)):
                self._check(self.lib.an_persist_get(self.context, i, c.byref(entry)))
                if entry.kind == 1 or entry.name.startswith(b"."):  # moments, and the calls' own arrays (pt2_call.c)
                    continue
                r = Result(entry.shape.dim[:entry.shape.rank], entry.dtype)
                n = BYTES[entry.dtype] * math.prod(r.shape)
                self._check(self.lib.an_persist_read(self.context, i, r.address, n))
                state[entry.name.decode()] = r
        return state

    def _check(self, status):
        if status != 0:
            raise RuntimeError((self.lib.an_error(self.context) or b"it failed").decode(errors="replace"))

    def counts(self):
        """Calls, copies of inputs, launches and bytes of the last plan."""
        out = Counts()
        with self.lock:
            self._open()
            self.lib.an_import_call_counts(self.model, c.byref(out))
        return {n: getattr(out, n) for n, _ in Counts._fields_}


def load(path, **options):
    """model = anneal.load("model.pt2"): a model of torch.export (or of `anneal export run out=model.pt2`) as functions of arrays that have
    __dlpack__. options: threads (0: every core), seed; device="cuda": on the GPU, over arrays that are there, results into out=."""
    return Model(path, **options)
