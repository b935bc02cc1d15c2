#!/usr/bin/env python3
"""Whole training steps of models that PyTorch exported, on an NVIDIA GPU: `anneal bench MODEL.pt2` beside torch.compile.

    PYTHONPATH=python python bench/import/gpu_step.py build/anneal [ROW...] [--peers default,MODE...] [--rounds 2] [--steps 20]
                                                      [--limit S] [--compile S] [--device cuda|cpu] [--tiny] [--out FILE]

A row is MODEL or MODEL/BATCH. Of each row: PyTorch exports the model (anneal.export), and peers, a process a row and mode, compile it side
by side and wait. When they are ready, anneal and they are timed in turn, one at a time on an idle GPU. Both sides: weights of float32, matrix
products in bfloat16 (autocast), mean cross entropy, gradients clipped to norm 1, AdamW (fused there), no dropout, random data that comes from
the host's memory, the loss read after each step, and in `tenth_ms` after every tenth; images are channels last in PyTorch. A line of JSON
a row and peer: `ms` (median of all rounds' medians), `min_ms`, `first_s` (with compilation, cold: empty caches; warm: full ones), `peak_gb`;
of the export `read_s` (`anneal inspect` of the archive); then one with `ratio`s, PyTorch's time by ours. "gpt2" is also timed as the
built-in preset of the same shape: `imported_by_built_in`.
What fails costs its own row alone.
Models: gpt2, llama, bert, resnet50 of this file; gpt2_window, 4,096 tokens of which each sees the last 512 (a constant mask), and bert_padded, whose
tokens 0 are hidden (a mask of the input); hf_gpt2, hf_llama, hf_bert of transformers and tv_mobilenet_v2, tv_convnext_tiny, tv_resnet18,
tv_densenet121, tv_vgg16_bn, tv_efficientnet_b0 of torchvision, where those are installed.
"""
import argparse
import contextlib
import json
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BEGAN = time.perf_counter()
HERE = os.path.abspath(__file__)
TIMES = ("ms", "min_ms", "tenth_ms")
ROWS = ["gpt2/8", "gpt2/16", "llama/8", "bert/32", "resnet50/64", "resnet50/128", "hf_gpt2/8", "hf_llama/8", "hf_bert/32"]


def models():
    """Of each name a function tiny -> (module, inputs of a batch, labels of a batch, settings of anneal, those of the built-in preset or None)."""
    import torch
    import torch.nn.functional as F
    from torch import nn
    from resnet import Bottleneck

    def heads_of(x, heads):
        return x.view(*x.shape[:2], heads, -1).transpose(1, 2)

    class GPTBlock(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads, self.ln_1, self.ln_2 = heads, nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

        def forward(self, x, mask):
            q, k, v = (heads_of(t, self.heads) for t in self.qkv(self.ln_1(x)).split(x.shape[2], 2))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
            x = x + self.out(y.transpose(1, 2).reshape(x.shape))
            return x + self.down(F.gelu(self.up(self.ln_2(x))))

    class GPT(nn.Module):
        """nanoGPT's GPT-2: no biases, the head tied to the embedding. window: tokens that each one sees, itself among them."""

        def __init__(self, vocabulary, width, layers, heads, length, window=0):
            super().__init__()
            self.window = window
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks, self.ln_f = nn.ModuleList(GPTBlock(width, heads) for _ in range(layers)), nn.LayerNorm(width, bias=False)
            self.head = nn.Linear(width, vocabulary, bias=False)
            self.head.weight = self.wte.weight

        def forward(self, ids):
            at = torch.arange(ids.shape[1], device=ids.device)
            apart = at[:, None] - at
            mask = (apart >= 0) & (apart < self.window) if self.window else None
            x = self.wte(ids) + self.wpe(at)
            for block in self.blocks:
                x = block(x, mask)
            return self.head(self.ln_f(x))

    class LlamaBlock(nn.Module):
        def __init__(self, width, heads, keys, inner):
            super().__init__()
            size, self.heads, self.keys = width // heads, heads, keys
            self.q, self.k, self.v = (nn.Linear(width, size * n, bias=False) for n in (heads, keys, keys))
            self.out, self.n1, self.n2 = nn.Linear(width, width, bias=False), nn.RMSNorm(width), nn.RMSNorm(width)
            self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
            self.down = nn.Linear(inner, width, bias=False)

        def forward(self, x, cos, sin):
            def turned(t):
                a, b = t.chunk(2, -1)
                return t * cos + torch.cat((-b, a), -1) * sin
            h = self.n1(x)
            q, k, v = turned(heads_of(self.q(h), self.heads)), turned(heads_of(self.k(h), self.keys)), heads_of(self.v(h), self.keys)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.out(y.transpose(1, 2).reshape(x.shape))
            h = self.n2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Llama(nn.Module):
        def __init__(self, vocabulary, width, layers, heads, keys, inner, length):
            super().__init__()
            size = width // heads
            angle = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, size, 2) / size)
            self.register_buffer("cos", angle.cos().repeat(1, 2), persistent=False)
            self.register_buffer("sin", angle.sin().repeat(1, 2), persistent=False)
            self.table, self.norm = nn.Embedding(vocabulary, width), nn.RMSNorm(width)
            self.layers = nn.ModuleList(LlamaBlock(width, heads, keys, inner) for _ in range(layers))
            self.head = nn.Linear(width, vocabulary, bias=False)

        def forward(self, ids):
            x = self.table(ids)
            for layer in self.layers:
                x = layer(x, self.cos, self.sin)
            return self.head(self.norm(x))

    class BertLayer(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads, self.n1, self.n2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
            self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x, mask):
            q, k, v = (heads_of(f(x), self.heads) for f in (self.q, self.k, self.v))
            x = self.n1(x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(x.shape)))
            return self.n2(x + self.down(F.gelu(self.up(x))))

    class Bert(nn.Module):
        """BERT with its head of masked words. padded: tokens 0 are seen by none."""

        def __init__(self, vocabulary, width, layers, heads, length, padded=False):
            super().__init__()
            self.padded = padded
            self.table, self.places, self.norm = nn.Embedding(vocabulary, width), nn.Embedding(length, width), nn.LayerNorm(width)
            self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))
            self.dense, self.last = nn.Linear(width, width), nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary)
            self.head.weight = self.table.weight

        def forward(self, ids):
            x = self.norm(self.table(ids) + self.places(torch.arange(ids.shape[1], device=ids.device)))
            mask = ids.ne(0)[:, None, None, :] if self.padded else None
            for layer in self.layers:
                x = layer(x, mask)
            return self.head(self.last(F.gelu(self.dense(x))))

    def resnet50(blocks):
        """The layers of torchvision's."""
        parts, inside = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
        for width, n, stride in zip((64, 128, 256, 512), blocks, (1, 2, 2, 2)):
            for i in range(n):
                parts.append(Bottleneck(inside, width, stride if i == 0 else 1))
                inside = 4 * width
        return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))

    class Logits(nn.Module):
        """A model of transformers, from ids to logits."""

        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(input_ids=ids).logits

    def text(module, vocabulary, length, built_in=None):
        def batch(n):
            return torch.randint(0, vocabulary, (n, length)), torch.randint(0, vocabulary, (n, length))
        return module, batch, built_in

    def images(module, side):
        return module, lambda n: (torch.randn(n, 3, side, side), torch.randint(0, 1000, (n,))), None

    def gpt2(tiny):
        a = (512, 64, 2, 2, 32) if tiny else (50304, 768, 12, 12, 1024)
        shape = [f"{k}={v}" for k, v in zip(("vocab_size", "n_embd", "n_layer", "n_head", "block_size"), a)]
        return text(GPT(*a), a[0], a[4], ["gpt2", *shape, "bias=false", "dropout=0"])

    def gpt2_window(tiny):
        a = (512, 64, 2, 2, 32, 8) if tiny else (50304, 768, 12, 12, 4096, 512)
        return text(GPT(*a), a[0], a[4])

    def llama(tiny):
        return text(Llama(512, 64, 2, 4, 2, 96, 32), 512, 32) if tiny else text(Llama(32000, 1024, 12, 16, 4, 2816, 1024), 32000, 1024)

    def bert(tiny):
        return text(Bert(510, 64, 2, 2, 32), 510, 32) if tiny else text(Bert(30522, 768, 12, 12, 512), 30522, 512)

    def bert_padded(tiny):
        return text(Bert(510, 64, 2, 2, 32, True), 510, 32) if tiny else text(Bert(30522, 768, 12, 12, 512, True), 30522, 512)

    def resnet(tiny):
        return images(resnet50((1, 1, 1, 1)), 64) if tiny else images(resnet50((3, 4, 6, 3)), 224)

    def hf_gpt2(tiny):
        from transformers import GPT2Config, GPT2LMHeadModel
        a = dict(vocab_size=512, n_embd=64, n_layer=2, n_head=2, n_positions=32) if tiny else {}
        c = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, **a)
        return text(Logits(GPT2LMHeadModel(c)), c.vocab_size, c.n_positions)

    def hf_llama(tiny):
        from transformers import LlamaConfig, LlamaForCausalLM
        a = dict(vocab_size=512, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 max_position_embeddings=32) if tiny else dict(vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=12,
                                                               num_attention_heads=16, num_key_value_heads=4, max_position_embeddings=1024)
        c = LlamaConfig(use_cache=False, **a)
        return text(Logits(LlamaForCausalLM(c)), c.vocab_size, c.max_position_embeddings)

    def hf_bert(tiny):
        from transformers import BertConfig, BertForMaskedLM
        a = dict(vocab_size=510, hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
                 max_position_embeddings=32) if tiny else {}
        c = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **a)
        return text(Logits(BertForMaskedLM(c)), c.vocab_size, c.max_position_embeddings)

    def torchvision(name, **settings):
        """A classifier of torchvision, without what it drops at random."""
        def model(tiny):
            import torchvision
            return images(getattr(torchvision.models, name)(**settings), 64 if tiny else 224)
        return model

    return {"gpt2": gpt2, "gpt2_window": gpt2_window, "llama": llama, "bert": bert, "bert_padded": bert_padded, "resnet50": resnet, "hf_gpt2": hf_gpt2, "hf_llama": hf_llama, "hf_bert": hf_bert,
            "tv_mobilenet_v2": torchvision("mobilenet_v2", dropout=0.0), "tv_convnext_tiny": torchvision("convnext_tiny", stochastic_depth_prob=0.0),
            "tv_resnet18": torchvision("resnet18"), "tv_densenet121": torchvision("densenet121"), "tv_vgg16_bn": torchvision("vgg16_bn", dropout=0.0),
            "tv_efficientnet_b0": torchvision("efficientnet_b0", dropout=0.0, stochastic_depth_prob=0.0)}


def made(row, tiny):
    """(module, inputs, labels, settings of the built-in preset)"""
    import torch
    torch.manual_seed(1)
    name, _, batch = row.partition("/")
    module, data, built_in = models()[name](tiny)
    x, y = data(2 if tiny else int(batch or 8))
    return module, x, y, built_in


def export_row(row, o):
    """The process that writes a row's archive."""
    import warnings
    warnings.filterwarnings("ignore")
    from anneal.export import export
    module, x, _, built_in = made(row, o.tiny)
    begin = time.perf_counter()
    export(module, (x,), o.out)
    print(json.dumps({"export_s": round(time.perf_counter() - begin, 2), "parameters": sum(p.numel() for p in module.parameters()),
                      "batch": x.shape[0], "built_in": built_in}))


def peer(row, o):
    """PyTorch's process: compiles and takes the first step, says so, and times `steps` steps for each line it is sent."""
    import torch
    import torch.nn.functional as F
    cuda = o.device == "cuda"
    module, x, y, _ = made(row, o.tiny)
    module = module.to(o.device)
    if x.dim() == 4:
        module, x = module.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    if cuda:
        batch = [x.pin_memory(), y.pin_memory()]  # comes from the host in each step, as a batch does
        x, y = x.to(o.device), y.to(o.device)
    else:
        batch = [x, y]
    if not cuda:
        torch.set_num_threads(1)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def loss_of(x, y):
        logits = module(x)
        return F.cross_entropy(logits.flatten(0, -2), y.flatten())

    compiled = loss_of if o.mode == "eager" else torch.compile(loss_of, mode=None if o.mode == "default" else o.mode)
    half = torch.autocast(o.device, torch.bfloat16)

    def step(read=True):
        begin = time.perf_counter()
        x.copy_(batch[0], non_blocking=True)
        y.copy_(batch[1], non_blocking=True)
        torch.compiler.cudagraph_mark_step_begin()
        with half:
            loss = compiled(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if read:
            loss.item()
        return 1e3 * (time.perf_counter() - begin)
    first = step()
    for _ in range(3 if o.tiny else 10):
        step()
    if cuda:
        torch.cuda.empty_cache()  # the others wait for their turn with memory of their own
    print(json.dumps({"first_s": round(first / 1e3, 3), "torch": torch.__version__,
                      "gpu": torch.cuda.get_device_name() if cuda else None}), flush=True)
    for line in sys.stdin:
        for _ in range(o.warmup):
            step()
        ms = sorted(step() for _ in range(o.steps))
        tenth = []
        for _ in range(o.steps // 10):
            begin = time.perf_counter()
            for i in range(10):
                step(read=i == 9)
            tenth.append(1e2 * (time.perf_counter() - begin))
        print(json.dumps({"ms": round(statistics.median(ms), 3), "min_ms": round(ms[0], 3),
                          **({"tenth_ms": round(min(tenth), 3)} if tenth else {}),
                          "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2) if cuda else None}), flush=True)
        if cuda:
            torch.cuda.empty_cache()


class Worker:
    """A process of this file that answers in lines of JSON; its errors are kept."""

    def __init__(self, o, folder, row, *arguments):
        same = ["--device", o.device, "--steps", str(o.steps), "--warmup", str(o.warmup)] + ["--tiny"] * o.tiny
        self.command = [sys.executable, HERE, "-", row, *arguments, *same]
        self.environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
                            "TRITON_CACHE_DIR": os.path.join(folder, "triton"), "TORCHINDUCTOR_COMPILE_THREADS": "4"}
        self.errors = tempfile.NamedTemporaryFile("w+", dir=folder, suffix=".err", encoding="utf-8", delete=False)
        self.p, self.rest, self.told = None, b"", None

    def start(self):
        self.p = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=self.environment, bufsize=0)

    def failure(self):
        self.errors.seek(0)
        lines = [line for line in self.errors.read().splitlines() if line.strip()]
        return {"failed": lines[-1][:300] if lines else f"ended with {self.p.returncode}"}

    def answer(self, seconds):
        """The next line, or {"failed": why}, or after `seconds` None."""
        until = time.monotonic() + seconds
        while True:
            while b"\n" not in self.rest:
                if not select.select([self.p.stdout], [], [], max(until - time.monotonic(), 0))[0]:
                    return None
                more = os.read(self.p.stdout.fileno(), 1 << 16)
                if not more:
                    self.p.wait()
                    return self.failure()
                self.rest += more
            line, _, self.rest = self.rest.partition(b"\n")
            if line.startswith(b"{"):
                return json.loads(line)

    def is_ready(self):
        """Whether it has answered for the first time."""
        if self.told is None:
            self.told = self.answer(0)
        return self.told is not None

    def ask(self, seconds):
        with contextlib.suppress(OSError):
            self.p.stdin.write(b"go\n")
        return self.answer(seconds) or {"failed": f"took more than {seconds:.0f} s"}

    def end(self):
        if self.p:
            self.p.kill()
            self.p.wait()


def start_all(workers, together, left):
    """Starts them in order, `together` at a time, until each has answered or the time is over."""
    waiting, running = list(workers), []
    while (waiting or running) and left() > 0:
        running = [w for w in running if not w.is_ready()]
        while waiting and len(running) < together:
            running.append(waiting.pop(0))
            running[-1].start()
        time.sleep(0.1)
    for w in waiting + running:
        w.told = w.told or {"failed": "was not ready in time" if w.p else "was not begun in time"}


def bench(o, what, seconds, cache):
    """One call of `anneal bench`."""
    settings = [f"device={o.device}", "dtype=bfloat16", f"steps={o.steps}", f"warmup={o.warmup if o.tiny else 10}", "--json", "--quiet"]
    try:
        done = subprocess.run([o.anneal, "bench", *what, *settings, f"cache_dir={cache}"], capture_output=True, text=True, check=False,
                              timeout=max(seconds, 1))
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {seconds:.0f} s"}
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1][:300] if done.stderr.strip() else f"ended with {done.returncode}"}
    r = json.loads(done.stdout.strip().splitlines()[-1])
    return {**{k: r[k] for k in ("ms", "min_ms", "tenth_ms", "first_s", "launches") if k in r}, "peak_gb": round(r["peak_bytes"] / 1e9, 2)}


def read_seconds(o, file):
    """The least time of `anneal inspect`, which reads the archive's graph and builds it."""
    def once():
        begin = time.perf_counter()
        subprocess.run([o.anneal, "inspect", file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30, check=False)
        return time.perf_counter() - begin
    return round(min(once() for _ in range(3)), 3)


class Row:
    def __init__(self, o, folder, row):
        self.o, self.row, self.folder = o, row, folder
        self.file = os.path.join(folder, row.replace("/", "_") + ".pt2")
        self.exporter = Worker(o, folder, row, "--job", "export", "--out", self.file)
        self.peers = {m: Worker(o, folder, row, "--job", "peer", "--mode", m) for m in o.peers}
        self.found, self.times, self.told = {}, {}, {}

    def note(self, who, r):
        """Keeps what one call said; False: it failed."""
        if "failed" in r:
            self.found.setdefault(who, {})["failed"] = r["failed"]
            return False
        kept = self.found.setdefault(who, {})
        for key in TIMES:
            if key in r:
                self.times.setdefault((who, key), []).append(r[key])
        kept.update({k: v for k, v in r.items() if k not in (*TIMES, "first_s")})
        if "first_s" in r:
            kept["first_s_warm" if "first_s_cold" in kept else "first_s_cold"] = r["first_s"]
        return True

    def workers(self):
        return [self.exporter, *self.peers.values()]

    def prepare(self):
        """anneal's side: of it and of the built-in preset what each is called with."""
        told = self.exporter.told
        if not self.note("export", told):
            return {}
        self.found["export"]["read_s"] = read_seconds(self.o, self.file)
        same = [f"batch_size={told['batch']}"]
        what = {"anneal": [self.file, "loss=cross_entropy", *same]}
        if told["built_in"]:
            what["built_in"] = [*told["built_in"], *same]
        return what

    def time(self, left):
        what = self.prepare()
        ready = {mode: worker for mode, worker in self.peers.items() if self.note(mode, worker.told)}
        for _ in range(self.o.rounds):
            for who, words in what.items():
                cache = os.path.join(self.folder, "cache_" + self.row.replace("/", "_") + "_" + who)
                os.makedirs(cache, mode=0o700, exist_ok=True)
                self.note(who, bench(self.o, words, min(left(), 60), cache))
            for mode, worker in ready.items():
                self.note(mode, worker.ask(max(min(left(), 30), 1)))
        for worker in self.workers():
            worker.end()
        if self.o.profiles and what:
            self.profile(what["anneal"], min(left(), 20))
        if os.path.exists(self.file):
            os.remove(self.file)
        return self.lines()

    def profile(self, what, seconds):
        """The launches of a step with their times, for who wants to know where they go."""
        path = os.path.join(self.o.profiles, self.row.replace("/", "_") + ".txt")
        settings = [f"device={self.o.device}", "dtype=bfloat16", "inputs=fixed", "gradient_accumulation_steps=1"]
        with open(path, "w", encoding="utf-8") as f, contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([self.o.anneal, "profile", *what, *settings], stdout=f, stderr=f, timeout=max(seconds, 1), check=False)

    def lines(self):
        for (who, key), values in self.times.items():
            self.found[who][key] = round(statistics.median(values), 3)
        for who, r in self.found.items():
            yield {"row": self.row, "who": who, **r}
        ours = self.found.get("anneal", {}).get("ms")
        if not ours:
            return
        ratios = {m: round(self.found[m]["ms"] / ours, 3) for m in self.peers if "ms" in self.found.get(m, {})}
        tenth = self.found["anneal"].get("tenth_ms")
        ratios.update({m + ", a tenth of the losses read": round(self.found[m]["tenth_ms"] / tenth, 3) for m in self.peers
                       if tenth and "tenth_ms" in self.found.get(m, {})})
        built_in = self.found.get("built_in", {}).get("ms")
        yield {"row": self.row, "ratio": ratios, **({"imported_by_built_in": round(ours / built_in, 4)} if built_in else {})}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("anneal", help="the program")
    p.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    p.add_argument("--peers", default="default", help="modes of torch.compile, with commas; `eager`: none; empty: anneal alone")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--warmup", type=int, default=3, help="steps of PyTorch before each round's, after ten at first")
    p.add_argument("--limit", type=float, default=420, help="seconds for all rows")
    p.add_argument("--compile", type=float, default=240, help="seconds of them after which what PyTorch has not compiled is left out")
    p.add_argument("--together", type=int, default=0, help="processes that export and compile side by side; 0: one for three processors")
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    p.add_argument("--tiny", action="store_true", help="small shapes: tests this script")
    p.add_argument("--profiles", default="", help="folder for a table of anneal's launches, a file a row")
    p.add_argument("--out", default="", help="also here, a line at a time")
    p.add_argument("--job", choices=["export", "peer"], help=argparse.SUPPRESS)
    p.add_argument("--mode", default="default", help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.job:
        return (export_row if o.job == "export" else peer)(o.rows[0], o)
    o.peers = [m for m in o.peers.split(",") if m]
    folder = tempfile.mkdtemp(prefix="gpu_step_")

    def since():
        return time.perf_counter() - BEGAN

    def say(line):
        print(json.dumps(line), flush=True)
        if o.out:
            with open(o.out, "a", encoding="utf-8") as f:
                f.write(json.dumps(line) + "\n")
    rows = []
    try:
        for row in o.rows or ROWS:
            rows.append(Row(o, folder, row))
        start_all([w for r in rows for w in r.workers()], o.together or max(len(os.sched_getaffinity(0)) // 3, 1), lambda: o.compile - since())
        say({"compiled_s": round(since(), 1)})
        for r in rows:
            for line in r.time(lambda: o.limit - since()):
                say(line)
        say({"all_s": round(since(), 1)})
    finally:
        for r in rows:
            for worker in r.workers():
                worker.end()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
