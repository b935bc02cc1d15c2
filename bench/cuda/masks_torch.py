#!/usr/bin/env python3
"""PyTorch's attention with a mask or a window, forward and backward, at the shapes that `attn_hopper_check masks time` times: its peer.

    python3 bench/cuda/masks_torch.py [B,H,T,D,KIND...]      on a machine with an NVIDIA GPU

bfloat16, q, k and v side by side in rows of 3 H D. KIND: `pad`, a mask [B,1,1,T] of hidden keys; `full`, a mask [B,1,T,T]; wN, causal, each query
sees the last N keys. A line a shape and library: microseconds forward and backward, the least of six means of five.
"""
import sys

import torch
import torch._functorch.config
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from least_torch import least

SHAPES = ["32,12,512,64,pad", "32,12,512,64,full", "8,12,2048,64,full", "8,6,2048,128,full", "8,12,4096,64,w256", "2,12,16384,64,w1024",
          "4,8,8192,128,w1024"]
torch._functorch.config.donated_buffer = False  # the gradient is asked for several times
flex = torch.compile(flex_attention)


def ways(kind, q, k, v):
    """Of each library's name: its backend, and a call."""
    B, H, T, D = q.shape
    if kind[0] != "w":
        mask = torch.zeros(B, 1, 1 if kind == "pad" else T, T, device="cuda", dtype=torch.bfloat16)
        return {b.name: (b, lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
                for b in (SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)}
    w, found = int(kind[1:]), {}
    if T <= 4096:
        i = torch.arange(T, device="cuda")
        hidden = (i[:, None] < i[None]) | (i[:, None] - i[None] >= w)
        mask = torch.zeros(T, T, device="cuda", dtype=torch.bfloat16).masked_fill(hidden, float("-inf"))
        found["EFFICIENT with a [T,T] mask"] = (SDPBackend.EFFICIENT_ATTENTION, lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    blocks = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < w), None, None, T, T, device="cuda")
    found["flex_attention"] = (SDPBackend.MATH, lambda: flex(q, k, v, block_mask=blocks))
    return found


for shape in sys.argv[1:] or SHAPES:
    *n, kind = shape.split(",")
    B, H, T, D = map(int, n)
    qkv = torch.randn(B, T, 3, H, D, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    q, k, v = (t.transpose(1, 2) for t in qkv.unbind(2))
    for name, (backend, run) in ways(kind, q, k, v).items():
        try:
            with sdpa_kernel(backend):
                forward = least(run)
                y = run()
                gradient = torch.randn_like(y)
                backward = least(lambda: torch.autograd.grad(y, (q, k, v), gradient, retain_graph=True))
            print("%-24s %-28s %9.1f %9.1f us" % (shape, name, forward, backward), flush=True)
        except RuntimeError as e:
            print("%-24s %-28s refused: %s" % (shape, name, str(e).splitlines()[0][:80]), flush=True)
