"""torch.compile(model, backend="anneal"): the graphs of a step, forward and backward, each as one plan of libanneal on the CPU.

    model = torch.compile(model, backend="anneal")
    model = torch.compile(model, backend="anneal", options={"fallback": True})    PyTorch runs a graph that anneal cannot
    anneal.torch.counts()                                                         graphs, calls, copies, fallbacks
    step = anneal.torch.step(model, example, optimizer="adamw", lr=3e-4)          a whole training step as one plan: _step.py

Nothing is copied: a graph reads the tensors where they are and writes into tensors that PyTorch allocated. Copied, and
counted, are tensors of int64 (they are int32 inside; a number that does not fit is refused) and tensors with gaps. What a graph
returns of its inputs as a view stays a view. Random numbers are anneal's own.
"""
import collections
import ctypes
import operator
import sys
import threading
import weakref

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._dynamo.backends import registry
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from ._context import BACK, INPUTS, Model, empty_cache, memory
from ._graph import Text, Unsupported, dense_order, without_strides
from ._library import INPUT, OUTPUT, Array, Counts, library
from ._step import Step, step

__all__ = ["Step", "Unsupported", "backend", "counts", "empty_cache", "memory", "step"]

aten = torch.ops.aten
PLANS = 16  # sets of sizes that a graph keeps plans of

# What is the same memory in another order: a result of these is made of what they read, in PyTorch.
REORDERS = {aten.permute.default, aten.t.default, aten.transpose.int, aten.expand.default, aten.unsqueeze.default,
            aten.squeeze.dim, aten.squeeze.dims, aten.alias.default, aten.detach.default}
VIEWS = REORDERS | {aten.view.default, aten._unsafe_view.default, aten.select.int, aten.slice.Tensor, aten.as_strided.default}

_alive = weakref.WeakSet()
_fallbacks = collections.Counter()


class Plan(Model):
    """A graph for one set of sizes: a context of its own, and the form of its results."""

    def __init__(self, name, text, wanted, narrow):
        """`wanted`: of each result its strides, or None where any order does; `narrow`: int8 or int16, or None."""
        super().__init__(name, text)
        self.wanted, self.narrow = wanted, narrow
        self.inputs = (Array * max(1, self.lib.an_import_count(self.file, INPUT)))()
        self.outputs = (Array * max(1, self.lib.an_import_count(self.file, OUTPUT)))()
        self.n_outputs = self.lib.an_import_count(self.file, OUTPUT)
        self.form, self.strides = None, None

    def plan(self, tensors):
        """The shape, strides and dtype of each result; again where inputs lie in another order than before."""
        strides = [t.stride() for t in tensors]
        if strides == self.strides:
            return
        for a, t in zip(self.inputs, tensors):
            if t.dtype not in INPUTS:
                raise Unsupported(f"an input of {t.dtype}")
            a.dtype, a.rank = INPUTS[t.dtype], t.dim()
            a.dim[:a.rank], a.step[:a.rank] = t.shape, t.stride()
        if self.lib.an_import_call_plan(self.model, self.inputs, self.outputs, self.why) != 0:
            raise Unsupported(self.sentence())
        for o, wanted in zip(self.outputs, self.wanted):
            if wanted is not None:
                o.step[:o.rank] = wanted
        self.form = [(tuple(o.dim[:o.rank]), tuple(o.step[:o.rank]), BACK[o.dtype]) for o in self.outputs[:self.n_outputs]]
        self.strides = strides

    def __call__(self, tensors):
        with self.lock:
            return self._call(tensors)

    def _call(self, tensors):
        self.plan(tensors)
        results = [torch.empty_strided(*f[:2], dtype=f[2]) for f in self.form]
        for a, t in zip(self.inputs, tensors):
            a.data = t.data_ptr() if t.numel() else None
        for a, t in zip(self.outputs, results):
            a.data = t.data_ptr() if t.numel() else None
        if self.lib.an_import_call(self.model, self.inputs, self.outputs, self.why) != 0:
            raise RuntimeError(self.sentence())
        return [t if dtype is None else t.to(dtype) for t, dtype in zip(results, self.narrow)]

    def counts(self):
        out = Counts()
        self.lib.an_import_call_counts(self.model, ctypes.byref(out))
        return out


def _base(node):
    """The node that `node` is a view of, and the views between them, the first first."""
    chain, at = [], node
    while at.op == "call_function" and at.target in VIEWS:
        chain.append(at)
        at = at.args[0]
    if at.op in ("placeholder", "get_attr") or all(n.target in REORDERS for n in chain):
        return at, chain[::-1]
    while chain and chain[-1].target in REORDERS:  # the part behind the last view that needs its argument's order
        chain.pop()
    behind = []
    at = node
    while at.op == "call_function" and at.target in REORDERS:
        behind.append(at)
        at = at.args[0]
    return at, behind[::-1]


class Graph:
    """A graph of torch.fx as a function of tensors and numbers, in the form that AOTAutograd calls."""

    def __init__(self, module, name, fallback, seen):
        """The first `seen` results leave the compiled function, and lie as PyTorch's own would; those that are kept for the backward
        graph lie as they were computed."""
        self.module, self.name, self.fallback = module, name, fallback
        self.plans, self.lock = {}, threading.Lock()
        without_strides(module)
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        self.attributes = [n for n in module.graph.nodes if n.op == "get_attr" and torch.is_tensor(n.meta.get("val"))]
        self.tensor_at = [i for i, n in enumerate(placeholders) if torch.is_tensor(n.meta["val"])]
        self.symbols = {i: n.meta["val"].node.expr for i, n in enumerate(placeholders) if isinstance(n.meta["val"], torch.SymInt)}
        self.inputs = [placeholders[i] for i in self.tensor_at] + self.attributes
        results = next(n for n in module.graph.nodes if n.op == "output").args[0]
        self.results, self.computed, self.seen = [], [], set()
        for k, node in enumerate(results):
            if not isinstance(node, torch.fx.Node) or not torch.is_tensor(node.meta["val"]):
                self.results.append((node, None))
                continue
            base, chain = _base(node)
            if base not in self.inputs and base not in self.computed:
                self.computed.append(base)
            if k < seen:
                self.seen.add(base)
            self.results.append((base, chain))
        self.compiled = None if self.symbols else self._plan(())
        _alive.add(self)

    def _text(self, values):
        return Text(self.module.graph, values)

    def _wanted(self, text, node):
        """The strides of a result in PyTorch: what the caller does with it, a view say, was written for these."""
        if node not in self.seen:
            return None
        value = node.meta["val"]
        sizes, strides = [text.size(n) for n in value.shape], [text.size(n) for n in value.stride()]
        return strides if dense_order(sizes, strides) is not None else None

    def _plan(self, values):
        """The plan for these values of the symbols; None where PyTorch runs the graph."""
        if values not in self.plans:
            if len(self.plans) >= PLANS:
                self.plans.pop(next(iter(self.plans)))
            try:
                text = self._text(self._values(values))
                wanted = [self._wanted(text, node) for node in self.computed]
                dtypes = [node.meta["val"].dtype for node in self.computed]
                narrow = [d if d in (torch.int8, torch.int16) else None for d in dtypes]  # integers are of 32 bits in the library
                plan = Plan(self.name, text.build(self.inputs, self.computed), wanted, narrow) if self.computed else None
                if plan and not self.symbols:  # what only building finds out, before anything runs
                    with plan.lock:
                        plan.plan([n.meta["val"] for n in self.inputs])
                self.plans[values] = Call(self, plan, text)
            except Unsupported as e:
                if not self.fallback:
                    raise Unsupported(f'{e}; options={{"fallback": True}} lets PyTorch run this graph') from None
                _fallbacks[str(e)] += 1
                _for_pytorch(self.module)
                self.plans[values] = None
        return self.plans[values]

    def _values(self, values):
        import sympy
        return {s: sympy.Integer(v) for s, v in zip(self.symbols.values(), values) if isinstance(s, sympy.Symbol)}

    def __call__(self, args):
        """Takes a list, which it empties, so that the caller's tensors can be freed."""
        given = list(args)
        if isinstance(args, list):
            args.clear()
        values = tuple(int(given[i]) for i in self.symbols)
        with self.lock:
            call = self._plan(values)
            if call is None:
                _fallbacks["calls"] += 1
                return self.module.forward(*given)
            return call([given[i] for i in self.tensor_at] + [getattr(self.module, n.target) for n in self.attributes])


class Call:
    """A graph for one set of values of its symbols: its plan, or None, and how its results come of what that makes and of the inputs. All that can
    be looked up once is: a call of a small graph takes as long as its plan otherwise."""

    def __init__(self, graph, plan, text):
        self.plan, self.form, self.views = plan, None, {}
        place = {node: i for i, node in enumerate(graph.inputs + graph.computed)}
        self.n_inputs = len(graph.inputs)
        self.results = []  # (None, a number), or (which tensor, the views of it that are to be taken, the first first)
        for node, chain in graph.results:
            if chain is None:
                self.results.append((None, text.scalar(node) if isinstance(node, torch.fx.Node) else node))
                continue
            views = [(n.target, [[text.scalar(x) for x in a] if isinstance(a, (list, tuple)) else text.scalar(a) for a in n.args[1:]],
                      n.kwargs) for n in chain]
            self.results.append((place[node], views))

    def __call__(self, tensors):
        if self.plan:
            tensors += self.plan(tensors)
            if self.plan.form is not self.form:  # results lie in another order than before
                self.form, self.views = self.plan.form, {}
        return tuple(x if i is None else self._view(k, i, tensors[i], x) if x else tensors[i] for k, (i, x) in enumerate(self.results))

    def _view(self, k, i, t, chain):
        """Result k, a view of tensor i. What the plan made lies in the same order each time, so one view stands for all of the chain."""
        place = self.views.get(k)
        if place is not None:
            return torch.as_strided(t, *place)
        for target, rest, kwargs in chain:
            t = target(t, *rest, **kwargs)
        if i >= self.n_inputs:
            self.views[k] = t.size(), t.stride(), t.storage_offset()
        return t


def _decompositions():
    table = dict(core_aten_decompositions())
    table.update(get_decompositions([aten._native_batch_norm_legit_functional, aten._native_batch_norm_legit_no_training,
                                     aten._native_batch_norm_legit, aten.native_batch_norm_backward, aten.native_group_norm,
                                     aten.native_layer_norm_backward]))
    for op in (aten._scaled_dot_product_flash_attention_for_cpu.default,):
        table.pop(op, None)
    return table


# Gradients that take what the forward operation found besides its result, which anneal finds again: the argument, what stands
# there instead, the forward operation, and its arguments from those of the gradient.
def _windows(args):
    return args[1:7]


def _sizes(args):
    return args[1], list(args[0].meta["val"].shape[-2:])


FOUND = {aten.max_pool2d_with_indices_backward.default: (7, 1, aten.max_pool2d_with_indices.default, _windows),
         aten.max_pool3d_with_indices_backward.default: (7, 1, aten.max_pool3d_with_indices.default, _windows),
         aten.adaptive_max_pool2d_backward.default: (2, 1, aten.adaptive_max_pool2d.default, _sizes),
         aten._scaled_dot_product_flash_attention_for_cpu_backward.default:
             (5, 4, aten._scaled_dot_product_flash_attention_for_cpu.default, lambda args: args[1:4] + args[6:8])}


def _keeps_sums(node):
    """Whether the forward graph gives the gradient of an attention the logarithms of its rows' sums: the kernels know them in float32 and
    bfloat16, without dropout and under no mask but a square causal one."""
    if node.target is not aten._scaled_dot_product_flash_attention_for_cpu_backward.default:
        return False
    q, k, v = (n.meta["val"] for n in node.args[1:4])
    dropout, causal, *rest = node.args[6:]
    mask = rest[0] if rest else node.kwargs.get("attn_mask")
    T, S, D = q.shape[2], k.shape[2], (q.shape[3], k.shape[3], v.shape[3])
    sizes = all(isinstance(n, int) for n in (T, S, *D)) and len(set(D)) == 1 and (T == S or not causal)
    return sizes and dropout == 0 and mask is None and q.dtype in (torch.float32, torch.bfloat16) and q.dtype == k.dtype == v.dtype


def _partition(joint, inputs, **more):
    for node in joint.graph.nodes:
        if node.op == "call_function" and node.target in FOUND and not _keeps_sums(node):
            at, instead, *_ = FOUND[node.target]
            node.update_arg(at, node.args[instead])
    joint.graph.eliminate_dead_code()
    return min_cut_rematerialization_partition(joint, inputs, **more)


def _for_pytorch(module):
    """PyTorch's own kernels get what they take."""
    for node in list(module.graph.nodes):
        if node.op != "call_function" or node.target not in FOUND:
            continue
        at, instead, forward, given = FOUND[node.target]
        if node.args[at] is not node.args[instead]:
            continue
        with module.graph.inserting_before(node):
            found = module.graph.call_function(forward, given(node.args), node.kwargs if at == 5 else {})
            node.update_arg(at, module.graph.call_function(operator.getitem, (found, 1)))
    module.recompile()


def backend(module, inputs, *, options=None, **more):
    """What torch.compile(backend="anneal") calls with each graph."""
    options = dict(options or {})
    fallback = bool(options.pop("fallback", False))
    if options:
        raise ValueError(f"options of backend anneal: {', '.join(options)} is not known; there is: fallback")
    for x in inputs:
        if torch.is_tensor(x) and x.device.type != "cpu":
            raise Unsupported(f"a tensor on {x.device}: backend anneal computes on the CPU")
    library()
    seen = {}  # results of a graph that leave it; all of them but for the forward graph's

    def partition(joint, inputs, **more):
        seen["forward"] = more.get("num_fwd_outputs", sys.maxsize)
        return _partition(joint, inputs, **more)

    def compiler(name):
        def compile_graph(graph, example):
            made = Graph(graph, name, fallback, seen.get(name, sys.maxsize))
            made._boxed_call = True
            return made
        return compile_graph
    return aot_autograd(fw_compiler=compiler("forward"), bw_compiler=compiler("backward"), inference_compiler=compiler("inference"),
                        decompositions=_decompositions(), partition_fn=partition)(module, inputs)


def _known_by_name():
    """backend="anneal" where the package is no installed wheel, whose entry point says the same."""
    class Here:
        @staticmethod
        def load():
            return backend
    named = getattr(registry, "_BACKENDS", None)
    if isinstance(named, dict):
        named.setdefault("anneal", Here)


_known_by_name()


def counts():
    """What the compiled functions that are alive have done: a dict of numbers, and why PyTorch ran graphs in place of anneal."""
    out = collections.Counter(graphs=0, plans=0, calls=0, copies=0, copied_bytes=0, launches=0)
    for graph in list(_alive):
        out["graphs"] += 1
        for held in graph.plans.values():
            if held and held.plan:
                c = held.plan.counts()
                out["plans"] += 1
                for name in ("calls", "copies", "copied_bytes", "launches"):
                    out[name] += getattr(c, name)
    result = dict(out)
    result["fallback_calls"] = _fallbacks["calls"]
    result["fallbacks"] = [k for k in _fallbacks if k != "calls"]
    return result
