"""PyTorch over several GPUs of one host: tokens/s of all of them and the memory of a rank.

torchrun --nproc-per-node N bench/cuda/ranks_torch.py gpt2|gpt2-xl BATCH ddp|fsdp|fsdp-whole

ddp: DistributedDataParallel under torch.compile with autocast to bf16. fsdp: fully_shard of each block, which is compiled alone,
with bf16 weights and float32 sums; fsdp-whole: all of the model is compiled. Blocks of 1,024 tokens; the median of three times ten
updates after eight. The model is that of bench/gpt_torch.py.
"""
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from gpt_torch import GPT  # noqa: E402

SIZES = {"gpt2": (12, 12, 768), "gpt2-xl": (48, 25, 1600)}
if len(sys.argv) != 4 or sys.argv[1] not in SIZES or sys.argv[3] not in ("ddp", "fsdp", "fsdp-whole"):
    sys.exit(__doc__)
BATCH, KIND, BLOCK, VOCABULARY = int(sys.argv[2]), sys.argv[3], 1024, 50304

rank = int(os.environ["LOCAL_RANK"])
torch.backends.cuda.matmul.allow_tf32 = True
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
ranks = dist.get_world_size()
torch.manual_seed(1)
model = GPT(BLOCK, *SIZES[sys.argv[1]], VOCABULARY, 0.0, False).cuda()
if KIND == "ddp":
    run = torch.compile(nn.parallel.DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True))
else:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.h:
        if KIND == "fsdp":
            block.compile()
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    run = torch.compile(model) if KIND == "fsdp-whole" else model
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
