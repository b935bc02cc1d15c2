#!/usr/bin/env python3
"""Models of PyTorch trained by `anneal` from their archive, without Python, and handed back.

    python tools/pt2_round_trip.py build/anneal [--python PYTHON ...] [--only NAME] [--keep DIR] [--text FILE]

Of each Python (this one, if none is named) PyTorch writes the archive with `python -m anneal.export`; `anneal train`, `eval`, `predict` and
`export` run with an environment that has no Python in it; then PyTorch takes the weights: load_state_dict(strict=True) of weights.safetensors,
torch.export.load of trained.pt2 with the same bits, and the logits of the module in evaluation mode beside those of this library over
trained.pt2 (1e-5 of the largest is allowed) and the probabilities of `anneal predict`.

small      a convolutional network with batch norm and an embedding that is its head: in float32, random data; one update
resnet18   torchvision's ResNet-18 on 1,797 scanned digits (scikit-learn's load_digits, as PNG files of 32x32): labelled folders
bert       transformers' BERT (2 layers, 128 wide) that tells four speakers of tiny Shakespeare (--text) apart
"""
import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LENGTH, WORDS = 32, 1000


# ---- models, and their data as files that `anneal train` reads

def small():
    import torch.nn as nn
    import torch.nn.functional as F

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.mix = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 16)
            self.qkv, self.head, self.table = nn.Linear(16, 48), nn.Linear(16, 7, bias=False), nn.Embedding(7, 16)
            self.head.weight = self.table.weight

        def forward(self, x):
            h = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2).flatten(2).transpose(1, 2)
            h = self.mix(h)
            q, k, v = (t.unflatten(2, (2, 8)).transpose(1, 2) for t in self.qkv(h).chunk(3, 2))
            h = h + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            return self.head(F.dropout(F.gelu(h).mean(1), 0.1, self.training))
    return Small()


def small_data(folder, text):
    import numpy
    r = numpy.random.default_rng(1)
    numpy.save(f"{folder}/x.npy", r.standard_normal((80, 3, 8, 8), dtype=numpy.float32))
    numpy.save(f"{folder}/labels.npy", r.integers(0, 7, 80))
    return numpy.load(f"{folder}/x.npy")[:16]


def resnet18():
    import torchvision
    return torchvision.models.resnet18(num_classes=10)


def resnet18_data(folder, text):
    import numpy
    from PIL import Image
    from sklearn.datasets import load_digits
    digits = load_digits()
    shown = []
    for i, (image, label) in enumerate(zip(digits.images, digits.target)):
        os.makedirs(f"{folder}/{label}", exist_ok=True)
        picture = Image.fromarray((image * 255 / 16).astype(numpy.uint8)).resize((32, 32), Image.BILINEAR).convert("RGB")
        picture.save(f"{folder}/{label}/{i:04}.png")
        if i < 16:
            shown.append(numpy.asarray(picture, dtype=numpy.float32).transpose(2, 0, 1) / 255)
    return (numpy.stack(shown) - 0.5) / 0.5


class OfIds:
    """transformers' model as a function of ids alone."""

    @staticmethod
    def make():
        import torch
        from transformers import BertConfig, BertForSequenceClassification

        class Of(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.bert = BertForSequenceClassification(BertConfig(vocab_size=WORDS, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
                                                                     intermediate_size=512, max_position_embeddings=LENGTH, num_labels=4))

            def forward(self, ids):
                return self.bert(input_ids=ids).logits
        return Of()


def bert():
    return OfIds.make()


def bert_data(folder, text):
    """Speeches of the four who speak most, as ids of the commonest words; 0 fills."""
    import numpy
    with open(text, encoding="utf-8") as f:
        speeches = re.findall(r"(?:^|\n\n)([A-Z][A-Za-z ]+):\n(.+?)(?=\n\n|$)", f.read(), re.S)
    speakers = [s for s, _ in collections.Counter(s for s, _ in speeches).most_common(4)]
    words = {w: i + 2 for i, (w, _) in enumerate(collections.Counter(w for _, t in speeches for w in re.findall(r"[a-z']+", t.lower())).most_common(WORDS - 2))}
    ids, labels = [], []
    for who, said in speeches:
        if who in speakers:
            row = [words.get(w, 1) for w in re.findall(r"[a-z']+", said.lower())][:LENGTH]
            ids.append(row + [0] * (LENGTH - len(row)))
            labels.append(speakers.index(who))
    numpy.save(f"{folder}/ids.npy", numpy.array(ids))
    numpy.save(f"{folder}/labels.npy", numpy.array(labels))
    return numpy.array(ids[:16])


MODELS = {"small": (small, small_data, "max_iters=1 batch_size=16"),
          "resnet18": (resnet18, resnet18_data, "max_iters=80 batch_size=32 eval_interval=40 pixel_mean=0.5,0.5,0.5 pixel_std=0.5,0.5,0.5"),
          "bert": (bert, bert_data, "max_iters=200 batch_size=32 eval_interval=100")}


# ---- where PyTorch is

def write(name, folder, text):
    import numpy
    import torch
    from anneal.export import export
    torch.manual_seed(1)
    make, data, _ = MODELS[name]
    os.makedirs(f"{folder}/data", exist_ok=True)
    rows = data(f"{folder}/data", text)
    numpy.save(f"{folder}/rows.npy", rows)
    model = make()
    free = export(model, (torch.from_numpy(rows),), f"{folder}/model.pt2")
    print(f"PyTorch {torch.__version__}: {sum(p.numel() for p in model.parameters()):,} parameters, batches of {'any' if free else 'one'} size", flush=True)


def check(name, folder):
    import numpy
    import torch
    from safetensors.torch import load_file
    import anneal
    rows, model = torch.from_numpy(numpy.load(f"{folder}/rows.npy")), MODELS[name][0]()
    weights = load_file(f"{folder}/weights.safetensors")
    before = {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(weights, strict=True)
    assert any(not torch.equal(v, before[k]) for k, v in model.state_dict().items())
    program = torch.export.load(f"{folder}/trained.pt2")
    for key, value in program.state_dict.items():
        assert torch.equal(value, model.state_dict()[key]), f"{key} has other bits in trained.pt2"
    program.module()(rows)
    with torch.no_grad():
        theirs = model.eval()(rows)
    ours = torch.from_dlpack(anneal.load(f"{folder}/trained.pt2")(rows))
    apart = float((ours - theirs).abs().max()) / max(1.0, float(theirs.abs().max()))
    predicted = torch.from_numpy(numpy.load(f"{folder}/predicted.npy"))
    also = float((predicted - theirs.softmax(1)).abs().max())
    assert apart <= 1e-5 and also <= 1e-5, f"logits {apart:.1e} apart, probabilities {also:.1e}; 1e-5 is allowed"
    print(f"PyTorch {torch.__version__}: load_state_dict(strict=True) takes the weights, torch.export.load the archive; logits {apart:.1e} apart, "
          f"probabilities of predict {also:.1e}", flush=True)


# ---- where it is not

def without_python(anneal, *words):
    """A command of anneal; its environment has no Python and no PyTorch."""
    path = os.pathsep.join(p for p in ("/usr/bin", "/bin") if os.path.isdir(p))
    env = {"PATH": path, "HOME": os.environ.get("HOME", "/"), **{k: v for k, v in os.environ.items() if k.startswith("ANNEAL_") and k != "ANNEAL_LIBRARY"}}
    done = subprocess.run([anneal, *words], env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"anneal {' '.join(words)}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


def round_trip(anneal, python, name, folder, o):
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([os.path.join(HERE, "python"), *filter(None, [os.environ.get("PYTHONPATH")])]))
    run, settings = f"{folder}/run", MODELS[name][2].split()
    mine = [python, "-W", "ignore", os.path.abspath(__file__), anneal, "--folder", folder, "--only", name, "--text", o.text]
    subprocess.run([*mine, "--stage", "write"], check=True, env=env)
    without_python(anneal, "train", f"{folder}/model.pt2", f"data={folder}/data", "loss=cross_entropy", "device=cpu", f"threads={o.threads}", f"out={run}", *settings)
    measured = json.loads(without_python(anneal, "eval", run, f"data={folder}/data", "--json").strip().splitlines()[-1])
    for out in ("weights.safetensors", "trained.pt2"):
        without_python(anneal, "export", run, f"out={folder}/{out}")
    without_python(anneal, "predict", run, f"{folder}/rows.npy", f"out={folder}/predicted.npy", "device=cpu")
    shown = {k: v for k, v in measured.items() if k in ("loss", "accuracy", "val_loss", "val_accuracy", "updates", "samples")}
    print(f"{name}: trained without Python: {shown or measured}", flush=True)
    subprocess.run([*mine, "--stage", "check"], check=True, env=env)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("anneal")
    p.add_argument("--python", action="append", default=[])
    p.add_argument("--only", default="small", help="small, resnet18, bert, or all")
    p.add_argument("--text", default="", help="of bert: tiny Shakespeare")
    p.add_argument("--threads", default="0")
    p.add_argument("--keep", help="a folder for what is written")
    p.add_argument("--stage", help=argparse.SUPPRESS)
    p.add_argument("--folder", help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.stage:
        return write(o.only, o.folder, o.text) if o.stage == "write" else check(o.only, o.folder)
    for python in o.python or [sys.executable]:
        for name in MODELS if o.only == "all" else [o.only]:
            folder = o.keep or tempfile.mkdtemp(prefix="anneal-round-trip-")
            os.makedirs(folder, exist_ok=True)
            try:
                round_trip(os.path.abspath(o.anneal), python, name, os.path.abspath(folder), o)
            finally:
                if not o.keep:
                    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
