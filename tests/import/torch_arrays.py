"""anneal.load: a model over arrays of any library with DLPack, beside PyTorch in float64; what cannot be taken is a sentence, and nothing leaks.
torch_tests.py runs it."""
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import warnings
import zipfile

import torch
import torch.nn as nn
import torch.nn.functional as F

import anneal
import anneal.torch
from anneal import _dlpack
from anneal.export import export
from torch_step import refused

try:
    import numpy
except ImportError:
    numpy = None

TESTS = []


def test(f):
    TESTS.append(f)
    return f


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
    refused(lambda: mine(x, out=torch.empty(5, 3)), "result 0 is float64 [5,4]", "float64 [5,3]")
    refused(lambda: mine(x, out=torch.empty(5, 4, dtype=torch.float32)), "result 0 is float64 [5,4]", "float32 [5,4]")
    refused(lambda: mine(x, out=torch.empty(5, 8)[:, ::2]), "result 0, float64 [5,4]", "without gaps")
    refused(lambda: mine(x, out=torch.empty(1, 4).expand(5, 4)), "result 0", "without gaps")
    refused(lambda: mine(torch.randn(5, 7)), "input 0", "float64 [5,7]", "float64 [5,6]")
    refused(lambda: mine(x, out=(torch.empty(5, 4), torch.empty(5, 4))), "1 results, not 2")
    square = anneal.load(archive(nn.Linear(4, 4), torch.randn(5, 4)))
    two, x2 = anneal.load(archive(Twice(), torch.randn(5, 4))), torch.randn(9, 4)
    for n in (5, 7):  # the size of the export, and another one
        both, store = torch.randn(n, 4), torch.zeros(2 * n, 4)
        refused(lambda: square(both, out=both), "result 0 overlaps input 0")
        refused(lambda: square(store[1:n + 1], out=store[:n]), "result 0 overlaps input 0")
        refused(lambda: two(x2[:n], out=(store[:n], store[n - 1:2 * n - 1])), "result 1 overlaps result 0")
        refused(lambda: two(x2[:n], out=(store[:n], store[:n])), "overlaps")
        assert not store.any(), "a call that is refused has written"
        two(x2[:n], out=(store[:n], store[n:]))
        assert torch.equal(store[:n], 2 * x2[:n]) and torch.equal(store[n:], x2[:n] + 1)
        gaps = torch.randn(n, 8)  # copied before anything is written
        want = 2 * gaps[:, ::2]
        two(gaps[:, ::2], out=(gaps.view(-1)[:4 * n].view(n, 4), torch.empty(n, 4)))
        assert torch.equal(gaps.view(-1)[:4 * n].view(n, 4), want)
    if numpy:
        fixed = numpy.zeros((5, 4))
        fixed.flags.writeable = False
        refused(lambda: mine(x, out=fixed), "only be read")
        assert torch.allclose(torch.from_dlpack(mine(fixed_input(x))), model(x))


class Twice(nn.Module):
    def forward(self, x):
        return x * 2, x + 1


class Narrow(nn.Module):
    def forward(self, a, b):
        return torch.cat([a.double() / 2, b.double()], 1), (a + a).long()


@test
def integers_of_8_and_16_bits_are_inputs():
    a, b = torch.randint(-128, 128, (5, 3)).to(torch.int8), torch.randint(-2**15, 2**15, (5, 2)).to(torch.int16)
    a[0], b[0] = torch.tensor([-128, 127, 64]), torch.tensor([-2**15, 2**15 - 1])
    mine = anneal.load(archive(Narrow(), (a, b)))
    for n in (5, 3):
        for x, y in ((a[:n], b[:n]), (a.int()[:n], b.long()[:n]), (torch.cat([a, a], 1)[:n, 3:], b[:n])):
            got, want = mine(x, y), Narrow()(a[:n], b[:n])
            for g, w in zip(got, want):
                assert torch.equal(torch.from_dlpack(g).double(), w.double()), (g, w)
    refused(lambda: mine(a.double(), b), "float64", "int8")


class OnGpu:
    """An array that says it is on GPU `index`; its elements are on the CPU."""

    def __init__(self, t, index=0):
        self.t, self.index, self.stream = t, index, None

    def __dlpack_device__(self):
        return 2, self.index

    def __dlpack__(self, *, stream=None, max_version=None):
        self.stream = stream
        return self.t.__dlpack__()


@test
def an_array_on_a_gpu_is_told_our_stream_and_goes_to_a_model_there():
    t = torch.arange(6.0).view(2, 3)
    a = OnGpu(t)
    b = _dlpack.Borrowed(a, device="cuda", stream=4711)
    assert a.stream == 4711 and b.array.data == t.data_ptr() and list(b.array.dim[:2]) == [2, 3]
    refused(lambda: _dlpack.Borrowed(a), "another device", "computes on cpu")
    refused(lambda: _dlpack.Borrowed(t, device="cuda", stream=4711), "another device", "computes on cuda")
    refused(lambda: _dlpack.Borrowed(OnGpu(t, 1), device="cuda", stream=4711), "GPU 1")
    mine = anneal.load(archive(nn.Linear(3, 2), torch.randn(5, 3)))
    refused(lambda: mine(a), "another device")


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
    assert len(_dlpack._given) <= before + 1, len(_dlpack._given)  # the last of them is freed when there is another
    held = mine(x).__dlpack__()
    _dlpack.sweep()
    assert torch.from_dlpack(held).shape == (8, 64)  # a capsule that is held is kept
    del held
    _dlpack.sweep()
    gc.collect()
    assert len(_dlpack._given) == before, len(_dlpack._given)
    held = mine.memory().requested_bytes
    anneal.empty_cache()
    assert mine.memory().requested_bytes < held
    mine(x)
    assert mine.memory().requested_bytes == held


class Named(nn.Module):
    """Modules named as the arrays of a call once were."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 3)
        self.add_module("in", nn.ParameterList([nn.Parameter(torch.randn(6))]))

    def forward(self, x):
        return self.out(x * getattr(self, "in")[0])


@test
def a_module_may_be_named_in_or_out():
    model = Named()
    mine = anneal.load(archive(model, torch.randn(5, 6)))
    for n in (5, 7):
        mine(torch.randn(n, 6))
        state = mine.state_dict()
        assert sorted(state) == sorted(model.state_dict()), list(state)
        for k, v in state.items():
            assert torch.equal(torch.from_dlpack(v), model.state_dict()[k])


@test
def an_array_of_another_dtype_is_refused_and_nothing_remains():
    x, ids = torch.randn(5, 6), torch.randint(0, 9, (5, 3))
    mine = anneal.load(archive(Classes(), (ids, x)))
    for bad in (x.float(), x.half(), x.bfloat16(), x.int(), x.long(), x > 0):
        refused(lambda: mine(ids, bad), "input 1", "x, is", str(bad.dtype)[6:], "takes float64")
    for bad in (x[:, :3], x[:, :3].float(), ids > 0):
        refused(lambda: mine(bad, x), "input 0", "ids, is", "takes int64")
    for good in (ids, ids.int(), ids.byte()):
        assert mine(good, x)[0].shape == (5, 4)
    loss, (x, y) = Loss(), (torch.randn(6, 5), torch.randint(0, 3, (6,)))
    mine = anneal.load(archive(loss, (x, y)))
    refused(lambda: mine.step(x.float(), y), "float32", "takes float64")
    assert abs(mine.step(x, y) - float(loss(x, y))) < 1e-12
    step, want = anneal.torch.step(loss, (x, y)), loss(x, y)
    refused(lambda: step(x.float(), y), "float32", "takes float64")
    assert torch.allclose(step(x, y), want)


class Axes(nn.Module):
    """Results whose batch axis is the last, is twice as long, and is not there."""

    def forward(self, x):
        return x.t().contiguous(), torch.cat([x, x]), x.mean(0), (x + 1).t()


@test
def the_batch_may_be_any_axis_of_a_result():
    for first in (5, 7):
        mine = anneal.load(archive(Axes(), torch.randn(5, 6)))
        for n in (first, 5, 3, 5):
            x = torch.randn(n, 6)
            for g, w in zip(mine(x), Axes()(x)):
                assert torch.allclose(torch.from_dlpack(g), w)


@test
def a_closed_model_says_so():
    mine = anneal.load(archive(Loss(), (torch.randn(6, 5), torch.randint(0, 3, (6,)))))
    x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))
    mine(x, y)
    mine.close()
    mine.close()
    for f in (mine.counts, mine.state_dict, lambda: mine(x, y), lambda: mine.step(x, y)):
        refused(f, "the model is closed")
    assert mine.memory().requested_bytes == 0


@test
def a_constructor_that_failed_leaves_no_second_exception():
    seen, before = [], sys.unraisablehook
    sys.unraisablehook = seen.append
    try:
        refused(lambda: anneal.load("model.pt2", device="mps"), "device")
        refused(lambda: anneal.load("model.pt2", threads="2"), "")
        refused(lambda: anneal.load("/nowhere/model.pt2"), "model.pt2")
        gc.collect()
    finally:
        sys.unraisablehook = before
    assert not seen, seen


@test
def threads_share_a_model_beside_empty_cache_and_close():
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4)).eval()
    mine, wrong, done = anneal.load(archive(model, torch.randn(32, 64))), [], []

    def calls():
        try:
            for _ in range(30):
                x = torch.randn(32, 64)
                if not torch.allclose(torch.from_dlpack(mine(x)), model(x)):
                    wrong.append("another result")
        except Exception as e:
            wrong.append(str(e))
        done.append(1)
    threads = [threading.Thread(target=calls) for _ in range(3)]
    for t in threads:
        t.start()
    while len(done) < 3:
        anneal.empty_cache()
        mine.counts(), mine.memory(), mine.state_dict()
    assert not wrong, wrong[:3]
    done.clear()
    last = threading.Thread(target=calls)
    last.start()
    mine.close()
    last.join()
    assert wrong in ([], ["the model is closed"]), wrong


@test
def a_step_refuses_negative_steps():
    if not numpy:
        return
    model, (x, y) = nn.Linear(5, 3), (torch.randn(6, 5), torch.randint(0, 3, (6,)))
    step = anneal.torch.step(model, (x, y), loss=F.cross_entropy)
    refused(lambda: step(x.numpy()[::-1], y), "steps not negative")
    refused(lambda: step(x, y.numpy()[::-1]), "steps not negative")
    first = F.cross_entropy(model(x), y)
    assert torch.allclose(step(x.numpy(), y.numpy()), first)


@test
def an_exception_outlives_a_capsule_that_it_leaves_behind():
    if not numpy:
        return

    class Half(nn.Module):
        def forward(self, x):
            return x.to(torch.bfloat16)
    mine, x = anneal.load(archive(Half(), torch.randn(5, 6))), torch.randn(5, 6)
    gc.collect()
    _dlpack.sweep()
    before = len(_dlpack._given)
    for _ in range(20):
        refused(lambda: numpy.from_dlpack(mine(x)), "dtype")  # NumPy has no bfloat16
    _dlpack.sweep()
    assert len(_dlpack._given) == before, len(_dlpack._given)


@test
def the_program_for_training_changes_buffers_and_that_for_evaluation_does_not():
    model, example = Classes(), given()
    mine = anneal.load(archive(model, example))

    def buffers():
        return {k: torch.from_dlpack(v) for k, v in mine.state_dict().items() if k.startswith("norm.") and k.count("_")}
    start = buffers()
    mine(*example)
    assert all(torch.equal(v, start[k]) for k, v in buffers().items()) and len(start) == 3
    mine(*example, train=True)
    model.train()(*example)
    want = model.state_dict()
    for k, v in buffers().items():
        assert not torch.equal(v, start[k]) and torch.allclose(v.double(), want[k].double()), k


@test
def the_lines_of_the_document_run():
    path = os.path.join(os.path.dirname(__file__), "../../docs/import.md")
    if not numpy or not os.path.exists(path):
        return
    with open(path) as f:
        lines = f.read().split("## Arrays of any library\n")[1].split("```")[1].split("\n", 1)[1]
    model = Loss().float()
    x, y = torch.ones(8, 5), torch.zeros(8, dtype=torch.int64)
    folder = os.path.dirname(archive(model, (x.float(), y)))
    here = os.getcwd()
    try:
        os.chdir(folder)
        names = {}
        exec(compile(lines, "docs/import.md", "exec"), names)
    finally:
        os.chdir(here)
    assert abs(names["loss"] - float(model(x.float(), y))) < 1e-5 and sorted(names["weights"]) == sorted(model.state_dict())


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
