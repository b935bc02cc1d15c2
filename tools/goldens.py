#!/usr/bin/env python3
"""goldens.py: writes tests/torch/*.safetensors with PyTorch. What is in them, and when they were made: tests/torch/README.md.

Every value is computed in float64 on one thread from inputs that float32 holds exactly, by plain formulas (no fused kernels), so
a file is an oracle and not one library's rounding. Files are rewritten only when a formula or a shape changes.
"""
import argparse
import collections
import io
import json
import math
import pathlib
import zipfile

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

F64 = torch.float64


def f32_normal(g, *shape, mean=0.0, std=1.0):
    """Random values that float32 holds exactly, as float64."""
    return (torch.randn(*shape, generator=g, dtype=F64) * std + mean).float().double()


# ---- GPT as nanoGPT defines it: pre-norm, learned positions, exact GELU, tied head


def gpt_parameters(g, L, C, T, V, bias):
    """Names and shapes of nanoGPT's state dict. The spread is wider than its initialisation, gains and biases are not 1 and 0, so
    that every gradient is large enough to be compared."""
    p = {"transformer.wte.weight": f32_normal(g, V, C, std=0.1), "transformer.wpe.weight": f32_normal(g, T, C, std=0.1)}

    def norm(name):
        p[name + ".weight"] = f32_normal(g, C, mean=1.0, std=0.1)
        if bias:
            p[name + ".bias"] = f32_normal(g, C, std=0.1)

    def linear(name, rows, cols):
        p[name + ".weight"] = f32_normal(g, rows, cols, std=1.0 / math.sqrt(cols))
        if bias:
            p[name + ".bias"] = f32_normal(g, rows, std=0.1)

    for i in range(L):
        h = f"transformer.h.{i}."
        norm(h + "ln_1")
        linear(h + "attn.c_attn", 3 * C, C)
        linear(h + "attn.c_proj", C, C)
        norm(h + "ln_2")
        linear(h + "mlp.c_fc", 4 * C, C)
        linear(h + "mlp.c_proj", C, 4 * C)
    norm("transformer.ln_f")
    return p


def layer_norm(x, gain, bias):
    centred = x - x.mean(-1, keepdim=True)
    y = centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-5) * gain
    return y if bias is None else y + bias


def gpt_logits(p, x, L, H):
    B, T = x.shape
    C = p["transformer.wte.weight"].shape[1]

    def norm(name, v):
        return layer_norm(v, p[name + ".weight"], p.get(name + ".bias"))

    def linear(name, v):
        y = v @ p[name + ".weight"].T
        return y if name + ".bias" not in p else y + p[name + ".bias"]

    causal = torch.ones(T, T).tril().bool()
    v = p["transformer.wte.weight"][x.long()] + p["transformer.wpe.weight"][:T]
    for i in range(L):
        h = f"transformer.h.{i}."
        qkv = linear(h + "attn.c_attn", norm(h + "ln_1", v))
        q, k, u = (t.reshape(B, T, H, C // H).transpose(1, 2) for t in qkv.chunk(3, dim=-1))  # [B,H,T,C/H]
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(C // H)
        weights = torch.softmax(scores.masked_fill(~causal, float("-inf")), -1)
        v = v + linear(h + "attn.c_proj", (weights @ u).transpose(1, 2).reshape(B, T, C))
        a = linear(h + "mlp.c_fc", norm(h + "ln_2", v))
        v = v + linear(h + "mlp.c_proj", 0.5 * a * (1.0 + torch.erf(a / math.sqrt(2.0))))
    return norm("transformer.ln_f", v) @ p["transformer.wte.weight"].T


def gpt_loss(p, x, y, L, H):
    """Mean over the targets that are not -1."""
    logits = gpt_logits(p, x, L, H).reshape(-1, p["transformer.wte.weight"].shape[0])
    return F.cross_entropy(logits, y.long().reshape(-1), ignore_index=-1)


def gradients(p, loss):
    return dict(zip(p, torch.autograd.grad(loss, list(p.values()))))


ADAMW = dict(lr=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1)


def adamw_steps(p, xs, ys, L, H, dtype, clip):
    """Losses before each update, gradient norms before clipping, and the parameters at the end."""
    a = ADAMW
    p = {n: t.to(dtype, copy=True).requires_grad_() for n, t in p.items()}
    m, v = ({n: torch.zeros_like(t) for n, t in p.items()} for _ in range(2))
    losses, norms = [], []
    for t, (x, y) in enumerate(zip(xs, ys), 1):
        loss = gpt_loss(p, x, y, L, H)
        g = gradients(p, loss)
        norm = torch.sqrt(sum((u * u).sum() for u in g.values()))
        losses.append(loss.item())
        norms.append(norm.item())
        scale = min(1.0, clip / (norm.item() + 1e-6))
        with torch.no_grad():
            for n, w in p.items():
                u = g[n] * scale
                if w.dim() >= 2:
                    w.mul_(1.0 - a["lr"] * a["weight_decay"])
                m[n] = a["beta1"] * m[n] + (1.0 - a["beta1"]) * u
                v[n] = a["beta2"] * v[n] + (1.0 - a["beta2"]) * u * u
                denominator = v[n].sqrt() / math.sqrt(1.0 - a["beta2"] ** t) + a["eps"]
                w.sub_(a["lr"] / (1.0 - a["beta1"] ** t) * m[n] / denominator)
    return losses, norms, {n: w.detach() for n, w in p.items()}


def check_against_library(p, xs, ys, L, H, losses, clip):
    """The formulas above against torch.optim and clip_grad_norm_, which are written independently of them."""
    a = ADAMW
    p = {n: t.clone().requires_grad_() for n, t in p.items()}
    groups = [dict(params=[w for w in p.values() if (w.dim() >= 2) == decayed], weight_decay=a["weight_decay"] * decayed)
              for decayed in (True, False)]
    opt = torch.optim.AdamW(groups, lr=a["lr"], betas=(a["beta1"], a["beta2"]), eps=a["eps"])
    for x, y, expected in zip(xs, ys, losses):
        opt.zero_grad()
        loss = gpt_loss(p, x, y, L, H)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), clip)
        opt.step()
        assert abs(loss.item() - expected) < 1e-9, (loss.item(), expected)


def gpt_golden(path, seed, L, H, C, T, B, V, bias, clip, steps=10):
    g = torch.Generator().manual_seed(seed)
    p = gpt_parameters(g, L, C, T, V, bias)
    xs = torch.randint(0, V, (steps, B, T), generator=g, dtype=torch.int32)
    ys = torch.randint(0, V, (steps, B, T), generator=g, dtype=torch.int32)
    masked = ys[0].clone()
    masked[torch.rand(B, T, generator=g) < 0.3] = -1

    q = {n: t.clone().requires_grad_() for n, t in p.items()}
    loss = gpt_loss(q, xs[0], ys[0], L, H)
    out = {n: t.float() for n, t in p.items()}
    out |= {"x": xs, "y": ys, "y_masked": masked, "logits": gpt_logits(q, xs[0], L, H).detach()}
    out |= {"loss": loss.detach().reshape(1), "loss_masked": gpt_loss(q, xs[0], masked, L, H).detach().reshape(1)}
    out |= {"grad." + n: t.float() for n, t in gradients(q, loss).items()}

    losses, norms, after = adamw_steps(p, xs, ys, L, H, F64, clip)
    check_against_library(p, xs, ys, L, H, losses, clip)
    out |= {"steps.loss_f64": torch.tensor(losses, dtype=F64), "steps.grad_norm": torch.tensor(norms, dtype=F64)}
    out["steps.loss_f32"] = torch.tensor(adamw_steps(p, xs, ys, L, H, torch.float32, clip)[0], dtype=F64)
    for n in ("transformer.wpe.weight", "transformer.h.0.ln_1.weight", "transformer.h.0.attn.c_proj.weight"):
        out["after." + n] = after[n].float()

    config = dict(n_layer=L, n_head=H, n_embd=C, block_size=T, vocab_size=V, batch_size=B, bias=int(bias), clip=clip, **ADAMW)
    write(path, out, config)


# ---- files of weights as other programs write them: nanoGPT's ckpt.pt and Hugging Face's GPT-2


class Block(torch.nn.Module):
    def __init__(self, C, bias):
        super().__init__()
        self.ln_1 = torch.nn.LayerNorm(C, bias=bias)
        self.attn = torch.nn.ModuleDict({"c_attn": torch.nn.Linear(C, 3 * C, bias), "c_proj": torch.nn.Linear(C, C, bias)})
        self.ln_2 = torch.nn.LayerNorm(C, bias=bias)
        self.mlp = torch.nn.ModuleDict({"c_fc": torch.nn.Linear(C, 4 * C, bias), "c_proj": torch.nn.Linear(4 * C, C, bias)})

    def forward(self, x, H):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, H, C // H).transpose(1, 2) for t in self.attn["c_attn"](self.ln_1(x)).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x))))


class Gpt(torch.nn.Module):
    """A module whose state dict has nanoGPT's names, order and tied head."""

    def __init__(self, L, H, C, T, V, bias):
        super().__init__()
        self.H = H
        self.transformer = torch.nn.ModuleDict({
            "wte": torch.nn.Embedding(V, C), "wpe": torch.nn.Embedding(T, C),
            "h": torch.nn.ModuleList(Block(C, bias) for _ in range(L)), "ln_f": torch.nn.LayerNorm(C, bias=bias)})
        self.lm_head = torch.nn.Linear(C, V, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight

    def forward(self, x):
        t = self.transformer
        v = t["wte"](x) + t["wpe"](torch.arange(x.shape[1]))
        for block in t["h"]:
            v = block(v, self.H)
        return self.lm_head(t["ln_f"](v))


def weight_files(folder, seed):
    """nanogpt.pt: a model without biases after three updates, saved as nanoGPT's train.py saves it, with torch.compile's prefix.
    hf/model.safetensors and config.json: a model with biases in Hugging Face's names and layout, masks included.
    weights.safetensors: tokens, and what PyTorch's modules make of them in float64 with either file's weights."""
    L, H, C, T, V, B = 2, 2, 16, 12, 33, 3
    torch.manual_seed(seed)
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(0, V, (B, T), generator=g)
    y = torch.randint(0, V, (B, T), generator=g)
    out = {"x": x.int()}

    model = Gpt(L, H, C, T, V, bias=False)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW([dict(params=decayed, weight_decay=0.1), dict(params=others, weight_decay=0.0)], lr=3e-2, betas=(0.9, 0.95))
    for _ in range(3):
        opt.zero_grad()
        loss = F.cross_entropy(model(x).view(-1, V), y.view(-1))
        loss.backward()
        opt.step()
    out["nanogpt.logits"] = model.double()(x).detach()
    model.float()
    args = dict(n_layer=L, n_head=H, n_embd=C, block_size=T, bias=False, vocab_size=V, dropout=0.2)
    config = dict(out_dir="out", eval_interval=2000, log_interval=1, eval_iters=200, eval_only=False, always_save_checkpoint=True,
                  init_from="scratch", wandb_log=False, dataset="shakespeare_char", gradient_accumulation_steps=5, batch_size=B,
                  learning_rate=3e-2, max_iters=600000, weight_decay=0.1, beta1=0.9, beta2=0.95, grad_clip=1.0, decay_lr=True,
                  warmup_iters=2000, lr_decay_iters=600000, min_lr=6e-5, backend="nccl", device="cpu", dtype="float32", compile=True)
    state = {"_orig_mod." + n: t for n, t in model.state_dict().items()}
    assert len(state) == 2 + 6 * L + 1 + 1
    torch.save(dict(model=state, optimizer=opt.state_dict(), model_args=args, iter_num=3, best_val_loss=loss.detach(), config=config),
               folder / "nanogpt.pt")

    model = Gpt(L, H, C, T, V, bias=True)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(f32_normal(g, *p.shape, mean=float(p.dim() < 2), std=0.2))
    out["hf.logits"] = model.double()(x).detach()
    conv1d = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    hf = {n.removeprefix("transformer."): (t.T if n.endswith(conv1d) else t).float().contiguous()
          for n, t in model.state_dict().items() if n != "lm_head.weight"}
    for i in range(L):
        hf[f"h.{i}.attn.bias"] = torch.ones(T, T).tril().reshape(1, 1, T, T)
    (folder / "hf").mkdir(exist_ok=True)
    save_file(hf, folder / "hf/model.safetensors", metadata={"format": "pt"})
    hf_config = dict(model_type="gpt2", n_layer=L, n_head=H, n_embd=C, n_positions=T, vocab_size=V, layer_norm_epsilon=1e-5)
    (folder / "hf/config.json").write_text(json.dumps(hf_config) + "\n")
    write(folder / "weights.safetensors", out, args)


# ---- single operations: inputs, result and the gradient of sum(result * upstream) for each input


def op_goldens(path, seed):
    g = torch.Generator().manual_seed(seed)
    out, about = {}, {}

    def golden(name, f, text, **inputs):
        leaf = {n: (t.clone().requires_grad_() if t.is_floating_point() else t) for n, t in inputs.items()}
        y = f(**leaf)
        up = f32_normal(g, *y.shape)
        moving = {n: t for n, t in leaf.items() if t.is_floating_point()}
        grads = torch.autograd.grad((y * up).sum(), list(moving.values()))
        about[name] = text
        out[f"{name}.result"], out[f"{name}.upstream"] = y.detach(), up.float()
        for n, t in inputs.items():
            out[f"{name}.{n}"] = t.float() if t.is_floating_point() else t.int()
        for n, t in zip(moving, grads):
            out[f"{name}.grad.{n}"] = t

    image, row = f32_normal(g, 2, 3, 9, 8), f32_normal(g, 4, 7, std=3.0)
    golden("conv2d", lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1), "NCHW, OIHW, kernel 3, stride 2, padding 1",
           x=image, w=f32_normal(g, 4, 3, 3, 3), b=f32_normal(g, 4))
    golden("conv2d_dilated", lambda x, w: F.conv2d(x, w, padding=2, dilation=2, groups=3), "kernel 3, padding 2, dilation 2, groups 3",
           x=image, w=f32_normal(g, 6, 1, 3, 3))
    golden("conv1d", lambda x, w: F.conv1d(x, w, stride=3, padding=2), "NCL, kernel 5, stride 3, padding 2",
           x=f32_normal(g, 2, 3, 17), w=f32_normal(g, 5, 3, 5))
    golden("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), "kernel 3, stride 2, padding 1", x=image)
    golden("avg_pool2d", lambda x: F.avg_pool2d(x, 2), "kernel 2, stride 2, the odd last row dropped", x=image)
    golden("batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, 1e-5), "training: biased variance, eps 1e-5",
           x=image, w=f32_normal(g, 3, mean=1.0), b=f32_normal(g, 3))
    golden("layer_norm", lambda x, w, b: layer_norm(x, w, b), "last axis, eps 1e-5", x=row, w=f32_normal(g, 7), b=f32_normal(g, 7))
    golden("rms_norm", lambda x, w: x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w, "last axis, eps 1e-5",
           x=row, w=f32_normal(g, 7))
    golden("softmax", lambda x: torch.softmax(x, -1), "last axis", x=row)
    golden("log_softmax", lambda x: torch.log_softmax(x, 0), "first axis", x=row)
    golden("gelu", lambda x: F.gelu(x), "erf form", x=row)
    golden("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), "tanh form", x=row)
    golden("silu", lambda x: F.silu(x), "x * sigmoid(x)", x=row)
    target = torch.tensor([6, 0, -1, 3])
    golden("cross_entropy", lambda x, target: F.cross_entropy(x, target, ignore_index=-1, reduction="none"),
           "a row each; the row with target -1 is 0", x=row, target=target)
    golden("embedding", lambda w, index: F.embedding(index, w), "rows by index, one index twice",
           w=f32_normal(g, 6, 5), index=torch.tensor([[3, 0, 3], [5, 1, 2]]))
    write(path, out, about)


# ---- optimizers: gradients are given, so that a file shows the optimizer alone


def adam_atan2_step(p, g, m, v, t, lr, betas, decay):
    p.mul_(1 - lr * decay)
    m.lerp_(g, 1 - betas[0])
    v.lerp_(g * g, 1 - betas[1])
    p.sub_(lr / (1 - betas[0] ** t) * torch.atan2(m, v.sqrt() / math.sqrt(1 - betas[1] ** t)))


def stablemax_golden(g, N=9, V=13):
    """-log of s(x_label) / sum s(x), s(x) = x + 1 from 0 on, 1 / (1 - x) below; label -100 does not count."""
    x = f32_normal(g, N, V, std=3.0)
    x[0, :3] = torch.tensor([0.0, -0.0, 1e-30], dtype=F64).float().double()
    labels = torch.randint(0, V, (N,), generator=g)
    labels[4] = -100
    up = f32_normal(g, N)
    q = x.clone().requires_grad_()
    s = torch.where(q < 0, 1 / (1 - q.clamp(max=0)), q + 1)
    p = s / s.sum(-1, keepdim=True)
    loss = torch.where(labels < 0, 0.0, -torch.log(p.gather(-1, labels.clamp(min=0)[:, None])[:, 0]))
    (loss * up).sum().backward()
    return {"stablemax.logits": x.float(), "stablemax.labels": labels.int(), "stablemax.upstream": up.float(),
            "stablemax.loss": loss.detach(), "stablemax.grad": q.grad}


def row_golden(g, V=12, n=7, c=6, updates=3, lr=0.01, decay=0.5):
    """Sign descent on the rows that ids name: gradients of equal ids are added first."""
    w = f32_normal(g, V, c)
    ids = torch.randint(0, V, (updates, n), generator=g)
    ids[0, 3:6] = ids[0, 1]  # four of one id
    ids[1, :] = 5            # all of one id
    grads = f32_normal(g, updates, n, c)
    out = {"rows.first": w.float(), "rows.ids": ids.int(), "rows.grads": grads.float()}
    w = w.clone()
    for t in range(updates):
        seen, back = ids[t].unique(return_inverse=True)
        sums = torch.zeros(len(seen), c, dtype=F64).index_add_(0, back, grads[t])
        w[seen] = w[seen] * (1 - lr * decay) - lr * torch.sign(sums)
    return out | {"rows.last": w}


def optimizer_golden(path, seed, updates=6, lr=0.03, betas=(0.8, 0.9), decay=0.1, ema=0.7):
    """A matrix that decays and a vector that does not, by torch.optim's own classes in float64; Adam-atan2 by its formula."""
    g = torch.Generator().manual_seed(seed)
    first = {"w": f32_normal(g, 3, 5), "b": f32_normal(g, 4)}
    grads = {n: f32_normal(g, updates, *p.shape) for n, p in first.items()}
    sgd = dict(lr=lr, weight_decay=decay)
    rows = {
        "sgd": lambda q: torch.optim.SGD(q, **sgd),
        "momentum": lambda q: torch.optim.SGD(q, momentum=0.9, **sgd),
        "dampened": lambda q: torch.optim.SGD(q, momentum=0.9, dampening=0.25, **sgd),
        "nesterov": lambda q: torch.optim.SGD(q, momentum=0.9, nesterov=True, **sgd),
        "adam": lambda q: torch.optim.Adam(q, lr=lr, betas=betas, eps=1e-8, weight_decay=decay),
        "adamw": lambda q: torch.optim.AdamW(q, lr=lr, betas=betas, eps=1e-8, weight_decay=decay),
        "adam_atan2": None,
    }
    tensors = {f"first.{n}": p.float() for n, p in first.items()} | {f"grad.{n}": x.float() for n, x in grads.items()}
    for name, make in rows.items():
        p = {n: x.clone().requires_grad_() for n, x in first.items()}
        groups = [{"params": [p["w"]]}, {"params": [p["b"]], "weight_decay": 0.0}]
        optimizer = make(groups) if make else None
        moments = {n: (torch.zeros_like(x), torch.zeros_like(x)) for n, x in p.items()}
        shadow = {n: x.detach().clone() for n, x in p.items()}
        with torch.no_grad():
            for t in range(updates):
                for n, x in p.items():
                    x.grad = grads[n][t].clone()
                    if not make:
                        adam_atan2_step(x, x.grad, *moments[n], t + 1, lr, betas, decay if n == "w" else 0.0)
                if make:
                    optimizer.step()
                for n, x in p.items():
                    shadow[n] = (1 - ema) * x + ema * shadow[n]
        for n, x in p.items():
            tensors[f"{name}.{n}"] = x.detach()
            tensors[f"{name}.ema.{n}"] = shadow[n]
    tensors |= stablemax_golden(g) | row_golden(g)
    write(path, tensors, {"updates": updates, "lr": lr, "beta1": betas[0], "beta2": betas[1], "decay": decay, "ema": ema})


# ---- TinyRecursiveModels: one small stack of layers applied again and again, slots that halt, three optimizers

def trm_inner(n):
    return (round(4 * n * 2 / 3) + 255) // 256 * 256


def trm_parameters(g, c):
    """Parameters under the original's names, the two initial states, and a puzzle table that is not zero."""
    D, L, V = c["D"], c["P"] + c["S"], c["V"]
    p = {"embed_tokens.embedding_weight": f32_normal(g, V, D, std=D ** -0.5), "lm_head.weight": f32_normal(g, V, D, std=D ** -0.5),
         "q_head.weight": f32_normal(g, 2, D, std=0.5), "q_head.bias": f32_normal(g, 2, std=0.1)}
    for i in range(c["layers"]):
        def glu(what, n, at=f"L_level.layers.{i}."):
            p[at + what + ".gate_up_proj.weight"] = f32_normal(g, 2 * trm_inner(n), n, std=n ** -0.5)
            p[at + what + ".down_proj.weight"] = f32_normal(g, n, trm_inner(n), std=trm_inner(n) ** -0.5)
        if c["mlp_t"]:
            glu("mlp_t", L)
        else:
            Hd = D // c["heads"] * c["heads"]
            p[f"L_level.layers.{i}.self_attn.qkv_proj.weight"] = f32_normal(g, 3 * Hd, D, std=D ** -0.5)
            p[f"L_level.layers.{i}.self_attn.o_proj.weight"] = f32_normal(g, D, Hd, std=Hd ** -0.5)
        glu("mlp", D)
    states = {"H_init": f32_normal(g, D), "L_init": f32_normal(g, D), "puzzle_emb.weights": f32_normal(g, c["ids"], D, std=0.2)}
    return p, states


def trm_rms(x, eps=1e-5):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)


def trm_rotate(x):
    """x [B,T,H,d]: halves (a, b) become a cos - b sin, b cos + a sin."""
    T, d = x.shape[1], x.shape[3]
    angle = torch.outer(torch.arange(T, dtype=x.dtype), 10000.0 ** (-2 * torch.arange(d // 2, dtype=x.dtype) / d))[None, :, None, :]
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def trm_apply(p, c, h, inject):
    h = h + inject

    def glu(name, x):
        gate, up = (x @ p[name + ".gate_up_proj.weight"].T).chunk(2, -1)
        return (gate / (1 + torch.exp(-gate)) * up) @ p[name + ".down_proj.weight"].T
    for i in range(c["layers"]):
        at = f"L_level.layers.{i}."
        if c["mlp_t"]:
            t = h.transpose(1, 2)
            h = trm_rms(t + glu(at + "mlp_t", t)).transpose(1, 2)
        else:
            B, T, _ = h.shape
            d = c["D"] // c["heads"]
            q, k, v = (t.reshape(B, T, c["heads"], d) for t in (h @ p[at + "self_attn.qkv_proj.weight"].T).chunk(3, -1))
            q, k, v = (t.transpose(1, 2) for t in (trm_rotate(q), trm_rotate(k), v))
            y = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(d), -1) @ v
            h = trm_rms(h + y.transpose(1, 2).reshape(B, T, -1) @ p[at + "self_attn.o_proj.weight"].T)
        h = trm_rms(h + glu(at + "mlp", h))
    return h


def trm_call(p, c, z_H, z_L, inputs, rows):
    """One supervision step: states after it, logits and q. Only the last cycle is differentiated."""
    B, D = len(inputs), c["D"]
    prefix = F.pad(rows, (0, c["P"] * D - rows.shape[1])).reshape(B, c["P"], D)
    x = math.sqrt(D) * torch.cat([prefix, p["embed_tokens.embedding_weight"][inputs.long()]], 1)
    for _ in range(c["H"]):
        z_H, z_L = z_H.detach(), z_L.detach()
        for _ in range(c["L"]):
            z_L = trm_apply(p, c, z_L, z_H + x)
        z_H = trm_apply(p, c, z_H, z_L)
    return z_H, z_L, z_H[:, c["P"]:] @ p["lm_head.weight"].T, z_H[:, 0] @ p["q_head.weight"].T + p["q_head.bias"]


def trm_losses(logits, q, labels):
    """By slot: stablemax cross entropy over its labels, Q loss, share of right cells, all right; a label below 0 is none."""
    score = torch.where(logits >= 0, logits + 1, 1 / (1 - logits.clamp(max=0)))
    valid = labels >= 0
    at = score.gather(-1, labels.clamp(min=0).long()[..., None])[..., 0]
    each = torch.where(valid, torch.log(score.sum(-1)) - torch.log(at), torch.zeros_like(at))
    n = valid.sum(-1).clamp(min=1)
    right = ((logits.argmax(-1) == labels) & valid).sum(-1)
    exact = (right == valid.sum(-1)).to(logits.dtype)
    return each.sum(-1) / n, F.binary_cross_entropy_with_logits(q[:, 0], exact, reduction="none"), right.to(logits.dtype) / n, exact


def trm_run(p, states, c, batches, dtype):
    """Updates with carry, halting (without exploration), Adam-atan2, averages, and sign descent of the puzzle table. Before the
    first update: logits, q and gradients."""
    o = c["optimizer"]
    p = {n: t.to(dtype, copy=True).requires_grad_() for n, t in p.items()}
    table, H, L = (states[n].to(dtype, copy=True) for n in ("puzzle_emb.weights", "H_init", "L_init"))
    B, length = c["B"], c["P"] + c["S"]
    z_H = z_L = torch.zeros(B, length, c["D"], dtype=dtype)
    inputs = labels = torch.zeros(B, c["S"], dtype=torch.int32)
    ids = steps = torch.zeros(B, dtype=torch.int32)
    halted = torch.ones(B, dtype=torch.bool)
    m, v, ema = ({n: torch.zeros_like(t) for n, t in p.items()} for _ in range(3))
    ema = {n: t.detach().clone() for n, t in p.items()}
    sums, first = [], {}
    for t, (x, y, i) in enumerate(batches, 1):
        slot = halted[:, None, None]
        z_H, z_L = torch.where(slot, H, z_H), torch.where(slot, L, z_L)
        inputs, labels = torch.where(halted[:, None], x, inputs), torch.where(halted[:, None], y, labels)
        ids, steps = torch.where(halted, i, ids), torch.where(halted, torch.zeros_like(steps), steps) + 1
        rows = table[ids.long()].clone().requires_grad_()
        z_H, z_L, logits, q = trm_call(p, c, z_H, z_L, inputs, rows)
        z_H, z_L = z_H.detach(), z_L.detach()
        lm, q_loss, accuracy, exact = trm_losses(logits, q, labels)
        loss = (lm.sum() + 0.5 * q_loss.sum()) / B
        g = dict(zip([*p, "rows"], torch.autograd.grad(loss, [*p.values(), rows])))
        if t == 1:
            first = {"logits": logits.detach(), "q": q.detach(), "loss": loss.detach().reshape(1)}
            first |= {"grad." + n: u for n, u in g.items()}
        assert (q[:, 0].abs() > 1e-3).all(), "a slot's halting hangs on a rounding"
        halted = (steps >= c["halt"]) | (q[:, 0] > 0)
        agrees = ((q[:, 0] >= 0).to(dtype) == exact).to(dtype)
        h = halted.to(dtype)
        sums.append([(u.sum() if k in (0, 4, 5, 7) else (u * h).sum()).item() for k, u in
                     enumerate((loss * B, accuracy, exact, agrees, q_loss, lm, steps.to(dtype), h))])
        with torch.no_grad():
            for row in ids.unique().long():
                total = g["rows"][ids == row].sum(0)
                table[row] = table[row] * (1 - o["puzzle_lr"] * o["puzzle_decay"]) - o["puzzle_lr"] * total.sign()
            for n, w in p.items():
                w.mul_(1 - o["lr"] * o["weight_decay"])
                m[n] = o["beta1"] * m[n] + (1 - o["beta1"]) * g[n]
                v[n] = o["beta2"] * v[n] + (1 - o["beta2"]) * g[n] * g[n]
                w.sub_(o["lr"] / (1 - o["beta1"] ** t) * torch.atan2(m[n], v[n].sqrt() / math.sqrt(1 - o["beta2"] ** t)))
                ema[n] = o["ema"] * ema[n] + (1 - o["ema"]) * w
    return first, torch.tensor(sums, dtype=F64), {n: t.detach() for n, t in p.items()}, ema, table, steps


def trm_golden(path, seed, mlp_t):
    g = torch.Generator().manual_seed(seed)
    c = dict(D=12, heads=2, layers=2, P=2, S=6, V=7, ids=5, B=4, H=3, L=6, halt=3, mlp_t=mlp_t,
             optimizer=dict(lr=1e-3, beta1=0.9, beta2=0.95, weight_decay=0.5, puzzle_lr=1e-2, puzzle_decay=0.5, ema=0.9))
    steps = 5
    p, states = trm_parameters(g, c)
    xs = torch.randint(0, c["V"], (steps, c["B"], c["S"]), generator=g, dtype=torch.int32)
    ys = torch.randint(0, c["V"], (steps, c["B"], c["S"]), generator=g, dtype=torch.int32)
    ys[torch.rand(ys.shape, generator=g) < 0.2] = -100
    ids = torch.randint(0, c["ids"], (steps, c["B"]), generator=g, dtype=torch.int32)
    ids[:, 1] = ids[:, 0]
    batches = list(zip(xs, ys, ids))
    out = {n: t.float() for n, t in (p | states).items()} | {"x": xs, "y": ys, "ids": ids}
    first, sums, after, ema, table, count = trm_run(p, states, c, batches, F64)
    out |= first | {"updates.sums": sums, "updates.table": table, "updates.steps": count}
    short = c | dict(H=2, L=2)  # few applications: float32 follows float64
    out["short.sums"] = trm_run(p, states, short, batches, F64)[1]
    for n in ("embed_tokens.embedding_weight", "q_head.bias", f"L_level.layers.1.{'mlp_t.down_proj' if mlp_t else 'self_attn.o_proj'}.weight"):
        out["after." + n], out["ema." + n] = after[n], ema[n]
    about = {k: (int(u) if isinstance(u, bool) else u) for k, u in c.items() if k != "optimizer"} | c["optimizer"]
    write(path, out, about)


def state_dict_pickle(path):
    """The pickle inside of what torch.save writes for a dict of all dtypes, ranks and sizes of numbers, with tied tensors and one without
    elements; unit/test_torch_write builds the same dict."""
    t = collections.OrderedDict()
    t["scalar"] = torch.zeros(())
    t["bf16"] = torch.zeros(3, dtype=torch.bfloat16)
    t["half"] = torch.zeros(2, 2, dtype=torch.float16)
    t["double"] = torch.zeros(1, 2, 3, dtype=torch.float64)
    t["long.rank4"] = torch.zeros(2, 1, 2, 3, dtype=torch.int64)
    t["int"] = torch.zeros(300, dtype=torch.int32)
    t["bytes"] = torch.zeros(70000, dtype=torch.uint8)
    t["empty"] = torch.zeros(0, 3)
    t["bool"] = torch.zeros(5, dtype=torch.bool)
    t["tied"] = torch.zeros(4, 2)
    t["again"] = t["tied"].detach()  # as a module's state_dict has tied weights
    for i in range(20):  # more than 256 places in the memo
        t[f"layer.{i}.weight"] = torch.zeros(i + 1, 2)
    archive = io.BytesIO()
    torch.save(t, archive)
    path.write_bytes(zipfile.ZipFile(archive).read("archive/data.pkl"))
    print(f"{path}: {path.stat().st_size} bytes")


def write(path, tensors, about):
    save_file({n: t.contiguous() for n, t in tensors.items()}, path, metadata={"about": json.dumps(about)})
    print(f"{path}: {path.stat().st_size} bytes, {len(tensors)} tensors")


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("folder", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / "tests/torch")
    folder = ap.parse_args().folder
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    gpt_golden(folder / "gpt_c32.safetensors", seed=1, L=2, H=2, C=32, T=16, B=3, V=65, bias=False, clip=1.7)
    gpt_golden(folder / "gpt_c48_bias.safetensors", seed=2, L=1, H=3, C=48, T=11, B=2, V=37, bias=True, clip=1.0)
    op_goldens(folder / "ops.safetensors", seed=3)
    weight_files(folder, seed=4)
    optimizer_golden(folder / "optimizers.safetensors", seed=5)
    trm_golden(folder / "trm_attention.safetensors", seed=5, mlp_t=False)
    trm_golden(folder / "trm_mixer.safetensors", seed=15, mlp_t=True)
    state_dict_pickle(folder / "state_dict.pkl")


if __name__ == "__main__":
    main()
