#!/usr/bin/env python3
"""goldens_vision.py: writes tests/torch/vision_*.safetensors with PyTorch: three updates of the classifier and of the models of
images, in float64 on one thread. tests/torch/README.md says what is in the files."""
import json
import pathlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

STEPS = 3
OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/torch"


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 12), nn.Linear(12, 3)

    def forward(self, x):
        real = (x != 0).double()
        return self.head((self.embedding(x) * real[..., None]).sum(1) / real.sum(1, keepdim=True).clamp(min=1))


class Cnn(nn.Module):
    def __init__(self, depthwise):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        if depthwise:
            self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False), nn.BatchNorm2d(4)
            self.conv3 = nn.Conv2d(4, 8, 1)
        else:
            self.conv2 = nn.Conv2d(4, 8, 3, padding=1)
        self.depthwise, self.fc1, self.fc2 = depthwise, nn.Linear(8 * 3 * 2, 10), nn.Linear(10, 6)

    def forward(self, x):
        x = self.conv2(F.max_pool2d(F.relu(self.conv1(x)), 2))
        if self.depthwise:
            x = self.conv3(F.relu(self.bn2(x)))
        return self.fc2(F.relu(self.fc1(F.max_pool2d(F.relu(x), 2).flatten(1))))


class BasicBlock(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        s = 1 if i == o else 2
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        if i != o:
            self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class Resnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4)
        self.layer1 = nn.Sequential(BasicBlock(4, 4))
        self.layer2, self.layer3 = nn.Sequential(BasicBlock(4, 8)), nn.Sequential(BasicBlock(8, 16))
        self.fc = nn.Linear(16, 6)

    def forward(self, x):
        return self.fc(self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x)))))).mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        p = torch.softmax(q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5, -1)
        return self.proj((p @ v).transpose(1, 2).reshape(b, t, d))


class Mlp(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class VitBlock(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(d, eps=1e-6), Attention(d, heads)
        self.norm2, self.mlp = nn.LayerNorm(d, eps=1e-6), Mlp(d)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Patches(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.proj = nn.Conv2d(1, d, 4, 4)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class Vit(nn.Module):
    def __init__(self, d=24, heads=3):
        super().__init__()
        self.patch_embed = Patches(d)
        self.cls_token = nn.Parameter(torch.randn(1, 1, d))
        self.pos_embed = nn.Parameter(torch.randn(1, 7, d) * 0.1)
        self.blocks = nn.Sequential(VitBlock(d, heads), VitBlock(d, heads))
        self.norm, self.head = nn.LayerNorm(d, eps=1e-6), nn.Linear(d, 6)

    def forward(self, x):
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), self.patch_embed(x)], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


def write(name, model, x, y, about, smoothing=0.0):
    """x [STEPS+1,B,...]: batches of three updates of SGD, and one to evaluate; images are bytes."""
    out = {"x": x, "y": y}
    for k, p in model.state_dict().items():
        if p.dtype.is_floating_point:
            p.copy_(p.float().double())
            out["before." + k] = p.float().clone()

    def forward(batch):
        if batch.dtype != torch.uint8:
            return model(batch)
        return model((batch.double() / 255 - about["mean"]).div(about["std"]).permute(0, 3, 1, 2))

    losses = []
    for i in range(STEPS):
        loss = F.cross_entropy(forward(x[i]), y[i].long(), label_smoothing=smoothing)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= about["lr"] * p.grad
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        out["probabilities"] = torch.softmax(forward(x[STEPS]), 1)
    out["losses"] = torch.tensor(losses, dtype=torch.float64)
    for k, p in model.state_dict().items():
        if p.dtype.is_floating_point:
            out["after." + k] = p.double().clone()
    save_file({k: v.contiguous() for k, v in out.items()}, OUT / f"vision_{name}.safetensors",
              metadata={"about": json.dumps(about)})


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    about = {"lr": 0.1, "mean": 0.3, "std": 0.25, "label_smoothing": 0.0}
    tokens = torch.randint(0, 20, (STEPS + 1, 5, 7), dtype=torch.int32)
    tokens[:, 0] = 0
    tokens[:, 1, 3:] = 0
    write("classifier", Classifier(), tokens, torch.randint(0, 3, (STEPS + 1, 5), dtype=torch.int32), about)
    images = torch.randint(0, 256, (STEPS + 1, 5, 12, 8, 1), dtype=torch.uint8)
    labels = torch.randint(0, 6, (STEPS + 1, 5), dtype=torch.int32)
    write("cnn", Cnn(False), images, labels, about)
    write("cnn_depthwise", Cnn(True), images, labels, about)
    write("resnet", Resnet(), images, labels, about)
    write("vit", Vit(), images, labels, {**about, "label_smoothing": 0.1}, smoothing=0.1)


main()
