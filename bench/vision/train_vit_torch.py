#!/usr/bin/env python3
"""train_vit_torch.py: what the preset vit_tiny trains, by PyTorch on a GPU: train_vit_torch.py FOLDER [EPOCHS [BATCH [ZOOM]]]

FOLDER has train/CLASS/*.jpg and val/CLASS/*.jpg of 224 x 224 (jpegs.py). All are decoded once, before the clock starts, and stay on the GPU.
The recipe is the preset's: AdamW (0.9, 0.999, decay 0.05 of matrices and patches), 5e-4 after 50 updates, a cosine to 1e-6, clipping at 1, label
smoothing 0.1, half the images mirrored; bf16 by autocast, torch.compile. ZOOM=0.3: a random part of at least 0.7 of the area.
"""
import multiprocessing
import pathlib
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from vision_torch import VisionTransformer


def decode(path):
    return np.asarray(Image.open(path).convert("L"))


def load(folder, split):
    paths = sorted(pathlib.Path(folder, split).glob("*/*.jpg"))
    with multiprocessing.Pool() as pool:
        images = np.stack(pool.map(decode, paths, chunksize=256))
    labels = torch.tensor([int(p.parent.name) for p in paths])
    return torch.from_numpy(images).cuda(), labels.cuda()


def drawn(x, zoom, generator):
    """A random part of each image, as large as the image, half of them mirrored."""
    n = len(x)
    draw = torch.rand(4, n, device="cuda", generator=generator)
    side = 1 - (1 - (1 - zoom) ** 0.5) * draw[0]
    theta = torch.zeros(n, 2, 3, device="cuda")
    theta[:, 0, 0] = side * torch.where(draw[3] < 0.5, -1.0, 1.0)
    theta[:, 1, 1] = side
    theta[:, 0, 2], theta[:, 1, 2] = (1 - side) * (2 * draw[1] - 1), (1 - side) * (2 * draw[2] - 1)
    return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    epochs, batch = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((2, 5), (3, 128)))
    zoom = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
    x, y = load(sys.argv[1], "train")
    vx, vy = load(sys.argv[1], "val")
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = VisionTransformer().cuda()
    for name, p in model.named_parameters():
        if p.dim() >= 2 and name not in ("first", "places"):
            torch.nn.init.normal_(p, std=0.02)
        elif name.endswith("bias"):
            torch.nn.init.zeros_(p)
    decays = [p for n, p in model.named_parameters() if p.dim() >= 2 and n not in ("first", "places")]
    others = [p for n, p in model.named_parameters() if p.dim() < 2 or n in ("first", "places")]
    optimizer = torch.optim.AdamW([{"params": decays, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}],
                                  lr=5e-4, betas=(0.9, 0.999), fused=True)
    updates = epochs * len(x) // batch
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates - 50, 1e-6)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer, [torch.optim.lr_scheduler.LinearLR(optimizer, 1 / 50, 1, 50), cosine], [50])
    mean, std = x.float().mean().item() / 255, 0.0
    std = (sum(((c.float() / 255 - mean) ** 2).mean().item() for c in x.split(4096)) / (len(x) / 4096)) ** 0.5
    run = torch.compile(model)
    generator = torch.Generator("cuda").manual_seed(1)

    def prepared(images):
        return ((images.float() / 255 - mean) / std).unsqueeze(1).expand(-1, 3, -1, -1)

    began, done = None, 0
    order = torch.empty(0, dtype=torch.long, device="cuda")
    for done in range(updates):
        if len(order) < batch:
            order = torch.randperm(len(x), device="cuda", generator=generator)
        at, order = order[:batch], order[batch:]
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(run(drawn(prepared(x[at]), zoom, generator)), y[at], label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if done == 20:
            torch.cuda.synchronize()
            began = time.perf_counter()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    right = 0
    model.eval()
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        for at in torch.arange(len(vx), device="cuda").split(500):
            right += (model(prepared(vx[at])).argmax(1) == vy[at]).sum().item()
    print(f"torch {torch.__version__}: {updates} updates of {batch}, {1e3 * seconds / (updates - 21):.2f} ms each, "
          f"accuracy {100 * right / len(vx):.2f} %, {torch.cuda.max_memory_allocated() / 1e9:.2f} GB with the images")


if __name__ == "__main__":
    main()
