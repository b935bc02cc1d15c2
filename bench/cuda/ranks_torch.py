"""PyTorch over several GPUs of one host: tokens/s of all of them and the memory of a rank.

torchrun --nproc-per-node N ranks_torch.py gpt2|gpt2-xl BATCH ddp|fsdp

ddp: DistributedDataParallel under torch.compile with autocast to bf16. fsdp: fully_shard of each block, which is compiled alone,
with bf16 weights and float32 sums. Blocks of 1,024 tokens; the median of three times ten updates after eight.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

SIZES = {"gpt2": (12, 12, 768), "gpt2-xl": (48, 25, 1600)}
if len(sys.argv) != 4 or sys.argv[1] not in SIZES or sys.argv[3] not in ("ddp", "fsdp"):
    sys.exit(__doc__)
LAYERS, HEADS, WIDTH = SIZES[sys.argv[1]]
BATCH, KIND, BLOCK, VOCABULARY = int(sys.argv[2]), sys.argv[3], 1024, 50304


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.fc, self.out = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, HEADS, c // HEADS).transpose(1, 2) for part in self.qkv(self.ln1(x)).split(c, 2))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(heads.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln, self.head = nn.LayerNorm(WIDTH, bias=False), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.wte.weight
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, x, y):
        h = self.wte(x) + self.wpe.weight[: x.shape[1]]
        for block in self.h:
            h = block(h)
        return F.cross_entropy(self.head(self.ln(h)).view(-1, VOCABULARY), y.view(-1))


rank = int(os.environ["LOCAL_RANK"])
torch.backends.cuda.matmul.allow_tf32 = True
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
ranks = dist.get_world_size()
torch.manual_seed(1)
model = GPT().cuda()
if KIND == "ddp":
    run = torch.compile(nn.parallel.DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True))
else:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.h:
        block.compile()
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    run = model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
x, y = (torch.randint(0, VOCABULARY, (BATCH, BLOCK), device="cuda") for _ in range(2))


def update():
    with torch.autocast("cuda", torch.bfloat16, enabled=KIND == "ddp"):
        loss = run(x, y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


for _ in range(8):
    update()
times = []
for _ in range(3):
    dist.barrier()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(10):
        update()
    torch.cuda.synchronize()
    times.append((time.perf_counter() - began) / 10)
median = sorted(times)[1]
if rank == 0:
    rate, memory = BATCH * BLOCK * ranks / median, torch.cuda.max_memory_allocated() / 1e9
    print(f"torch {torch.__version__} {KIND} {sys.argv[1]} B{BATCH}, {ranks} GPUs: {median * 1e3:.1f} ms, {rate:.0f} tokens/s, {memory:.2f} GB a rank")
dist.destroy_process_group()
