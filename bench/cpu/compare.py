#!/usr/bin/env python3
"""compare.py: a training step of ours against a peer's, on the CPU, interleaved.

A shared machine drifts by ten percent within minutes, so a figure alone says little: every round runs ours and then the peer, and
what is reported are medians over the rounds, the median of the rounds' own ratios, and the share of the FMA peak that
`anneal bench` measures in the same process.  python3 bench/cpu/compare.py --help; bench/cpu/README.md has the method.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# A shell that exports these makes OpenBLAS choose kernels for another processor, which halves a peer's speed.
HOSTILE = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
PEER_DTYPE = {"f32": "float32", "bf16": "bfloat16"}


def run_json(command, cwd):
    """The last line of stdout that is a JSON object."""
    env = {k: v for k, v in os.environ.items() if k not in HOSTILE}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        tail = (done.stderr or done.stdout).strip().splitlines()[-3:]
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}: " + " / ".join(tail))
    return json.loads(lines[-1])


def rounds(a, preset, dtype):
    ours, peer = [], []
    steps = ["--steps", str(a.steps)] if a.steps else []
    common = ["--threads", str(a.threads), *steps]
    for _ in range(a.rounds):
        ours.append(run_json([a.anneal.resolve(), "bench", preset, *a.ours.split(), "--dtype", dtype, *common, "--json"], ROOT))
        if a.peer_script:
            peer.append(run_json([sys.executable, a.peer_script.name, preset, "--dtype", PEER_DTYPE[dtype], *common,
                                  "--compile", a.compile], a.peer_script.parent))
    return ours, peer


def median(runs, key):
    values = [r[key] for r in runs if r.get(key) is not None]
    return statistics.median(values) if values else None


def cell(value, form):
    return "-" if value is None else format(value, form)


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    env = os.environ.get
    ap.add_argument("--anneal", type=pathlib.Path, default=ROOT / "build/anneal")
    ap.add_argument("--presets", default=env("PRESETS", "macbook,char,gpt2s"))
    ap.add_argument("--dtypes", default=env("DTYPES", "f32,bf16"))
    ap.add_argument("--rounds", type=int, default=int(env("ROUNDS", "3")))
    ap.add_argument("--steps", type=int, default=int(env("STEPS", "0")), help="0: each program's own number for the preset")
    ap.add_argument("--threads", type=int, default=int(env("THREADS", str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2))))
    ap.add_argument("--peers", type=pathlib.Path, default=pathlib.Path(env("PEERS", ROOT / "bench")))
    ap.add_argument("--peer", default=env("PEER", "gpt_torch.py"), help="a script in --peers; empty: ours alone")
    ap.add_argument("--clock", default=env("CLOCK", "ms"), choices=["ms", "cpu_ms"], help="what is compared: a step's time, or its processor time")
    ap.add_argument("--ours", default=env("OURS", ""), help="key=value settings of our side: sizes that the peer has built in")
    ap.add_argument("--compile", default=env("COMPILE", "0"), help="passed to the peer: 0 is eager")
    a = ap.parse_args()
    if not a.anneal.is_file():
        sys.exit(f"{a.anneal} is not there: run make first")
    a.peer_script = a.peers / a.peer if a.peer else None
    if a.peer_script and not a.peer_script.is_file():
        sys.exit(f"{a.peer_script} is not there: name a folder with PEERS=, or run ours alone with PEER=")

    head = ("preset", "dtype", "ours ms", "peer ms", "ratio", "ours min", "peer min", "GFLOP/s", "of peak", "first s", "MiB", "peer MiB")
    print(f"# {a.rounds} rounds, {a.threads} threads, {a.clock}, peer {a.peer or 'none'} --compile {a.compile}; ratio: peer / ours, above 1 is faster")
    print(("{:<14}{:<6}" + "{:>10}" * (len(head) - 2)).format(*head), flush=True)
    for preset in a.presets.split(","):
        for dtype in a.dtypes.split(","):
            ours, peer = rounds(a, preset, dtype)
            ratios = [p[a.clock] / o[a.clock] for o, p in zip(ours, peer)]
            row = [cell(median(ours, a.clock), ".2f"), cell(median(peer, a.clock), ".2f"),
                   cell(statistics.median(ratios) if ratios else None, ".2f"),
                   cell(median(ours, "min_ms"), ".2f"), cell(median(peer, "min_ms"), ".2f"), cell(median(ours, "gflops"), ".0f"),
                   cell(median(ours, "share_of_peak"), ".1%"), cell(median(ours, "first_s"), ".2f"),
                   cell(median(ours, "peak_rss_mib"), ".0f"), cell(median(peer, "peak_rss_mib"), ".0f")]
            print(f"{preset:<14}{dtype:<6}" + "".join(f"{c:>10}" for c in row), flush=True)


if __name__ == "__main__":
    main()
