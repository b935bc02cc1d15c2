"""The models of this folder and their rows; `PYTHONPATH=python python tests/import/train/three/models.py` writes both again.

A CNN with batch norm, groups and a transposed convolution; a transformer whose heads of queries share those of keys; an LSTM of two layers.
"""
import pathlib
import subprocess
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[3] / "tools"))
from pt2_strip import strip  # noqa: E402  (a neighbour's, not a package's)

CLASSES, ROWS = 4, 16
torch.manual_seed(0)


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=2),
                                  nn.ReLU(), nn.ConvTranspose2d(8, 8, 2, 2), nn.Flatten(), nn.Linear(128, CLASSES))

    def forward(self, x):
        return self.body(x)


class Transformer(nn.Module):
    def __init__(self, width=32, heads=4, keys=2):
        super().__init__()
        self.heads, self.keys, self.size = heads, keys, width // heads
        self.table, self.q, self.kv = nn.Embedding(32, width), nn.Linear(width, width), nn.Linear(width, 2 * keys * self.size)
        self.out, self.norm, self.head = nn.Linear(width, width), nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, ids):
        x = self.table(ids)
        B, T, C = x.shape
        q = self.q(x).view(B, T, self.heads, self.size).transpose(1, 2)
        k, v = (t.view(B, T, self.keys, self.size).transpose(1, 2) for t in self.kv(x).split(self.keys * self.size, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.head(self.norm(x + self.out(y.transpose(1, 2).reshape(B, T, C))).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.head = nn.LSTM(6, 12, 2, batch_first=True), nn.Linear(12, CLASSES)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


cnn, transformer, lstm = CNN(), Transformer(), Recurrent()
cnn_example, transformer_example, lstm_example = (torch.randn(4, 3, 8, 8),), (torch.randint(0, 32, (4, 10)),), (torch.randn(4, 7, 6),)


def main():
    r = np.random.default_rng(0)
    rows = {"cnn": r.normal(size=(ROWS, 3, 8, 8)).astype("f4"), "transformer": r.integers(0, 32, (ROWS, 10)).astype("i4"),
            "lstm": r.normal(size=(ROWS, 7, 6)).astype("f4")}
    for name, x in rows.items():
        subprocess.run([sys.executable, "-m", "anneal.export", f"{__file__}:{name}", f"{__file__}:{name}_example", "-o", HERE / f"{name}.pt2"], check=True)
        strip(HERE / f"{name}.pt2")
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        np.save(folder / ("ids.npy" if name == "transformer" else "x.npy"), x)
        np.save(folder / "labels.npy", r.integers(0, CLASSES, ROWS).astype("i4"))


if __name__ == "__main__":
    main()
