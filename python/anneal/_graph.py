"""A graph of torch.fx over ATen operators as the text that the importer reads: the schema of torch.export's archives."""
import json
import math
import operator

import torch

aten = torch.ops.aten
DTYPES = {torch.uint8: 1, torch.int8: 2, torch.int16: 3, torch.int32: 4, torch.int64: 5, torch.float16: 6, torch.float32: 7,
          torch.float64: 8, torch.bool: 12, torch.bfloat16: 13}


class Unsupported(RuntimeError):
    pass


def number(x):
    """A float as JSON can hold it."""
    return x if math.isfinite(x) else "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"


class Text:
    """`sizes` gives a symbol of PyTorch's shapes its value: a graph with symbols is a text for each set of values."""

    def __init__(self, graph, sizes):
        self.sizes = sizes
        self.tensors = {}  # name -> meta
        self.names = {}    # node -> name, or names of several results
        self.nodes = []
        self.graph = graph

    def size(self, x):
        if isinstance(x, int):
            return x
        value = x.node.expr.xreplace(self.sizes)
        if value.free_symbols:
            raise Unsupported(f"{x}: a size that depends on data")
        return int(value)

    def declare(self, name, value):
        if value.dtype not in DTYPES:
            raise Unsupported(f"{name} is {value.dtype}, a dtype that is not there")
        self.tensors[name] = {"dtype": DTYPES[value.dtype], "sizes": [{"as_int": self.size(n)} for n in value.shape],
                              "strides": [{"as_int": self.size(n)} for n in value.stride()]}
        return name

    # ---- arguments

    def scalar(self, x):
        """The number behind a symbolic one."""
        if isinstance(x, torch.fx.Node):
            x = x.meta["val"]
        if isinstance(x, torch.SymInt):
            return self.size(x)
        if isinstance(x, (torch.SymFloat, torch.SymBool)):
            value = x.node.expr.xreplace(self.sizes)
            if value.free_symbols:
                raise Unsupported(f"{x}: a number that depends on data")
            return bool(value) if isinstance(x, torch.SymBool) else float(value)
        return x

    def is_tensor(self, x):
        return isinstance(x, torch.fx.Node) and not isinstance(x.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))

    def sequence(self, xs, kind):
        if any(self.is_tensor(x) for x in xs):
            if all(self.is_tensor(x) for x in xs):
                return {"as_tensors": [{"name": self.names[x]} for x in xs]}
            return {"as_optional_tensors": [{"as_none": True} if x is None else {"as_tensor": {"name": self.names[x]}} for x in xs]}
        xs = [self.scalar(x) for x in xs]
        if "Tensor" in kind and not xs:
            return {"as_tensors": []}
        if any(isinstance(x, float) for x in xs) or "float" in kind:
            return {"as_floats": [number(float(x)) for x in xs]}
        if xs and all(isinstance(x, bool) for x in xs):
            return {"as_bools": xs}
        return {"as_ints": [int(x) for x in xs]}

    def argument(self, x, kind):
        if x is None:
            return {"as_none": True}
        if self.is_tensor(x):
            return {"as_tensor": {"name": self.names[x]}}
        if isinstance(x, (list, tuple)):
            return self.sequence(x, kind)
        x = self.scalar(x)
        if isinstance(x, bool):
            return {"as_bool": x}
        if isinstance(x, int):
            return {"as_int": x}
        if isinstance(x, float):
            return {"as_float": number(x)}
        if isinstance(x, str):
            return {"as_string": x}
        if isinstance(x, torch.dtype):
            if x not in DTYPES:
                raise Unsupported(f"{x}: a dtype that is not there")
            return {"as_scalar_type": DTYPES[x]}
        if isinstance(x, torch.memory_format):
            return {"as_memory_format": 1}
        if isinstance(x, torch.layout):
            return {"as_layout": 1}
        if isinstance(x, torch.device):
            return {"as_device": {"type": x.type}}
        raise Unsupported(f"an argument {type(x).__name__}")

    # ---- nodes

    def results(self, node):
        value = node.meta["val"]
        if torch.is_tensor(value):
            self.names[node] = self.declare(node.name, value)
            return [{"as_tensor": {"name": node.name}}]
        names = [None if v is None else self.declare(f"{node.name}_{i}", v) for i, v in enumerate(value)]
        self.names[node] = names
        if isinstance(value, list):
            return [{"as_tensors": [{"name": n} for n in names]}]
        return [{"as_none": True} if n is None else {"as_tensor": {"name": n}} for n in names]

    def call(self, node):
        if node.target is operator.getitem:
            self.names[node] = self.names[node.args[0]][node.args[1]]
            return
        if not isinstance(node.meta.get("val"), (torch.Tensor, tuple, list)):
            return  # a size: where it is read, its value is written
        inputs, schema = [], getattr(node.target, "_schema", None)
        if schema is None:
            raise Unsupported(f"{node.target} is no operator of ATen")
        for i, a in enumerate(schema.arguments):
            if i < len(node.args) and not a.kwarg_only:
                x = node.args[i]
            elif a.name in node.kwargs:
                x = node.kwargs[a.name]
            else:
                continue
            inputs.append({"name": a.name, "arg": self.argument(x, str(a.type)), "kind": 1})
        stack = node.meta.get("nn_module_stack") or {}
        modules = ";".join(f"{key},{path.split('].', 1)[-1]},_" for key, (path, _) in stack.items())
        metadata = {"nn_module_stack": modules, "stack_trace": node.meta.get("stack_trace") or ""}
        self.nodes.append({"target": str(node.target), "inputs": inputs, "outputs": self.results(node), "metadata": metadata})

    def build(self, inputs, outputs):
        """The text of the part of the graph between tensors: placeholders, get_attr nodes and results, as nodes."""
        for node in inputs:
            self.names[node] = self.declare(node.name, node.meta["val"])
        needed = set(outputs)
        for node in reversed(self.graph.nodes):
            if node in needed:
                needed.update(node.all_input_nodes)
        for node in self.graph.nodes:
            if node.op == "call_function" and node in needed:
                self.call(node)
        spec = [{"user_input": {"arg": {"as_tensor": {"name": self.names[n]}}}} for n in inputs]
        out = [{"user_output": {"arg": {"as_tensor": {"name": self.names[n]}}}} for n in outputs]
        graph = {"inputs": [], "outputs": [], "nodes": self.nodes, "tensor_values": self.tensors}
        program = {"schema_version": {"major": 8, "minor": 0}, "verifiers": ["TRAINING"],
                   "graph_module": {"graph": graph, "signature": {"input_specs": spec, "output_specs": out}}}
        return json.dumps({"model": program, "weights": {"config": {}}, "constants": {"config": {}}})


# ---- as_strided

def dense_order(sizes, strides):
    """The axes as they lie in memory, the slowest first; None: the elements have gaps or are repeated."""
    order = sorted((i for i, n in enumerate(sizes) if n != 1), key=lambda i: -strides[i])
    expected = 1
    for i in reversed(order):
        if strides[i] != expected:
            return None
        expected *= sizes[i]
    return order + [i for i, n in enumerate(sizes) if n == 1]


def _other_order(graph, x, sizes, strides, new_sizes, new_strides):
    """The elements of node x, whose sizes and strides are given, read in the order of memory as others; None: not a matter of
    order."""
    old, new = dense_order(sizes, strides), dense_order(new_sizes, new_strides)
    if old is None or new is None or math.prod(sizes) != math.prod(new_sizes):
        return None

    def call(target, *args):
        node = graph.call_function(target, args)
        node.meta["val"] = target(args[0].meta["val"], *args[1:])
        return node
    lies = call(aten.reshape.default, call(aten.permute.default, x, old), [new_sizes[i] for i in new])
    return call(aten.permute.default, lies, [new.index(i) for i in range(len(new))])


def without_strides(module):
    """as_strided and as_strided_scatter of a whole tensor become permutations: strides are no part of a plan."""
    graph = module.graph
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in (aten.as_strided.default, aten.as_strided_scatter.default):
            continue
        scatter = node.target is aten.as_strided_scatter.default
        base, given = node.args[0], list(node.args[2 if scatter else 1:])
        value = base.meta["val"]
        numbers = [*given[0], *given[1], *value.shape, *value.stride()]
        offset = given[2] if len(given) > 2 else node.kwargs.get("storage_offset")
        if offset or not all(isinstance(n, int) for n in numbers):
            continue
        with graph.inserting_before(node):
            if scatter:
                made = _other_order(graph, node.args[1], given[0], given[1], list(value.shape), list(value.stride()))
            else:
                made = _other_order(graph, base, list(value.shape), list(value.stride()), given[0], given[1])
        if made is not None:
            node.replace_all_uses_with(made)
            graph.erase_node(node)
    module.recompile()
