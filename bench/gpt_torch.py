#!/usr/bin/env python3
"""A training step of GPT in PyTorch, timed as anneal's own is: the peer of `make bench-cpu` and of bench/cuda.

    python3 bench/gpt_torch.py PRESET [--device cpu|cuda] [--dtype float32|bfloat16] [--tf32] [--batch-size N]
                               [--threads N] [--steps N] [--compile 0|1|MODE] [--wait]
    python3 bench/gpt_torch.py shape --shape BATCH,CONTEXT,LAYERS,HEADS,WIDTH,VOCABULARY,DROPOUT,BIAS ...

The model and the step are nanoGPT's: pre-norm blocks, with biases where BIAS is 1 and otherwise without, learned positions, exact GELU, a head tied to the
embedding; fused AdamW, gradients clipped to norm 1, bfloat16 under autocast. The tokens are random and the same in every
step. Prints one line of JSON: `ms` and `min_ms` with the loss read after each step, `cpu_ms` (processor time of all threads), `ms_tenth` with the loss read after
each tenth (CUDA only: a CPU step is over when it returns), `first_s` with compilation, `peak_rss_mib`, on a GPU `peak_gb`.
With --wait it says "ready" when it has compiled and warmed up, and times when it is sent a line.
"""
import argparse
import contextlib
import json
import os
import resource
import statistics
import sys
import time

for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # kernels for another processor halve PyTorch's speed
    os.environ.pop(name, None)

import torch
import torch.nn.functional as F
from torch import nn

# batch, context, layers, heads, width, vocabulary, dropout; steps that are timed on a CPU
PRESETS = {
    "macbook": (12, 64, 4, 4, 128, 65, 0.0, 60),
    "char": (64, 256, 6, 6, 384, 65, 0.2, 4),
    "gpt2s": (4, 64, 12, 12, 768, 50304, 0.0, 6),
    "gpt2": (12, 1024, 12, 12, 768, 50304, 0.0, 2),
}


class Block(nn.Module):
    def __init__(self, width, heads, dropout, bias):
        super().__init__()

        def linear(n_in, n_out):
            return nn.Linear(n_in, n_out, bias=bias)

        self.heads, self.p = heads, dropout
        self.ln_1, self.ln_2 = nn.LayerNorm(width, bias=bias), nn.LayerNorm(width, bias=bias)
        self.c_attn, self.c_proj = linear(width, 3 * width), linear(width, width)
        self.c_fc, self.mlp_proj = linear(width, 4 * width), linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        batch, context, width = x.shape
        split = self.c_attn(self.ln_1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, context, self.heads, -1).transpose(1, 2) for t in split)
        p = self.p if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        x = x + self.drop(self.c_proj(y.transpose(1, 2).reshape(batch, context, width)))
        return x + self.drop(self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)))))


class GPT(nn.Module):
    def __init__(self, context, layers, heads, width, vocab, dropout, bias):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.drop, self.ln_f = nn.Dropout(dropout), nn.LayerNorm(width, bias=bias)
        self.h = nn.ModuleList(Block(width, heads, dropout, bias) for _ in range(layers))
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.02)

    def forward(self, tokens, labels):
        x = self.drop(self.wte(tokens) + self.wpe.weight[: tokens.shape[1]])
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("preset", choices=[*PRESETS, "shape"])
    p.add_argument("--shape", help="of the preset `shape`: batch, context, layers, heads, width, vocabulary, dropout, bias")
    p.add_argument("--wait", action="store_true", help="say when all is compiled, and wait for a line before timing")
    p.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    p.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    p.add_argument("--tf32", action="store_true")
    p.add_argument("--batch-size", type=int, default=0, help="0: the preset's")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=0, help="timed steps; 0: the preset's on a CPU, 20 on a GPU")
    p.add_argument("--compile", default="1", help="0: eager, 1: torch.compile, else one of its modes")
    return p.parse_args()


def main():
    a = arguments()
    if a.preset == "shape":
        *sizes, dropout, bias = a.shape.split(",")
        (batch, context, layers, heads, width, vocab), dropout, bias, steps = map(int, sizes), float(dropout), bias == "1", 3
    else:
        (batch, context, layers, heads, width, vocab, dropout, steps), bias = PRESETS[a.preset], False
    batch, cuda = a.batch_size or batch, a.device == "cuda"
    steps = a.steps or (20 if cuda else steps)
    torch.set_num_threads(a.threads)
    torch.set_float32_matmul_precision("high" if a.tf32 else "highest")
    torch.manual_seed(1)
    model = GPT(context, layers, heads, width, vocab, dropout, bias).to(a.device)
    run = model
    if a.compile != "0":
        run = torch.compile(model) if a.compile == "1" else torch.compile(model, mode=a.compile)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens, labels = (torch.randint(0, vocab, (batch, context), device=a.device) for _ in range(2))
    half = torch.autocast(a.device, torch.bfloat16) if a.dtype == "bfloat16" else contextlib.nullcontext()

    def run_steps(n):
        """Milliseconds of n whole steps; the loss is read after the last."""
        begin = time.perf_counter()
        for _ in range(n):
            with half:
                loss = run(tokens, labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        loss.item()
        return 1e3 * (time.perf_counter() - begin)

    first = run_steps(1)
    for _ in range(10 if a.preset == "macbook" else 5 if cuda else 2):
        run_steps(1)
    if a.wait:
        print("ready", flush=True)
        sys.stdin.readline()
        run_steps(2)
    each, cpu = [], []
    for _ in range(steps):
        begin = time.process_time()
        each.append(run_steps(1))
        cpu.append(1e3 * (time.process_time() - begin))
    ms = statistics.median(each)
    # Matrix products' and attention's flops of forward and backward, as anneal's own bench counts them.
    flops = (6 * (vocab * width + layers * 12 * width**2) + 12 * layers * width * context) * batch * context
    line = {
        "peer": "torch-" + torch.__version__, "preset": a.preset, "device": a.device, "dtype": a.dtype, "tf32": a.tf32,
        "batch_size": batch, "compile": a.compile, "threads": a.threads, "ms": round(ms, 3), "min_ms": round(min(each), 3), "cpu_ms": round(statistics.median(cpu), 3),
        "first_s": round(first / 1e3, 2), "gflops": round(flops / ms / 1e6, 1),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    if cuda:
        line["ms_tenth"] = round(statistics.median(run_steps(10) / 10 for _ in range(10)), 3)
        line["peak_gb"] = round(torch.cuda.max_memory_allocated() * 1e-9, 2)
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
