"""A training step of PyTorch, compiled, timed as bench_launches times ours: the loss read after each of 20 steps, and
after the tenth of ten times ten.

    python3 bench/cuda/step_torch.py char|gpt2 [dtype=bfloat16|float32] [tf32=true] [batch_size=N] [compile=false]

The model and the step are nanoGPT's: pre-norm blocks without biases, learned positions, exact GELU, tied head; AdamW
(fused), gradients clipped to norm 1, in bf16 under autocast. Tokens are random and stay."""

import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

# batch, block, layers, heads, width, vocabulary, dropout
PRESETS = {"char": (64, 256, 6, 6, 384, 65, 0.2), "gpt2": (12, 1024, 12, 12, 768, 50304, 0.0)}


def linear(n_in, n_out):
    return nn.Linear(n_in, n_out, bias=False)


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.p = heads, dropout
        self.ln_1, self.ln_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.c_attn, self.c_proj = linear(width, 3 * width), linear(width, width)
        self.c_fc, self.mlp_proj = linear(width, 4 * width), linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        batch, time_, width = x.shape
        split = self.c_attn(self.ln_1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, time_, self.heads, -1).transpose(1, 2) for t in split)
        p = self.p if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        x = x + self.drop(self.c_proj(y.transpose(1, 2).reshape(batch, time_, width)))
        return x + self.drop(self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)))))


class GPT(nn.Module):
    def __init__(self, block, layers, heads, width, vocab, dropout):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(block, width)
        self.drop, self.ln_f = nn.Dropout(dropout), nn.LayerNorm(width, bias=False)
        self.h = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.02)

    def forward(self, tokens, labels):
        x = self.drop(self.wte(tokens) + self.wpe.weight[: tokens.shape[1]])
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


def main():
    preset = sys.argv[1]
    given = dict(a.split("=", 1) for a in sys.argv[2:])
    batch, block, layers, heads, width, vocab, dropout = PRESETS[preset]
    batch = int(given.get("batch_size", batch))
    half, tf32 = given.get("dtype") == "bfloat16", given.get("tf32") == "true"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.manual_seed(1)
    model = GPT(block, layers, heads, width, vocab, dropout).cuda()
    run = model if given.get("compile") == "false" else torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens, labels = (torch.randint(0, vocab, (batch, block), device="cuda") for _ in range(2))

    def steps(n):
        begin = time.perf_counter()
        for _ in range(n):
            with torch.autocast("cuda", torch.bfloat16, enabled=half):
                loss = run(tokens, labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        loss.item()
        return 1e3 * (time.perf_counter() - begin)

    first = steps(1)
    for _ in range(5):
        steps(1)
    each = [steps(1) for _ in range(20)]
    tenth = [steps(10) / 10 for _ in range(10)]
    print(
        f"{preset}, PyTorch {torch.__version__}: {statistics.median(each):.3f} ms a step (fastest {min(each):.3f}), "
        f"{statistics.median(tenth):.3f} ({min(tenth):.3f}) with the loss read every tenth, "
        f"first {first:.0f} ms, {torch.cuda.max_memory_allocated() * 1e-9:.2f} GB"
    )


main()
