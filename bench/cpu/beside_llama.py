#!/usr/bin/env python3
"""beside_llama.py [--llama PATH]: a token of GPT-2 124M here and in llama.cpp, with the same weights, in turn.

PATH is llama.cpp's llama-bench (cmake --build build --target llama-bench); without it the peer's side is skipped, and said to be. Weights
go to it as a GGUF file, written by llama.cpp's own Python package (pip install gguf numpy), in the dtype that the row names. Both programs
draw TOKENS tokens behind an empty prompt of the same context; the figure is milliseconds a token, their mean, and of the rounds the median.

    python3 bench/cpu/beside_llama.py --llama .../llama-bench --threads 1,2 --rounds 3
"""
import argparse
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "q8_0": "Q8_0"}  # of llama.cpp; ours has the first two


def checked(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        tail = (done.stderr or done.stdout).strip().splitlines()[-3:]
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}: " + " / ".join(tail))
    return done.stdout


def make_weights(anneal, folder):
    """GPT-2's shape after one update, with the biases and the GELU that llama.cpp assumes: the run, and its weights as Hugging Face has them."""
    run, weights = folder / "run", folder / "hf" / "model.safetensors"
    checked([anneal, "train", "gpt2s", "data=corpus", "bias=true", "gelu=tanh", "max_iters=1", "eval_iters=1", "batch_size=1", "block_size=1024",
             "keep=0", "device=cpu", f"out={run}", "--quiet"])
    weights.parent.mkdir()
    checked([anneal, "export", run, "layout=hf", f"out={weights}"])
    return run, weights


def read_safetensors(path):
    import numpy

    with open(path, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
    data = numpy.memmap(path, dtype=numpy.uint8, mode="r", offset=8 + size)
    for name, t in header.items():
        if name == "__metadata__":
            continue
        if t["dtype"] != "F32":
            sys.exit(f"{path}: {name} is {t['dtype']}, not F32")
        begin, end = t["data_offsets"]
        yield name, data[begin:end].view(numpy.float32).reshape(t["shape"])


def write_gguf(weights, path, dtype):
    """llama.cpp's names; its matrices are [out, in], Hugging Face's of GPT-2 [in, out] but for the tables."""
    import gguf
    import numpy

    config = json.loads((weights.parent / "config.json").read_text())
    kind = gguf.GGMLQuantizationType[DTYPES[dtype]]
    parts = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up",
             "mlp.c_proj": "ffn_down"}
    whole = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm"}
    w = gguf.GGUFWriter(path, "gpt2")
    w.add_block_count(config["n_layer"])
    w.add_context_length(config["n_ctx"])
    w.add_embedding_length(config["n_embd"])
    w.add_feed_forward_length(4 * config["n_embd"])
    w.add_head_count(config["n_head"])
    w.add_layer_norm_eps(config["layer_norm_epsilon"])
    w.add_tokenizer_model("none")
    w.add_vocab_size(config["vocab_size"])
    for name, value in read_safetensors(weights):
        module, leaf = name.rsplit(".", 1)
        if module == "lm_head":
            continue  # the table's own weights
        if module.startswith("h."):
            _, layer, module = module.split(".", 2)
            name = f"blk.{layer}.{parts[module]}.{leaf}"
            if value.ndim == 2:
                value = value.T
        else:
            name = f"{whole[module]}.{leaf}"
        value = numpy.ascontiguousarray(value)
        if value.ndim == 2 and module != "wpe" and kind != gguf.GGMLQuantizationType.F32:
            w.add_tensor(name, gguf.quants.quantize(value, kind), raw_dtype=kind)
        else:
            w.add_tensor(name, value)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--anneal", default=ROOT / "build/anneal", type=pathlib.Path)
    p.add_argument("--llama", type=pathlib.Path, help="llama.cpp's llama-bench")
    p.add_argument("--dtypes", default="bfloat16,float32,q8_0")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--tokens", type=int, default=48)
    p.add_argument("--rounds", type=int, default=3)
    o = p.parse_args()
    dtypes = o.dtypes.split(",")
    if unknown := [d for d in dtypes if d not in DTYPES]:
        p.error(f"--dtypes: {unknown[0]} is none of {', '.join(DTYPES)}")
    if o.llama and not os.access(o.llama, os.X_OK):
        p.error(f"--llama: {o.llama} is no program")
    if o.tokens < 2 or o.rounds < 1:
        p.error("--tokens: at least 2; --rounds: at least 1")
    if not o.llama:
        print("skipped: llama.cpp's side; --llama PATH names its llama-bench")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run, weights = make_weights(o.anneal, folder)
        for dtype in dtypes if o.llama else ():
            write_gguf(weights, folder / f"{dtype}.gguf", dtype)
        print(f"# GPT-2 124M, one text, {o.tokens} tokens, {o.rounds} rounds in turn; ms a token; ratio: llama.cpp's time by ours, above 1 is faster")
        print(f"{'dtype':<9} {'threads':>7} {'ours':>7} {'llama.cpp':>9} {'ratio':>6}  of the bandwidth of reading")
        for dtype in dtypes:
            for threads in o.threads.split(","):
                ours, theirs, share = [], [], []
                for _ in range(o.rounds):
                    if dtype in ("bfloat16", "float32"):
                        r = json.loads(checked([o.anneal, "bench", "sample", run, f"tokens={o.tokens}", "prompt=1", f"dtype={dtype}",
                                                f"threads={threads}", "device=cpu", "--json"]))
                        ours.append(1e3 / r["tokens_per_s"])
                        share.append(r["gbytes"] / r["read_gbytes"])
                    if o.llama:
                        r = json.loads(checked([o.llama, "-m", folder / f"{dtype}.gguf", "-p", 0, "-n", o.tokens, "-t", threads, "-r", 1,
                                                "-ngl", 0, "-o", "json"]))
                        theirs.append(1e3 / r[0]["avg_ts"])
                a, b = (f"{statistics.median(x):.2f}" if x else "–" for x in (ours, theirs))
                ratio = f"{statistics.median(y / x for x, y in zip(ours, theirs)):.2f}" if ours and theirs else "–"
                print(f"{dtype:<9} {threads:>7} {a:>7} {b:>9} {ratio:>6}  {f'{statistics.median(share):.0%}' if share else '–'}", flush=True)


if __name__ == "__main__":
    main()
