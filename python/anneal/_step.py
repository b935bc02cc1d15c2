"""anneal.torch.step: a whole training step of a PyTorch model as one plan, over the model's own parameters."""
import ctypes
import json
import math

import torch

from ._context import DTYPES, Model
from ._dlpack import Borrowed
from ._graph import Unsupported
from ._library import BF16, F32, INPUT, Array, Persist, Place, Policy, Result, Update
from .export import free_first_axis, members, program

_OPTIMIZERS = {  # options with torch.optim's defaults
    "adamw": {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01},
    "adam": {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    "sgd": {"momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False},
}


class _WithLoss(torch.nn.Module):
    """The last argument is the label."""

    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *args):
        return self.loss(self.model(*args[:-1]), args[-1])


def _described(exported):
    """The importer's text: programs and what the archive says of its tensors, without their elements."""
    parts = members(exported)
    text = {"model": "models/model.json", "weights": "data/weights/model_weights_config.json",
            "constants": "data/constants/model_constants_config.json"}
    return json.dumps({key: json.loads(parts[name]) for key, name in text.items()})


def _array(tensor):
    a = Array(data=tensor.data_ptr() if tensor.numel() else None, dtype=DTYPES[tensor.dtype], rank=tensor.dim())
    a.dim[:a.rank], a.step[:a.rank] = tensor.shape, tensor.stride()
    return a


class Step:
    """What step() returns: step(*inputs) is one update. `lr` and `weight_decay` may be set between calls; `norm` is that of the last
    gradients before clipping, `updates` how many were applied."""

    def __init__(self, model, example, loss=None, optimizer="adamw", lr=1e-3, clip=0.0, dtype=None, decay="*", **options):
        if optimizer not in _OPTIMIZERS:
            raise ValueError(f"optimizer {optimizer!r} is not there; there are {', '.join(_OPTIMIZERS)}")
        unknown = [k for k in options if k not in _OPTIMIZERS[optimizer]]
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: no option of {optimizer}; there are {', '.join(_OPTIMIZERS[optimizer])}")
        if dtype not in (None, torch.float32, torch.bfloat16):
            raise ValueError(f"dtype={dtype}: matrix products are torch.float32 or torch.bfloat16")
        self.optimizer, self.lr, self.clip = optimizer, lr, clip
        self.options = {**_OPTIMIZERS[optimizer], **options}
        self.weight_decay = self.options.pop("weight_decay")
        self.updates, self.norm = 0, math.nan
        example = tuple(example) if isinstance(example, (tuple, list)) else (example,)
        for name, p in model.named_parameters():
            if p.device.type != "cpu":
                raise Unsupported(f"{name} is on {p.device}: a step computes on the CPU")
        whole = _WithLoss(model, loss) if loss is not None else model
        exported, _ = program(whole, example, (free_first_axis(example),) if loss is not None else None)
        self._plan = Model("the step", _described(exported))
        self._lib = self._plan.lib
        if dtype is torch.bfloat16:
            self._lib.an_set_policy(self._plan.context, Policy(matmul=BF16))
        self._lib.an_params_decay(self._plan.context, b"*", False)
        self._lib.an_params_decay(self._plan.context, decay.encode(), True)
        self._tensors = [x for x in example if torch.is_tensor(x)]
        if len(self._tensors) != self._lib.an_import_count(self._plan.file, INPUT):
            raise Unsupported("the example is to be a tuple of tensors, each of them one argument")
        self._inputs = (Array * max(1, len(self._tensors)))()
        self._places = self._move_parameters(whole)
        self._move_buffers(whole, exported)
        self._fill(self._tensors)
        self._call(None)  # all that can be refused is refused here
        self._tensors = None

    # ---- the model's tensors

    def _move_parameters(self, model):
        """The parameters' elements move into blocks, as optimizers take them; the parameters stay the same objects."""
        blocks, places = {}, []
        with torch.no_grad():
            for name, p in model.named_parameters():
                place = Place()
                self._check(self._lib.an_param_find(self._plan.context, name.encode(), ctypes.byref(place)))
                if place.block not in blocks:
                    blocks[place.block] = torch.zeros(place.block_bytes, dtype=torch.uint8)
                mine = blocks[place.block][place.offset:place.offset + place.bytes].view(p.dtype).view(p.shape)
                mine.copy_(p)
                places.append((name, p, mine))
            for block, memory in blocks.items():
                self._check(self._lib.an_bind_block(self._plan.context, block, memory.data_ptr(), memory.numel()))
            for _, p, mine in places:
                p.data = mine
        self._blocks = blocks
        return [(name, p, mine.data_ptr()) for name, p, mine in places]

    def _move_buffers(self, model, exported):
        have = {**dict(model.named_buffers()), **{k: v for k, v in exported.constants.items() if torch.is_tensor(v)}}
        names = [n for n in exported.graph_signature.buffers] + list(exported.graph_signature.lifted_tensor_constants)
        self._kept = []
        floats = [n for n in names if have[n].is_floating_point() or have[n].dtype == torch.bool]
        for name in floats + [n for n in names if n not in floats]:
            tensor = have[name]
            if tensor.dtype not in DTYPES:
                tensor = tensor.to(torch.int32)
            elif not tensor.is_contiguous():
                tensor.data = tensor.contiguous()
            self._kept.append((name, tensor, tensor.data_ptr()))
            a = _array(tensor)
            if self._lib.an_import_bind_tensor(self._plan.model, name.encode(), ctypes.byref(a), self._plan.why) != 0:
                raise Unsupported(self._plan.sentence())

    def _check(self, status):
        if status != 0:
            raise RuntimeError(self._lib.an_error(self._plan.context).decode(errors="replace"))

    # ---- a call

    def _fill(self, tensors):
        for i, t in enumerate(tensors):
            if isinstance(t, Borrowed):
                self._inputs[i] = t.array
                continue
            a = self._inputs[i]
            if t.dtype not in DTYPES or t.device.type != "cpu":
                raise Unsupported(f"an input of {t.dtype} on {t.device}")
            a.data, a.dtype, a.rank = t.data_ptr() if t.numel() else None, DTYPES[t.dtype], t.dim()
            a.dim[:a.rank], a.step[:a.rank] = t.shape, t.stride()

    def _call(self, result):
        o = self.options
        beta1, beta2 = o.get("betas", (0.0, 0.0))
        u = Update(self.optimizer.encode(), self.lr, beta1, beta2, o.get("eps", 0.0), self.weight_decay, o.get("momentum", 0.0),
                   o.get("dampening", 0.0), self.clip, int(o.get("nesterov", False)), self.updates + 1)
        out = ctypes.byref(result) if result is not None else None
        if self._lib.an_import_step(self._plan.model, self._inputs, ctypes.byref(u), out, self._plan.why) != 0:
            raise (RuntimeError if result is not None else Unsupported)(self._plan.sentence())

    def __call__(self, *inputs):
        """One update; returns the loss before it, as a number in a tensor. Inputs are tensors, or arrays of any library that has __dlpack__."""
        for name, t, at in (*self._places, *self._kept):
            if t.data_ptr() != at:
                raise RuntimeError(f"{name} lies in other memory than when the step was made: make a new step after model.to() and "
                                   "the like, and write values in place (load_state_dict does)")
        tensors = [x if torch.is_tensor(x) else Borrowed(x) for x in inputs if hasattr(x, "__dlpack__")]
        if len(tensors) != len(inputs) or len(tensors) != self._lib.an_import_count(self._plan.file, INPUT):
            raise TypeError(f"step takes {self._lib.an_import_count(self._plan.file, INPUT)} tensors, as in the example")
        result = Result()
        with self._plan.lock:
            self._fill(tensors)
            self._call(result)
            self.norm = result.norm
            self.updates += math.isfinite(result.norm)
        return torch.tensor(result.loss)

    # ---- the optimizer's state

    def _moments(self):
        """Entry and a tensor of its shape, by name: optimizer.m.NAME, optimizer.v.NAME."""
        entry = Persist()
        for i in range(self._lib.an_persist_count(self._plan.context)):
            self._check(self._lib.an_persist_get(self._plan.context, i, ctypes.byref(entry)))
            if entry.kind == 1:
                dtype = torch.float32 if entry.dtype == F32 else torch.float64
                yield i, entry.name.decode(), torch.empty(tuple(entry.shape.dim[:entry.shape.rank]), dtype=dtype)

    def state_dict(self):
        """A copy of the moments, and how many updates there were."""
        with self._plan.lock:
            state = {"updates": self.updates}
            for i, name, t in self._moments():
                self._check(self._lib.an_persist_read(self._plan.context, i, t.data_ptr(), t.numel() * t.element_size()))
                state[name] = t
        return state

    def load_state_dict(self, state):
        mine = list(self._moments())
        wrong = {n for _, n, _ in mine} ^ (set(state) - {"updates"})
        if wrong or "updates" not in state:
            raise KeyError(f"not the state of this step: {', '.join(sorted(wrong)[:5]) or 'updates'}")
        for _, name, t in mine:
            if state[name].shape != t.shape:
                raise ValueError(f"{name} is {tuple(state[name].shape)}, not {tuple(t.shape)}")
        with self._plan.lock:
            for i, name, t in mine:
                t.copy_(state[name])
                self._check(self._lib.an_persist_write(self._plan.context, i, t.data_ptr(), t.numel() * t.element_size()))
            self.updates = int(state["updates"])

    def counts(self):
        """Calls, copies of inputs, launches and bytes of the plan."""
        from ._library import Counts
        out = Counts()
        self._lib.an_import_call_counts(self._plan.model, ctypes.byref(out))
        return {n: getattr(out, n) for n, _ in Counts._fields_}

    def memory(self):
        """Bytes that the step holds beside the parameters: moments, gradients, scratch."""
        return self._plan.memory().requested_bytes


def step(model, example, **options):
    """step = anneal.torch.step(model, example, optimizer="adamw", lr=3e-4, clip=1.0); loss = step(*inputs)

    Forward pass, backward pass, clipping and update as one plan over the model's own parameters and buffers, which it changes in place:
    state_dict(), evaluation and saving go on as before. `example` is a tuple of tensors for forward, which returns the loss; with
    loss=f (torch.nn.functional.cross_entropy, a module, ...) it is f(forward(*example[:-1]), example[-1]). The model is exported in
    the mode that it is in (train(), eval()). The first axis may have another length in a call where the model exports so.

    optimizer: "adamw", "adam" (betas, eps, weight_decay), "sgd" (momentum, dampening, nesterov, weight_decay), with torch.optim's
    formulas and defaults. clip: the largest global norm of the gradients; 0: none. decay: names of parameters that weight_decay applies
    to, a list with commas in which * is any text. dtype=torch.bfloat16: matrix products in bfloat16, parameters in float32. An update
    whose gradients are not finite is skipped; a label that is no class makes the loss NaN. Parameters without requires_grad stay as they are.
    """
    return Step(model, example, **options)
