"""anneal.load: a model over arrays of any library with DLPack, beside PyTorch in float64; what cannot be taken is a sentence, and nothing leaks.
torch_tests.py runs it."""
import gc
import json
import os
import subprocess
import sys
import tempfile
import warnings
import zipfile

import torch
import torch.nn as nn
import torch.nn.functional as F

import anneal
import anneal.torch
from anneal import _dlpack
from anneal.export import export

try:
    import numpy
except ImportError:
    numpy = None

TESTS = []


def test(f):
    TESTS.append(f)
    return f


def refused(f, *words):
    try:
        f()
    except Exception as e:
        for w in words:
            assert w in str(e), e
        return
    raise AssertionError("it was taken")


class Classes(nn.Module):
    """A mean over ids, a perceptron with batch norm and dropout; two results and a buffer of integers."""

    def __init__(self):
        super().__init__()
        self.table, self.norm, self.head = nn.Embedding(9, 6), nn.BatchNorm1d(6), nn.Linear(6, 4)

    def forward(self, ids, x):
        h = self.norm(self.table(ids).mean(1) + x)
        return self.head(F.dropout(h, 0.5, self.training)), h > 0


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x, y):
        return F.cross_entropy(self.inside(x), y)


def archive(model, example, name="model.pt2"):
    path = os.path.join(tempfile.mkdtemp(), name)
    export(model, example, path)
    return path


def given():
    return torch.randint(0, 9, (5, 3)), torch.randn(5, 6)


class Only:
    """An array of a library that knows nothing but DLPack, of version `version`."""

    def __init__(self, t, version):
        self.t, self.version = t, version

    def __dlpack_device__(self):
        return self.t.__dlpack_device__()

    def __dlpack__(self, **more):
        if not self.version and "max_version" in more:
            raise TypeError("max_version")
        return self.t.__dlpack__(**more)


@test
def a_model_over_arrays_gives_what_pytorch_gives():
    model = Classes()
    model(*given())
    path = archive(model, given())
    model.eval()
    mine = anneal.load(path)
    for n in (5, 2, 7):  # the first axis is free
        ids, x = torch.randint(0, 9, (n, 3)), torch.randn(n, 6)
        want = model(ids, x)
        arrays = [(ids, x), (Only(ids, False), Only(x, True)), (ids, x.t().contiguous().t()), (ids.int(), torch.randn(n, 2, 6)[:, 1].copy_(x))]
        if numpy:
            arrays += [(ids.numpy(), x.numpy()), (ids.numpy()[:, ::1], numpy.asfortranarray(x.numpy()))]
        for a, b in arrays:
            got = mine(a, b)
            assert [g.shape for g in got] == [(n, 4), (n, 6)] and [g.dtype for g in got] == ["float64", "bool"], got
            for g, w in zip(got, want):
                assert torch.allclose(torch.from_dlpack(g).double(), w.double(), 1e-12, 1e-12)
                if numpy and g.dtype != "bool":
                    assert numpy.allclose(numpy.from_dlpack(g), w.detach().numpy())


@test
def results_are_written_into_the_callers_arrays():
    model = nn.Linear(6, 4).eval()
    mine, x = anneal.load(archive(model, torch.randn(5, 6))), torch.randn(5, 6)
    for y in (torch.empty(5, 4), torch.empty(4, 5).t()):
        assert mine(x, out=y) is y and torch.allclose(y, model(x))
    refused(lambda: mine(x, out=torch.empty(5, 3)), "result 0", "an_import_call_plan")
    refused(lambda: mine(x, out=torch.empty(5, 8)[:, ::2]), "result 0")
    refused(lambda: mine(x, out=(torch.empty(5, 4), torch.empty(5, 4))), "1 results, not 2")
    square = anneal.load(archive(nn.Linear(4, 4), torch.randn(5, 4)))
    both = torch.randn(5, 4)
    refused(lambda: square(both, out=both), "overlaps")
    if numpy:
        fixed = numpy.zeros((5, 4))
        fixed.flags.writeable = False
        refused(lambda: mine(x, out=fixed), "only be read")
        assert torch.allclose(torch.from_dlpack(mine(fixed_input(x))), model(x))


def fixed_input(x):
    a = x.numpy().copy()
    a.flags.writeable = False
    return a


@test
def arrays_are_read_in_place_and_copies_are_counted():
    mine = anneal.load(archive(nn.Linear(6, 4), torch.randn(5, 6)))
    x = torch.randn(5, 6)
    mine(x)
    mine(x.t().contiguous().t())
    assert mine.counts()["copies"] == 0, mine.counts()
    mine(torch.randn(5, 12)[:, ::2])
    assert mine.counts()["copies"] == 1 and mine.counts()["copied_bytes"] == 240, mine.counts()
    odd = torch.zeros(5 * 6 * 8 + 1, dtype=torch.uint8)
    if numpy:  # PyTorch has no tensor that is not aligned
        view = odd.numpy()[1:].view(numpy.float64).reshape(5, 6)
        view[...] = x.numpy()
        assert numpy.array_equal(numpy.from_dlpack(mine(view)), numpy.from_dlpack(mine(x)))
        assert mine.counts()["copies"] == 2, mine.counts()


@test
def steps_over_arrays_are_those_of_torch_optim():
    model, (x, y) = Loss(), (torch.randn(6, 5), torch.randint(0, 3, (6,)))
    mine = anneal.load(archive(model, (x, y)))
    o = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(4):
        o.zero_grad()
        want = model(x, y)
        want.backward()
        o.step()
        arrays = (x.numpy(), y.numpy()) if numpy else (x, y)
        got = mine.step(*arrays, optimizer="sgd", lr=0.1, momentum=0.9, weight_decay=0.1)
        assert abs(got - float(want)) < 1e-12, (got, want)
    state = {k: torch.from_dlpack(v) for k, v in mine.state_dict().items()}
    model.load_state_dict(state, strict=True)
    for p, q in zip(model.parameters(), state.values()):
        assert torch.allclose(p, q, 1e-12, 1e-12)
    assert mine.updates == 4 and mine.norm > 0
    refused(lambda: mine.step(x, y, optimizer="adamw"), "sgd")
    refused(lambda: mine.step(x, y, optimizer="sgd", betas=(0, 0)), "betas")
    refused(lambda: mine.step(x, y, optimizer="lion"), "lion", "adamw")


@test
def a_step_takes_arrays_of_other_libraries():
    model, (x, y) = nn.Linear(5, 3), (torch.randn(6, 5), torch.randint(0, 3, (6,)))
    step = anneal.torch.step(model, (x, y), loss=F.cross_entropy)
    first = F.cross_entropy(model(x), y)
    assert torch.allclose(step(Only(x, True), Only(y, False)), first)


@test
def what_is_no_array_is_a_sentence():
    mine = anneal.load(archive(nn.Linear(6, 4), torch.randn(5, 6)))
    refused(lambda: mine([[1.0]]), "list", "__dlpack__")
    refused(lambda: mine(torch.randn(5, 7)), "shape")
    refused(lambda: mine(torch.randn(5, 6), torch.randn(5, 6)), "1 arrays, not 2")
    refused(lambda: mine(torch.zeros(5, 6, dtype=torch.complex128)), "bits")
    refused(lambda: mine(torch.zeros(5, 6, device="meta")), "")
    if numpy:
        refused(lambda: mine(numpy.zeros((5, 6))[::-1]), "steps not negative")
    refused(lambda: anneal.load("/nowhere/model.pt2"), "model.pt2")
    mine.close()
    refused(lambda: mine(torch.randn(5, 6)), "closed")


@test
def what_is_given_and_taken_is_freed():
    mine = anneal.load(archive(nn.Linear(64, 64), torch.randn(8, 64)))
    x = torch.randn(8, 64)
    mine(x)
    gc.collect()
    before = len(_dlpack._given)
    for _ in range(50):
        r = mine(x)
        t = torch.from_dlpack(r)
        del r
        assert t.shape == (8, 64) and t.isfinite().all()  # it outlives the result
        mine(x).__dlpack__()  # a capsule that nobody takes
        del t
    gc.collect()
    assert len(_dlpack._given) == before, len(_dlpack._given)
    held = mine.memory().requested_bytes
    anneal.empty_cache()
    assert mine.memory().requested_bytes < held
    mine(x)
    assert mine.memory().requested_bytes == held


@test
def pytorch_is_not_needed():
    if not numpy:
        return
    path = archive(nn.Linear(6, 4), torch.randn(5, 6))
    text = ("import sys; sys.modules['torch'] = None\nimport anneal, numpy\nm = anneal.load(sys.argv[1])\n"
            "y = numpy.from_dlpack(m(numpy.ones((5, 6))))\nanneal.empty_cache()\nprint(y.shape)")
    done = subprocess.run([sys.executable, "-c", text, path], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(5, 4)", done.stderr


def rewritten(path, change):
    """The archive with its program changed."""
    with zipfile.ZipFile(path) as z:
        parts = {n: z.read(n) for n in z.namelist()}
    for name in parts:
        if name.endswith("models/model.json"):
            program = json.loads(parts[name])
            change(program)
            parts[name] = json.dumps(program).encode()
    with zipfile.ZipFile(path, "w") as z:
        for name, data in parts.items():
            z.writestr(name, data)
    return path


@test
def a_newer_schema_is_a_note_and_unknown_keys_are_ignored():
    def newer(program):
        program["schema_version"]["minor"] = 99
        program["a new key"] = {"as_new": 1}
        program["graph_module"]["graph"]["nodes"][0]["a new key"] = [1]
    path = rewritten(archive(nn.Linear(6, 4), torch.randn(5, 6)), newer)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        mine = anneal.load(path)
    assert len(seen) == 1 and "8.99" in str(seen[0].message) and torch.__version__ in str(seen[0].message), [str(w.message) for w in seen]
    assert mine(torch.randn(5, 6)).shape == (5, 4)

    def other(program):
        program["graph_module"]["graph"]["nodes"][0]["inputs"][0]["arg"] = {"as_new": 1}
    refused(lambda: anneal.load(rewritten(archive(nn.Linear(6, 4), torch.randn(5, 6)), other)), "as_new")

    def major(program):
        program["schema_version"]["major"] = 9
    refused(lambda: anneal.load(rewritten(archive(nn.Linear(6, 4), torch.randn(5, 6)), major)), "version 9")
