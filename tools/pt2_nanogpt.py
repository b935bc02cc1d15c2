#!/usr/bin/env python3
"""A GPT of nanoGPT's shape that PyTorch exported beside the built-in one: the same losses, and what it costs.

    PYTHONPATH=python python tools/pt2_nanogpt.py build/anneal TEXT [--preset demo] [--updates 100] [--layers 12]

Trains the built-in model on TEXT, and the same model as an archive from the same weights, with the same settings; every loss must be
within 1e-5. Then `anneal bench` of both in turn, in processor time of one thread, and the time that `anneal inspect` takes to read an
archive of --layers layers. Exits 1 if a loss is apart, or a step costs more than 3 % more, or the archive takes longer than 0.3 s.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
import torch
import torch.nn as nn
import torch.nn.functional as F

from anneal.export import export

PRESETS = {"demo": (4, 4, 128, 64), "macbook": (4, 4, 128, 64)}  # layers, heads, width, tokens


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, None, 1e-5)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.ln_1, self.ln_2 = heads, Norm(width), Norm(width)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width, bias=False), "c_proj": nn.Linear(width, width, bias=False)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width, bias=False), "c_proj": nn.Linear(4 * width, width, bias=False)})

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.attn["c_attn"](self.ln_1(x)).split(C, 2))
        x = x + self.attn["c_proj"](F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary, layers, heads, width, tokens):
        super().__init__()
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(vocabulary, width), "wpe": nn.Embedding(tokens, width),
                                          "h": nn.ModuleList(Block(width, heads) for _ in range(layers)), "ln_f": Norm(width)})
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, ids):
        t = self.transformer
        x = t["wte"](ids) + t["wpe"](torch.arange(ids.shape[1]))
        for block in t["h"]:
            x = block(x)
        return self.lm_head(t["ln_f"](x))


def run(*command):
    """Standard output, and processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def losses(folder):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as f:
        return {r["step"]: r["loss"] for r in map(json.loads, f) if "step" in r and "loss" in r}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("anneal")
    p.add_argument("text")
    p.add_argument("--preset", default="demo", choices=PRESETS)
    p.add_argument("--updates", type=int, default=100)
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--rounds", type=int, default=3)
    o = p.parse_args()
    layers, heads, width, tokens = PRESETS[o.preset]
    with tempfile.TemporaryDirectory() as d:
        at = lambda name: os.path.join(d, name)
        common = [f"data={o.text}", f"max_iters={o.updates}", f"lr_decay_iters={o.updates}", "log_interval=1", f"eval_interval={o.updates}",
                  "learning_rate=1e-3", "min_lr=1e-4", "warmup_iters=10", "dtype=float32", "batch_size=12", "seed=7", "beta1=0.9", "beta2=0.99", "weight_decay=0.1",
                  "grad_clip=1"]
        run(o.anneal, "train", o.preset, *common[:1], "max_iters=1", "learning_rate=1e-30", "min_lr=1e-30", "weight_decay=0", "seed=7",
            "dtype=float32", "out=" + at("start"))
        run(o.anneal, "export", at("start"), "out=" + at("start.safetensors"))
        from safetensors.torch import load_file
        weights = load_file(at("start.safetensors"))
        vocabulary = weights["transformer.wte.weight"].shape[0]
        model = GPT(vocabulary, layers, heads, width, tokens)
        model.load_state_dict({**weights, "lm_head.weight": weights["transformer.wte.weight"]})
        ids = torch.randint(0, vocabulary, (3, tokens))
        export(model, (ids,), at("model.pt2"))
        run(o.anneal, "train", o.preset, *common, "init_from=" + at("start.safetensors"), "out=" + at("built_in"))
        run(o.anneal, "train", at("model.pt2"), *common, "loss=cross_entropy", "out=" + at("imported"))
        a, b = losses(at("built_in")), losses(at("imported"))
        if set(a) != set(b) or len(a) < o.updates:
            sys.exit(f"{len(a)} and {len(b)} losses")
        apart = max(abs(a[k] - b[k]) for k in a)
        print(f"losses       {len(a)}, {apart:.1e} apart at most (1e-5 is allowed); the last {a[max(a)]:.6f}")
        cost = {"built-in": [], "imported": []}
        for _ in range(o.rounds):
            for name, what in (("built-in", [o.preset]), ("imported", [at("model.pt2"), "loss=cross_entropy"])):
                text, _ = run(o.anneal, "bench", *what, "batch_size=12", "dtype=float32", "threads=1", "--json")
                cost[name].append(json.loads(text.strip().splitlines()[-1])["cpu_ms"])
        built_in, imported = (min(cost[k]) for k in ("built-in", "imported"))
        print(f"a step       built-in {built_in:.2f} ms, imported {imported:.2f} ms of processor time: {100 * (imported / built_in - 1):+.1f} % (3 % is allowed)")
        large = GPT(512, o.layers, 12, 768, 128)
        export(large, (torch.randint(0, 512, (3, 128)),), at("large.pt2"))
        seconds = min(run(o.anneal, "inspect", at("large.pt2"))[1] for _ in range(o.rounds))
        print(f"an archive   of {o.layers} layers, {os.path.getsize(at('large.pt2')) >> 20} MiB: {seconds:.2f} s of processor time to read it (0.3 s is allowed)")
        sys.exit(apart > 1e-5 or imported > 1.03 * built_in or seconds > 0.3)


if __name__ == "__main__":
    main()
