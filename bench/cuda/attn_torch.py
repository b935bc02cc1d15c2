#!/usr/bin/env python3
"""PyTorch's attention, forward and backward, at the shapes that tests/gpu/attn_hopper_check times: its peer.

    python3 bench/cuda/attn_torch.py [B,H,T,D[,P]...]      on a machine with an NVIDIA GPU

Causal, bfloat16, q, k and v side by side in rows of 3 H D, P: dropout. A line a shape and library (cuDNN, FlashAttention): microseconds forward
and backward, the least of six means of five, and TFLOP/s as two products forward and five backward.
"""
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from least_torch import least

SHAPES = ["32,12,1024,64", "8,12,1024,64", "2,12,1024,64", "64,6,256,64,0.2", "8,12,4096,64", "2,12,16384,64", "16,6,2048,128",
          "4,16,512,128,0.2", "1,6,16384,128", "32,6,1021,65", "32,8,1024,96", "32,12,1024,32"]


def times(shape, backend):
    batch, heads, context, size, *rest = shape.split(",")
    batch, heads, context, size, p = int(batch), int(heads), int(context), int(size), float(rest[0]) if rest else 0.0
    qkv = torch.randn(batch, context, 3, heads, size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    q, k, v = (t.transpose(1, 2) for t in qkv.unbind(2))
    with sdpa_kernel(backend):
        forward = least(lambda: F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        gradient = torch.randn_like(y)
        backward = least(lambda: torch.autograd.grad(y, (q, k, v), gradient, retain_graph=True))
    flop = 2 * batch * heads * context * context * size
    return forward, backward, flop / forward / 1e6, 2.5 * flop / backward / 1e6


for shape in sys.argv[1:] or SHAPES:
    for name in ("CUDNN_ATTENTION", "FLASH_ATTENTION"):
        try:
            print("%-18s %-16s %9.1f %9.1f us; %4.0f %4.0f TFLOP/s" % (shape, name, *times(shape, getattr(SDPBackend, name))), flush=True)
        except RuntimeError as e:
            print("%-18s %-16s refused: %s" % (shape, name, str(e).splitlines()[0][:80]), flush=True)
