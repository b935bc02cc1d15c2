"""python -m anneal.export my.py:model my.py:example -o model.pt2

Writes a PyTorch model as an archive that `anneal train` reads. `model` is an nn.Module, or a function that returns one;
`example` is a tuple of tensors (or a function that returns one): what forward takes, the first axis counting samples.

The archive is that of torch.export.save, with two programs over one set of weights: "model", exported in training mode, and
"eval", in evaluation mode. The first axis may have any length where the model exports so.
"""
import argparse
import importlib.util
import io
import json
import os
import zipfile

import torch


def load(place):
    """my.py:name"""
    path, _, name = place.rpartition(":")
    if not path:
        raise SystemExit(f"{place}: write FILE.py:NAME")
    spec = importlib.util.spec_from_file_location("exported", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def free_first_axis(inputs):
    return tuple({0: torch.export.Dim.AUTO} if torch.is_tensor(x) and x.dim() > 0 else None for x in inputs)


def program(model, inputs, shapes=None):
    """Exported with a first axis of any length, or else with the example's. `shapes`: dynamic_shapes, of a forward(*args)."""
    try:
        made = torch.export.export(model, inputs, strict=False, dynamic_shapes=shapes or free_first_axis(inputs))
        return made, bool(made.range_constraints)
    except Exception:  # the model's own code decides what can be free
        return torch.export.export(model, inputs, strict=False), False


def members(made):
    """What torch.export.save writes, by name without the archive's folder."""
    buffer = io.BytesIO()
    torch.export.save(made, buffer)
    with zipfile.ZipFile(buffer) as z:
        return {n.partition("/")[2]: z.read(n) for n in z.namelist()}


def renamed(value, names):
    """The JSON value with strings replaced."""
    if isinstance(value, dict):
        return {k: renamed(v, names) for k, v in value.items()}
    if isinstance(value, list):
        return [renamed(v, names) for v in value]
    return names.get(value, value) if isinstance(value, str) else value


def add_evaluation(parts, other):
    """The program of `other` as "eval" beside the one of `parts`, over the same weights. Constants that only it has get a
    member of their own, and a name of their own where "model" has another one of that name."""
    config = "data/constants/model_constants_config.json"
    program = json.loads(other["models/model.json"])
    have, more, names = json.loads(parts[config]), json.loads(other[config])["config"], {}
    for name, entry in more.items():
        data, file = other["data/constants/" + entry["path_name"]], f"tensor_eval_{len(have['config'])}"
        mine = have["config"].get(name)
        if mine and mine["tensor_meta"] == entry["tensor_meta"] and parts["data/constants/" + mine["path_name"]] == data:
            continue
        if mine:
            names[name] = "eval_" + name
        have["config"][names.get(name, name)] = dict(entry, path_name=file)
        parts["data/constants/" + file] = data
    for spec in program["graph_module"]["signature"]["input_specs"]:
        for kind in ("tensor_constant", "buffer"):
            if kind in spec:
                spec[kind] = renamed(spec[kind], names)
    parts["models/eval.json"] = json.dumps(program).encode()
    parts[config] = json.dumps(have).encode()
    parts["data/constants/eval_constants_config.json"] = parts[config]
    parts["data/weights/eval_weights_config.json"] = parts["data/weights/model_weights_config.json"]
    parts["data/sample_inputs/eval.pt"] = other["data/sample_inputs/model.pt"]


def export(model, inputs, path):
    """Writes the archive; returns whether the first axis may have any length."""
    inputs = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    train, free = program(model.train(), inputs)
    evaluation, free_eval = program(model.eval(), inputs)
    model.train()
    if free != free_eval:
        train, evaluation = (torch.export.export(m, inputs, strict=False) for m in (model.train(), model.eval()))
        free = False
        model.train()
    parts = members(train)
    add_evaluation(parts, members(evaluation))
    folder = os.path.splitext(os.path.basename(path))[0]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for name, data in parts.items():
            z.writestr(f"{folder}/{name}", data)
    return free


def main():
    p = argparse.ArgumentParser(prog="python -m anneal.export", description=__doc__.split("\n\n")[1])
    p.add_argument("model", help="FILE.py:NAME of an nn.Module, or of a function that returns one")
    p.add_argument("example", help="FILE.py:NAME of a tuple of tensors, or of a function that returns one")
    p.add_argument("-o", "--out", default="model.pt2")
    o = p.parse_args()
    model, example = load(o.model), load(o.example)
    model = model if isinstance(model, torch.nn.Module) else model()
    example = example() if callable(example) and not torch.is_tensor(example) else example
    free = export(model, example, o.out)
    count = sum(x.numel() for x in model.parameters())
    size = os.path.getsize(o.out)
    print(f"wrote   {o.out}: {count:,} parameters, {size:,} bytes, batches of {'any' if free else 'one'} size")


if __name__ == "__main__":
    main()
