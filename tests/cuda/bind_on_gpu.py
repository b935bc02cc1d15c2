"""Models over arrays of PyTorch that lie on a GPU (anneal.load(path, device="cuda")), beside PyTorch: values, copies, the order of streams, refusals, updates.

    PYTHONPATH=python ANNEAL_LIBRARY=build/libanneal.so.0 python3 tests/cuda/bind_on_gpu.py [cpu]     cpu: the same without a GPU, to try this file

Needs PyTorch with CUDA. tests/cuda/on_gpu.sh runs it as `arrays`."""
import os
import sys
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import anneal
from anneal import _dlpack
from anneal.export import export

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda"
ON_GPU = DEVICE == "cuda"
torch.backends.cuda.matmul.allow_tf32 = False


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.a, self.b = nn.Embedding(50, 64), nn.Linear(64, 128), nn.Linear(128, 10)

    def forward(self, ids, x):
        h = F.gelu(self.a(self.table(ids).mean(1) + x))
        return self.b(h), h.argmax(1)


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 8))

    def forward(self, x, y):
        return F.cross_entropy(self.inside(x), y)


def exported(model, example):
    path = os.path.join(tempfile.mkdtemp(), "model.pt2")
    export(model, example, path)
    return path


def near(got, want, what):
    worst = (got.double() - want.double()).abs().max().item() / max(1.0, want.double().abs().max().item())
    if not worst < 1e-5:
        sys.exit(f"{what}: {worst:.3g} apart")


def refused(f, word):
    try:
        f()
    except (ValueError, TypeError) as e:
        if word not in str(e):
            sys.exit(f"no {word!r} in: {e}")
        return
    sys.exit(f"not refused: {word}")


def given(n):
    return torch.randint(0, 50, (n, 5), device=DEVICE), torch.randn(n, 64, device=DEVICE)


def room(n):
    return torch.empty(n, 10, device=DEVICE), torch.empty(n, dtype=torch.int64, device=DEVICE)


def values():
    torch.manual_seed(1)
    model = Net().float()
    path = exported(model, (torch.randint(0, 50, (16, 5)), torch.randn(16, 64)))
    model = model.to(DEVICE).eval()
    mine = anneal.load(path, device=DEVICE)
    calls = 0
    for n in (16, 7, 16, 33):
        ids, x = given(n)
        store = torch.randn(n * 64 + 1, device=DEVICE)
        forms = [(ids, x), (ids.int(), x), (ids, x.t().contiguous().t()), (ids, torch.randn(n, 128, device=DEVICE)[:, ::2]), (ids, store[1:].view(n, 64))]
        for a, b in forms:
            before = mine.counts()["copies"]
            out = room(n)
            mine(a, b, out=out)
            with torch.no_grad():
                want = model(a, b)
            near(out[0], want[0], f"values of {n} rows")
            if not torch.equal(out[1], want[1]):
                sys.exit("positions differ")
            calls += 1
            if n == 16 and a.dtype == torch.int32 and mine.counts()["copies"] != before:
                sys.exit("arrays that lie as they should were copied")
            if n == 16 and b.data_ptr() % 256 and ON_GPU and mine.counts()["copies"] == before:
                sys.exit("a copy that must be was not counted")
    print(f"# {calls} calls agree, {mine.counts()['copies']} copies of {mine.counts()['copied_bytes']} bytes")
    refused(lambda: mine(*given(16), out=None) if ON_GPU else mine(ids), "out=" if ON_GPU else "2 arrays")
    if ON_GPU:
        refused(lambda: mine(ids.cpu(), x, out=room(33)), "another device")
    refused(lambda: mine(ids, x, out=(x.view(-1)[:330].view(33, 10), room(33)[1])), "overlaps")
    refused(lambda: mine(ids, x, out=(torch.empty(32, 10, device=DEVICE), room(33)[1])), "[33,10]")
    return mine, model


def order(mine, model):
    """What a call reads is still being computed when it is called, and its result is read at once."""
    if not ON_GPU:
        return
    side, ids, busy = torch.cuda.Stream(), given(16)[0].int(), torch.randn(4096, 4096, device=DEVICE)
    for stream in (side, torch.cuda.default_stream()):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for k in range(30):
                x, out = torch.full((16, 64), float("nan"), device=DEVICE), room(16)
                for _ in range(4):
                    busy = busy @ busy
                    busy = busy / busy.norm() * 64
                x.copy_(busy[:16, :64] + k)
                mine(ids, x, out=out)
                first = out[0].clone()
                with torch.no_grad():
                    want = model(ids, x)
                near(first, want[0], f"call {k} behind other work of the stream")
    print("# results are in order with the caller's stream")


def updates():
    torch.manual_seed(2)
    model = Loss().float()
    path = exported(model, (torch.randn(32, 64), torch.randint(0, 8, (32,))))
    mine, theirs = anneal.load(path, device=DEVICE), model.to(DEVICE)
    optimizer, worst = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9), 0.0
    for _ in range(30):
        x, y = torch.randn(32, 64, device=DEVICE), torch.randint(0, 8, (32,), device=DEVICE)
        loss = theirs(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        worst = max(worst, abs(mine.step(x, y, optimizer="sgd", lr=0.1, momentum=0.9) - loss.item()))
    if not worst < 1e-4:
        sys.exit(f"losses are {worst:.3g} apart")
    print(f"# 30 losses at most {worst:.2g} apart")


def speed(mine):
    ids, x, out = given(16)[0].int(), torch.randn(16, 64, device=DEVICE), room(16)
    mine(ids, x, out=out)
    for what, arrays in (("the same arrays", [(ids, x, out)]), ("arrays that change", [(ids.clone(), x.clone(), room(16)) for _ in range(8)])):
        began = time.perf_counter()
        for k in range(200):
            a, b, o = arrays[k % len(arrays)]
            mine(a, b, out=o)
        print(f"# a call over {what}: {(time.perf_counter() - began) * 5000:.0f} microseconds")


def main():
    if ON_GPU and not torch.cuda.is_available():
        sys.exit("PyTorch finds no GPU")
    mine, model = values()
    order(mine, model)
    updates()
    speed(mine)
    mine.close()
    assert not _dlpack._given, "memory is held"
    print("# values, copies, order of streams, refusals and updates are right")


main()
