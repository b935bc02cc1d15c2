#!/usr/bin/env python3
"""beside.py: a step of training where cores are fewer than threads, or other programs use them.

Each row runs `anneal bench PRESET` in such a place, in turn with a run alone, and compares its rate with the fair share: what as many
busy threads as ours leave us of the cores, each as much as any other. Linux.  python3 bench/cpu/beside.py --help
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUSY = "while True: pass"


def bench(a, threads, cores):
    """Milliseconds a step with so many threads (None: as many as it takes by itself), on these cores alone."""
    command = [a.anneal.resolve(), "bench", a.preset, "--dtype", "float32", "--steps", str(a.steps), "--json"]
    command += ["--threads", str(threads or 0)]  # 0: every core; without it `bench` takes two
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])["ms"]


class Busy:
    """Programs that use a core each, as long as the block lasts: any core, or the core named."""

    def __init__(self, cores):
        self.cores = cores

    def __enter__(self):
        self.programs = [subprocess.Popen([sys.executable, "-c", BUSY], preexec_fn=lambda c=c: os.sched_setaffinity(0, c))
                         for c in self.cores]
        time.sleep(0.3)

    def __exit__(self, *_):
        for p in self.programs:
            p.kill()
            p.wait()


class Quota:
    """A cgroup (v1) of the cpu controller with so many cores, which this process and what it starts is in; None where that is refused."""

    def __init__(self, cores):
        self.home = pathlib.Path("/sys/fs/cgroup/cpu")
        self.cores, self.folder = cores, self.home / f"anneal-beside-{os.getpid()}"

    def __enter__(self):
        try:
            self.folder.mkdir()
            (self.folder / "cpu.cfs_period_us").write_text("100000")
            (self.folder / "cpu.cfs_quota_us").write_text(str(int(1e5 * self.cores)))
            (self.folder / "cgroup.procs").write_text(str(os.getpid()))
            return self
        except OSError:
            return None

    def __exit__(self, *_):
        try:
            (self.home / "cgroup.procs").write_text(str(os.getpid()))
            self.folder.rmdir()
        except OSError:
            pass


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--anneal", type=pathlib.Path, default=ROOT / "build/anneal")
    ap.add_argument("--preset", default="macbook")
    ap.add_argument("--steps", type=int, default=30)
    ap.add_argument("--rounds", type=int, default=3)
    a = ap.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    n, every = len(cores), set(cores)

    def where(threads, on=every, beside=()):
        with Busy(beside):
            return bench(a, threads, on)

    def quota(k):
        with Quota(k) as q:
            return None if q is None else bench(a, None, every)

    # name, how it is run, fair share of the machine
    rows = [(f"{2 * n} threads on {n} cores", lambda: where(2 * n), 1),
            (f"{n + 1} threads on {n} cores", lambda: where(n + 1), 1),
            ("one core by taskset", lambda: where(None, {cores[0]}), 1 / n),
            (f"one core by taskset, {n} threads", lambda: where(n, {cores[0]}), 1 / n),
            (f"{n / 2:g} cores by a cgroup's quota", lambda: quota(n / 2), 1 / 2),
            ("a busy program beside, on any core", lambda: where(None, every, [every]), n / (n + 1)),
            ("a busy program beside, on the last core", lambda: where(None, every, [{cores[-1]}]), n / (n + 1)),
            ("a busy program on each core", lambda: where(None, every, [{c} for c in cores]), 1 / 2)]
    print(f"# {a.preset}, float32, {n} cores, medians of {a.rounds} rounds; share: of the rate alone; of fair: that over the fair share")
    print(f"{'':<42}{'alone, ms':>10}{'ms':>10}{'share':>8}{'fair':>7}{'of fair':>9}", flush=True)
    for name, run, fair in rows:
        pairs = [(where(None), run()) for _ in range(a.rounds)]
        if any(ms is None for _, ms in pairs):
            print(f"{name:<42}skipped: no cgroup of the cpu controller (v1) may be made here", flush=True)
            continue
        alone, ms = (statistics.median(p[i] for p in pairs) for i in (0, 1))
        share = statistics.median(x / y for x, y in pairs)
        print(f"{name:<42}{alone:>10.1f}{ms:>10.1f}{share:>8.2f}{fair:>7.2f}{share / fair:>9.2f}", flush=True)


if __name__ == "__main__":
    main()
