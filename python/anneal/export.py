"""python -m anneal.export my.py:model my.py:example -o model.pt2

Writes a PyTorch model as an archive that `anneal train` reads. `model` is an nn.Module, or a function that returns one;
`example` is a tuple of tensors (or a function that returns one): what forward takes, the first axis counting samples.

The archive is that of torch.export.save, with two programs over one set of weights: "model", exported in training mode, and
"eval", in evaluation mode. The first axis may have any length where the model exports so.
"""
import argparse
import importlib.util
import io
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


def program(model, inputs):
    """Exported with a first axis of any length, or else with the example's."""
    try:
        made = torch.export.export(model, inputs, strict=False, dynamic_shapes=free_first_axis(inputs))
        return made, bool(made.range_constraints)
    except Exception:  # the model's own code decides what can be free
        return torch.export.export(model, inputs, strict=False), False


def text_of(made):
    """The JSON of a program, as torch.export.save writes it."""
    buffer = io.BytesIO()
    torch.export.save(made, buffer)
    with zipfile.ZipFile(io.BytesIO(buffer.getvalue())) as z:
        name = next(n for n in z.namelist() if n.endswith("models/model.json"))
        return z.read(name)


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
    torch.export.save(train, path)
    with zipfile.ZipFile(path) as z:
        folder = next(n for n in z.namelist() if n.endswith("models/model.json"))[: -len("models/model.json")]
    with zipfile.ZipFile(path, "a", zipfile.ZIP_STORED) as z:
        z.writestr(folder + "models/eval.json", text_of(evaluation))
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
