#!/usr/bin/env python3
"""anneal's optimizers beside torch.optim: settings, parameters and gradients drawn at random, the odd ones among them.

    python3 tools/pytorch_optimizers.py build/libanneal.so.0 [--draws N] [--seed S] [--only I] [--write FILE]

A draw is an optimizer (SGD, Adam, AdamW; Adam-atan2 by its formula), its settings for each of up to 20 updates (rates of 0,
betas of 0 and near 1, eps of 0, 1e-30 and 1e10, decay, clipping, micro-batches, averages, counts that begin at 10^9, loss
scaling), two to four parameters (a matrix decays, a vector does not; one may be empty), and gradients of any size, with
zeros, subnormal numbers, infinities and NaN.

The judge is PyTorch in float64; an update whose gradient norm is not finite is left out, as anneal.h says. In float64 and
float32 whole courses are compared: |got - want| <= K eps S, where S is the largest number met on the way (parameters, and
steps) and eps that of the dtype, with loss scaling of float32, in which its bias corrections are. In bfloat16, float16, and with moments in bfloat16, each update alone is compared from
the state that anneal is in, to one unit of what is stored.

Exit 1: something differs. --write FILE: the first --draws courses in float64, of a matrix and a vector, eight updates at most, and their ends, as a
safetensors file: tests/torch/optimizer_draws.safetensors, by --draws 60 --seed 7."""
import argparse
import ctypes as C
import json
import math
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "torch", "samples"))
import torch

from capi import AT, BF16, F16, F32, F64, OF, P, Anneal, Init, Refused, Shape, T, axes, shape  # noqa: F401

NAMES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
EPS = {"f64": 2.0**-52, "f32": 2.0**-23, "bf16": 2.0**-8, "f16": 2.0**-11}
KINDS = ["sgd", "adam", "adamw", "atan2"]


class AdamOptions(C.Structure):
    _fields_ = [(n, C.c_double) for n in ("lr", "beta1", "beta2", "eps", "weight_decay", "clip")] + [
        ("t", C.c_int64), ("only_if", P), ("scaled", C.c_bool), ("moments", C.c_int)]


class SgdOptions(C.Structure):
    _fields_ = [(n, C.c_double) for n in ("lr", "momentum", "dampening", "weight_decay", "clip")] + [
        ("nesterov", C.c_bool), ("t", C.c_int64), ("only_if", P), ("scaled", C.c_bool)]


# ---- a draw

def pick(r, *choices):
    return r.choice(choices)


def draw_settings(r, kind, dtype):
    s = {"kind": kind, "dtype": dtype, "updates": r.randint(8, 20), "micro": pick(r, 1, 1, 1, 2, 3),
         "clip": pick(r, 0, 0, 0, 1e-3, 1.0, 1e9, math.inf), "decay": pick(r, 0, 0, 0.01, 0.1, 3.0, -0.5),
         "ema": pick(r, None, None, 0.0, 0.5, 0.9, 1.0), "first": pick(r, 0, 0, 0, 1, 1000, 10**6, 10**9), "scaled": False}
    base = pick(r, 0.0, 1e-8, 1e-3, 1e-3, 0.1, 0.1, 1.0, 7.0)
    s["lr"] = [base * pick(r, 1, 1, 1, 0, 0.5, 3) for _ in range(s["updates"])]
    if kind == "sgd":
        s["momentum"] = pick(r, 0, 0.5, 0.9, 0.9, 0.999, 1.0, 1.5)
        s["nesterov"] = s["momentum"] > 0 and r.random() < 0.4
        s["dampening"] = 0 if s["nesterov"] else pick(r, 0, 0, 0.25, 1.0, 2.0, -0.5)
    else:
        s["betas"] = pick(r, (0.9, 0.999), (0.9, 0.95), (0.0, 0.999), (0.9, 0.0), (0.0, 0.0), (0.99, 0.5), (0.999, 0.9999999),
                          (0.1 + r.random() * 0.8, 1 - 10 ** r.uniform(-9, -1)))
        s["eps"] = pick(r, 1e-8, 1e-8, 1e-8, 0.0 if s["betas"] != (0.0, 0.0) else 1e-12, 1e-30, 1e-3, 1.0, 1e10)
        s["moments"] = dtype == "f32" and r.random() < 0.3
    if r.random() < 0.25:
        s["scaled"], s["first"] = True, 0
    if s["scaled"] or kind == "sgd":
        s["first"] = 0 if s["scaled"] else pick(r, 0, 0, 5)
    return s


def draw_numbers(r, s):
    """Parameters and gradients that the dtype holds."""
    dtype = NAMES[s["dtype"]]
    shapes = {"w": (r.randint(1, 4), r.randint(1, 5)), "b": (r.randint(1, 6),)}
    if r.random() < 0.3:
        shapes["k"] = (2, 1, r.randint(1, 3))
    if r.random() < 0.2:
        shapes["none"] = (0, 3)
    size = {"f64": (-12, 6), "f32": (-6, 4), "bf16": (-5, 3), "f16": (-3, 1)}[s["dtype"]]
    scale = 10 ** r.uniform(*size) if r.random() < 0.5 else 1.0
    tiny = {"f64": [5e-324, 1e-310], "f32": [1e-30, 1e-25], "bf16": [1e-30, 1e-25], "f16": [6e-8, 1e-6]}[s["dtype"]]
    odd = r.random() < 0.35
    first = {n: torch.tensor([r.uniform(-2, 2) for _ in range(math.prod(d))], dtype=torch.float64).reshape(d).to(dtype)
             for n, d in shapes.items()}
    grads = []
    for _ in range(s["updates"]):
        spoiled = odd and r.random() < 0.15
        batch = []
        for _ in range(s["micro"]):
            now = {}
            for n, d in shapes.items():
                x = [scale * r.gauss(0, 1) * pick(r, 1, 1, 1, 0.01, 0) for _ in range(math.prod(d))]
                x = [pick(r, *tiny, -tiny[0], 0.0, -0.0) if odd and r.random() < 0.2 else v for v in x]
                if spoiled and x and r.random() < 0.5:
                    x[r.randrange(len(x))] = pick(r, math.inf, -math.inf, math.nan)
                now[n] = torch.tensor(x, dtype=torch.float64).reshape(d).to(dtype)
            batch.append(now)
        grads.append(batch)
    return first, grads


# ---- the judge

class Judge:
    """torch.optim over copies of the parameters, in float64 (or in dtype, to see what its own rounding does)."""

    def __init__(self, s, first, dtype=torch.float64):
        self.s, self.dtype, self.applied = s, dtype, 0
        self.p = {n: torch.nn.Parameter(x.to(dtype).clone()) for n, x in first.items()}
        groups = [{"params": [p for p in self.p.values() if p.dim() >= 2], "weight_decay": s["decay"]},
                  {"params": [p for p in self.p.values() if p.dim() < 2], "weight_decay": 0}]
        if s["decay"] < 0:  # PyTorch refuses it when it is given, not afterwards
            groups[0]["weight_decay"] = 0
        if s["kind"] == "sgd":
            self.o = torch.optim.SGD(groups, lr=1.0, momentum=s["momentum"], dampening=s["dampening"], nesterov=s["nesterov"],
                                     foreach=False)
        elif s["kind"] in ("adam", "adamw"):
            c = torch.optim.Adam if s["kind"] == "adam" else torch.optim.AdamW
            self.o = c(groups, lr=1.0, betas=s["betas"], eps=s["eps"], foreach=False)
        else:
            self.o, self.m, self.v, self.t = None, {}, {}, 0
        if self.o:
            self.o.param_groups[0]["weight_decay"] = s["decay"]
        self.average = {n: p.detach().clone() for n, p in self.p.items()}

    def count(self, t):
        """What update number the next one is."""
        if self.s["kind"] == "sgd":
            for p in self.p.values():  # without a buffer the update is the first
                if t > 1 and self.s["momentum"] and not self.o.state[p]:
                    self.o.state[p]["momentum_buffer"] = torch.zeros_like(p)
            return
        if not self.o:
            self.t = t - 1
            return
        for p in self.p.values():
            state = self.o.state[p]
            if not state:
                state.update(step=torch.tensor(0.0), exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
            state["step"] = torch.tensor(float(t - 1), dtype=torch.float64)

    def set_state(self, m, v):
        for n, p in self.p.items():
            if self.s["kind"] == "sgd":
                if self.s["momentum"] and m is not None:
                    self.o.state[p]["momentum_buffer"] = m[n].clone()
            elif self.o:
                self.o.state[p].update(exp_avg=m[n].clone(), exp_avg_sq=v[n].clone())
            else:
                self.m[n], self.v[n] = m[n].clone(), v[n].clone()

    def update(self, lr, grads):
        """False: it was left out."""
        s = self.s
        for n, p in self.p.items():
            p.grad = sum(g[n].to(self.dtype) for g in grads)
        norm = math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in self.p.values()))
        self.norm = norm
        if math.isfinite(norm) and norm < 1.8e19 or self.s["dtype"] == "f64" and math.isfinite(norm):
            if s["clip"] > 0:
                torch.nn.utils.clip_grad_norm_(self.p.values(), s["clip"], foreach=False)
            self.step(lr)
            self.applied += 1
        if s["ema"] is not None:
            for n, p in self.p.items():
                self.average[n] = s["ema"] * self.average[n] + (1 - s["ema"]) * p.detach()
        return norm < (1.8e19 if s["dtype"] != "f64" else math.inf)

    def step(self, lr):
        if self.o:
            for g in self.o.param_groups:
                g["lr"] = lr
            self.o.step()
            return
        b1, b2 = self.s["betas"]
        self.t += 1
        with torch.no_grad():
            for n, p in self.p.items():
                m, v = self.m.get(n, torch.zeros_like(p)), self.v.get(n, torch.zeros_like(p))
                m, v = b1 * m + (1 - b1) * p.grad, b2 * v + (1 - b2) * p.grad ** 2
                self.m[n], self.v[n] = m, v
                if p.dim() >= 2:
                    p.mul_(1 - lr * self.s["decay"])
                p.sub_(lr / (1 - b1**self.t) * torch.atan2(m, v.sqrt() / math.sqrt(1 - b2**self.t)))


# ---- anneal

class Run:
    def __init__(self, library, s, first, scale=1.0):
        self.A, self.s = Anneal(library), s
        lib = self.A.lib
        lib.an_param_at.restype, lib.an_param_at.argtypes = P, [C.c_char_p, P, C.c_char_p, C.c_int, Shape, Init]
        lib.an_eval_effects_at.argtypes = [C.c_char_p, P]
        lib.an_persist_read.argtypes = [P, C.c_int, P, C.c_size_t]
        lib.an_ema_at.argtypes = [C.c_char_p, P, C.c_double, P]
        lib.an_ema_at.restype = None
        lib.an_scale_loss_at.restype, lib.an_scale_loss_at.argtypes = P, [C.c_char_p, P]
        for n in ("adam", "adamw", "adam_atan2"):
            f = getattr(lib, "an_%s_at" % n)
            f.restype, f.argtypes = P, [C.c_char_p, P, AdamOptions]
        lib.an_sgd_with_at.restype, lib.an_sgd_with_at.argtypes = P, [C.c_char_p, P, SgdOptions]
        self.dtype = OF[NAMES[s["dtype"]]]
        self.shapes = {n: tuple(x.shape) for n, x in first.items()}
        for n, x in first.items():
            self.param(n)
        for n, x in first.items():
            raw = x.contiguous().flatten().view(torch.uint8).numpy().tobytes() if x.numel() else b""
            lib.an_persist_write(self.A.cx, lib.an_persist_find(self.A.cx, n.encode()), raw, len(raw))
        self.A.check()

    def param(self, n):
        t = T(self.A, self.A.lib.an_param_at(AT, self.A.cx, n.encode(), self.dtype, shape(self.shapes[n]), Init(0, 0, 0)))
        self.A.check()
        return t

    def backward(self, grads):
        loss = None
        for n in self.shapes:
            p, g = self.param(n), self.A.data(grads[n])
            one = (p * g).sum().cast(F32 if self.dtype != F64 else F64)
            loss = one if loss is None else loss + one
        if self.s["scaled"]:
            loss = T(self.A, self.A.lib.an_scale_loss_at(AT, loss.p))
        self.A.backward(loss)

    def update(self, i, grads):
        lib, cx, s = self.A.lib, self.A.cx, self.s
        for k, g in enumerate(grads):
            self.backward(g)
            if k + 1 < len(grads):
                lib.an_eval_effects_at(AT, cx)
                self.A.check()
                lib.an_reset(cx)
        t = s["first"] + i if s["first"] else 0
        if s["kind"] == "sgd":
            norm = lib.an_sgd_with_at(AT, cx, SgdOptions(s["lr"][i], s["momentum"], s["dampening"], s["decay"], s["clip"],
                                                         s["nesterov"], t, None, s["scaled"]))
        else:
            f = getattr(lib, "an_%s_at" % {"atan2": "adam_atan2"}.get(s["kind"], s["kind"]))
            norm = f(AT, cx, AdamOptions(s["lr"][i], *s["betas"], s["eps"], s["decay"], s["clip"], t, None, s["scaled"],
                                         BF16 if s["moments"] else F32))
        self.A.check()
        if s["ema"] is not None:
            lib.an_ema_at(AT, cx, s["ema"], None)
        self.norm = self.A.eval([T(self.A, norm)])[0].item()
        lib.an_reset(cx)

    def read(self, name, of, dtype=None):
        lib, d = self.A.lib, dtype or NAMES[self.s["dtype"]]
        at, n = lib.an_persist_find(self.A.cx, name.encode()), math.prod(self.shapes[of])
        if at < 0:
            return None
        buffer = bytearray(max(1, n * torch.empty(0, dtype=d).element_size()))
        if n:
            lib.an_persist_read(self.A.cx, at, (C.c_char * len(buffer)).from_buffer(buffer), n * torch.empty(0, dtype=d).element_size())
            return torch.frombuffer(buffer, dtype=d, count=n).reshape(self.shapes[of]).clone()
        return torch.empty(self.shapes[of], dtype=d)

    def close(self):
        self.A.lib.an_close(self.A.cx)


# ---- comparing

def furthest(got, want, room):
    """The largest |got - want| / room of two tensors in float64; NaN and infinities must be where they are wanted."""
    want = want.detach().double().flatten()
    stored = want.to(got.dtype).double()
    want = torch.where(stored.isinf(), stored, want)
    got, worst = got.double().flatten(), 0.0
    for g, w, r in zip(got.tolist(), want.tolist(), room.double().flatten().tolist()):
        if r == math.inf:  # PyTorch in this dtype has NaN or an infinity
            continue
        if math.isnan(g) or math.isnan(w) or math.isinf(w) or math.isinf(g):
            if not (g == w or (math.isnan(g) and math.isnan(w))):
                return math.inf
        elif g != w:
            worst = max(worst, abs(g - w) / r if r > 0 else math.inf)
    return worst


def compare_course(library, s, first, grads):
    """The worst distance of a whole course, in units of what is allowed; and where."""
    run, judge, own = Run(library, s, first), Judge(s, first), None
    dtype = NAMES[s["dtype"]]
    own = Judge(s, first, dtype) if s["dtype"] != "f64" else None
    size = {n: p.detach().double().abs() for n, p in judge.p.items()}
    worst, where = 0.0, ""
    for i in range(s["updates"]):
        for j in [judge] + ([own] if own else []):
            j.count(j.applied + 1 if s["scaled"] else s["first"] + i if s["first"] else i + 1)
        before = {n: p.detach().double().clone() for n, p in judge.p.items()}
        for j in [judge] + ([own] if own else []):
            j.update(s["lr"][i], grads[i])
        run.update(i, grads[i])
        for n, p in judge.p.items():
            step = (p.detach().double() - before[n]).abs()
            size[n] = size[n] + step + p.detach().double().abs()
            near = torch.ones_like(size[n])
            if own:  # a small difference of large numbers is PyTorch's too
                near = (own.p[n].detach().double() - p.detach().double()).abs().nan_to_num(math.inf, math.inf, math.inf)
            for name, want in ((n, p), ("ema." + n, judge.average[n])):
                if name != n and s["ema"] is None:
                    continue
                got = run.read(name, n)
                room = 64 * EPS["f32" if s["scaled"] else s["dtype"]] * size[n].nan_to_num(1e300, 1e300, 1e300) + (4 * near if own else 0)
                d = furthest(got, want, room)
                if d > worst:
                    worst, where = d, "%s after update %d: %s, wanted %s" % (name, i + 1, got.flatten().tolist(),
                                                                             want.detach().flatten().tolist())
    run.close()
    return worst, where


def compare_each(library, s, first, grads):
    """Each update from the state that anneal is in."""
    run, dtype = Run(library, s, first), NAMES[s["dtype"]]
    moments = torch.bfloat16 if s.get("moments") else dtype
    worst, where, applied, scale = 0.0, "", 0, 65536.0
    average = {n: x.clone() for n, x in first.items()}
    zero = {n: torch.zeros_like(x, dtype=torch.float64) for n, x in first.items()}
    p0, m0, v0 = {n: x.double() for n, x in first.items()}, None, None
    for i in range(s["updates"]):
        judge, own = Judge(s, p0), Judge(s, p0, torch.float32)
        for j in (judge, own):
            j.count(applied + 1 if s["scaled"] else s["first"] + i if s["first"] else i + 1)
            if m0 is not None or s["kind"] != "sgd":
                j.set_state(*({n: x.to(j.dtype) for n, x in (state or zero).items()} for state in (m0, v0)))
        before = {n: p.detach().double().clone() for n, p in judge.p.items()}
        rounded = [{n: g.to(dtype) for n, g in batch.items()} for batch in grads[i]]
        if s["scaled"]:  # a scaled gradient has the dtype's range, and so has the scale
            rounded = [{n: g * torch.tensor(scale).to(dtype) for n, g in batch.items()} for batch in rounded]
        if len(rounded) > 1:  # micro-batches are added in the dtype
            total = rounded[0]
            for b in rounded[1:]:
                total = {n: (total[n] + b[n]) for n in total}
            rounded = [total]
        if s["scaled"]:
            rounded = [{n: g.double() / scale for n, g in batch.items()} for batch in rounded]
        good = judge.update(s["lr"][i], rounded)
        own.update(s["lr"][i], rounded)
        applied += good
        scale = scale if good else scale / 2
        run.update(i, grads[i])
        for n, p in judge.p.items():
            want = p.detach().double()
            step = (want - before[n]).abs()
            low = 2.0**-24 if s["dtype"] == "f16" else 2.0**-126
            near = 4 * (own.p[n].detach().double() - want).abs().nan_to_num(math.inf, math.inf, math.inf)
            checks = [(n, run.read(n, n), want, 1.1 * EPS[s["dtype"]] * want.abs() + 2**-18 * (step + before[n].abs()) + low + near)]
            if s["ema"] is not None:
                p1 = run.read(n, n).double()
                e = s["ema"] * average[n].double() + (1 - s["ema"]) * p1
                checks.append(("ema." + n, run.read("ema." + n, n), e,
                               1.1 * EPS[s["dtype"]] * e.abs() + 2**-20 * (average[n].double().abs() + p1.abs()) + low))
                average[n] = run.read("ema." + n, n)
            if s["kind"] != "sgd" or s["momentum"]:
                state = judge.o.state[p] if judge.o else {"exp_avg": judge.m.get(n), "exp_avg_sq": judge.v.get(n)}
                eps = EPS["bf16"] * 2 if s.get("moments") else EPS[s["dtype"]] * 1.1
                for key, name in (("exp_avg", "optimizer.m."), ("exp_avg_sq", "optimizer.v."), ("momentum_buffer", "optimizer.m.")):
                    x = state.get(key)
                    if x is None:
                        continue
                    got = run.read(name + n, n, moments)
                    if got is not None:
                        old = (m0 if name == "optimizer.m." else v0) or zero
                        checks.append((name + n, got, x, eps * x.abs() + 2**-18 * (old[n].abs() + x.abs()) + low))
            for name, got, want, room in checks:
                d = furthest(got, want, room)
                if d > worst:
                    worst, where = d, "%s after update %d: %s, wanted %s" % (name, i + 1, got.flatten().tolist(),
                                                                             want.flatten().tolist())
        p0 = {n: run.read(n, n).double() for n in first}
        if s["kind"] != "sgd":
            m0 = {n: run.read("optimizer.m." + n, n, moments).double() for n in first}
            v0 = {n: run.read("optimizer.v." + n, n, moments).double() for n in first}
        elif s["momentum"] and (applied or not s["scaled"]):
            m0 = {n: run.read("optimizer.m." + n, n).double() for n in first}
    run.close()
    return worst, where


def draw(seed, i):
    r = random.Random(seed * 1000003 + i)
    dtype = pick(r, "f64", "f64", "f64", "f32", "f32", "bf16", "f16")
    s = draw_settings(r, KINDS[i % 4], dtype)
    return (s,) + draw_numbers(r, s)


SETTINGS = "kind updates micro clip decay ema first momentum nesterov dampening beta1 beta2 eps".split()


def write(path, seed, most):
    """Courses in float64 without loss scaling, and what PyTorch makes of them."""
    out, count = {}, 0
    for i in range(10 * most):
        s, first, grads = draw(seed, i)
        if s["dtype"] != "f64" or s["scaled"]:
            continue
        first = {n: first[n] for n in ("w", "b")}
        s["updates"] = min(s["updates"], 8)
        betas = s.get("betas", (0, 0))
        row = dict(s, kind=KINDS.index(s["kind"]), ema=-1 if s["ema"] is None else s["ema"], beta1=betas[0], beta2=betas[1])
        judge = Judge(s, first)
        for u in range(s["updates"]):
            judge.count(s["first"] + u if s["first"] else u + 1)
            judge.update(s["lr"][u], [{n: g[n] for n in first} for g in grads[u]])
        double = lambda x: torch.tensor(x, dtype=torch.float64)  # noqa: E731
        key = "%d." % count
        out[key + "settings"] = double([float(row.get(n, 0)) for n in SETTINGS])
        out[key + "lr"] = double(s["lr"][: s["updates"]])
        for n in ("w", "b"):
            out[key + n] = first[n].clone()
            out[key + n + ".grads"] = torch.stack([g[n] for u in grads[: s["updates"]] for g in u])
            out[key + n + ".last"] = judge.p[n].detach().clone()
            out[key + n + ".average"] = judge.average[n].clone()
        count += 1
        if count == most:
            break
    header, at = {"__metadata__": {"about": json.dumps({"draws": count, "seed": seed, "settings": SETTINGS})}}, 0
    for n, x in out.items():
        header[n] = {"dtype": "F64", "shape": list(x.shape), "data_offsets": [at, at + 8 * x.numel()]}
        at += 8 * x.numel()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for x in out.values():
            f.write(x.contiguous().numpy().tobytes())
    print("%d draws, %d bytes" % (count, os.path.getsize(path)))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("library")
    a.add_argument("--draws", type=int, default=400)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--only", type=int)
    a.add_argument("--write")
    o = a.parse_args()
    torch.set_num_threads(1)
    if o.write:
        return write(o.write, o.seed, o.draws)
    differ, refused, by = 0, 0, {}
    for i in [o.only] if o.only is not None else range(o.draws):
        s, first, grads = draw(o.seed, i)
        try:
            each = s["dtype"] in ("bf16", "f16") or s.get("moments")
            d, where = (compare_each if each else compare_course)(o.library, s, first, grads)
        except Refused as e:
            print("draw %d refused: %s\n  %s" % (i, e, s))
            refused += 1
            continue
        k = "%s %s" % (s["kind"], s["dtype"] + (", moments bf16" if s.get("moments") else ""))
        n, w = by.get(k, (0, 0.0))
        by[k] = (n + 1, max(w, d))
        if d > 1:
            differ += 1
            print("draw %d differs, %.3g of what is allowed: %s\n  %s" % (i, d, json.dumps(s), where[:1500]))
    for k in sorted(by):
        print("%-24s %4d courses, furthest %.2g of what is allowed" % (k, by[k][0], by[k][1]))
    print("%d differ, %d refused" % (differ, refused))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
