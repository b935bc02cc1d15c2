#!/usr/bin/env python3
"""hostile_files.py PROGRAM [--mutations N] [--seed S] [--kinds A,B] [--keep DIR] [--time S] [--memory MIB]: damages files that a user
hands over and for which there is no libFuzzer target, N times each, and runs the commands that read them.

A fault is: a signal, a word of a sanitizer, no end within the time, more memory than the bound, an exit code other than 0, 1 and 2,
a refusal that is not one line beginning with "anneal: ", or a raw control character in what is said. Each mutation is drawn from
seed, kind and number alone; --keep has the file of each fault. Exit code 1: there was one. --plant makes the list of faults show
that it can see one of each sort.
"""
import argparse, hashlib, json, os, random, re, resource, shutil, signal, subprocess, sys, tempfile, time, zipfile

TINY = "block_size=16 n_layer=2 n_head=2 n_embd=16 batch_size=4 eval_iters=2 warmup_iters=2 lr_decay_iters=40 dropout=0.1 threads=1".split()
NUMBERS = ["1e999", "-1e999", "NaN", "-1", "0", "-0", "2147483647", "2147483648", "4294967296", "9007199254740993", "9223372036854775807",
           "9223372036854775808", "18446744073709551616", "1e-320", "1" + "0" * 400, "0." + "0" * 400 + "1", "1e9", "65537"]
JUNK = [b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x00", b"\x1b[2J\x1b]0;title\x07", b"\\u0000", b"\\ud800", b"\xef\xbb\xbf",
        b"\r", b"\n", b"\t", b"'", b'"', b"{", b"]", b"$(touch planted)", b"../../../etc/passwd", b"%n%s%s"]
VALUES = [None, True, [], {}, "", "x" * 100000, -1, 0, 1e308, [[[[]]]], {"a": {"b": []}}, "\x1b[2J", "../../x", [0] * 5000, "nan"]


sys.setrecursionlimit(20000)
# ---- mutations: (random, bytes) -> bytes

def bits(r, b):
    b = bytearray(b)
    for _ in range(r.randint(1, 8)):
        if b: b[r.randrange(len(b))] ^= 1 << r.randrange(8)
    return bytes(b)


def truncate(r, b):
    return b[:r.randrange(len(b) + 1)]


def delete(r, b):
    at = r.randrange(len(b) + 1)
    return b[:at] + b[at + r.randint(1, 64):]


def repeat(r, b):
    at, n = r.randrange(len(b) + 1), r.randint(1, 200)
    return b[:at] + b[at:at + n] * r.choice([2, 10, 1000, 20000]) + b[at + n:]


def number(r, b):
    found = list(re.finditer(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?", b))
    if not found: return bits(r, b)
    for m in sorted(r.sample(found, min(len(found), r.randint(1, 3))), key=lambda m: -m.start()):
        b = b[:m.start()] + r.choice(NUMBERS).encode() + b[m.end():]
    return b


def nest(r, b):
    n, is_json = r.choice([30, 3000, 200000]), b[:1] in (b"{", b"[")
    left, right = r.choice([(b"[", b"]"), (b'{"a":', b"}"), (b"[[", b"")] if is_json else [(b"(", b")"), (b"(", b""), (b"-", b""), (b"[", b"]"), (b"- ", b"")])
    places = [m.end() for m in re.finditer(rb"[:=]\s*", b)] or [r.randrange(len(b) + 1)] # where a value begins
    at = r.choice(places)
    return b[:at] + left * n + b"1" + right * n + b[at:]


def junk(r, b):
    for _ in range(r.randint(1, 3)):
        at = r.randrange(len(b) + 1)
        b = b[:at] + r.choice(JUNK) + b[at:]
    return b


def move(r, b):
    at, n, to = r.randrange(len(b) + 1), r.randint(1, 300), r.randrange(len(b) + 1)
    return b[:to] + b[at:at + n] + b[to:]


def nodes(x, out):
    for key in (x if isinstance(x, dict) else range(len(x)) if isinstance(x, list) else ()):
        out.append((x, key))
        nodes(x[key], out)


def value(r, b):
    """JSON: another value, a key that is gone, doubled or renamed; the rest stays right."""
    lines = b.split(b"\n")
    at = r.randrange(len(lines))
    try:
        tree = [json.loads(lines[at])]
    except (ValueError, RecursionError, OverflowError):
        try:
            tree, lines, at = [json.loads(b)], [b], 0
        except (ValueError, RecursionError, OverflowError):
            return number(r, b)
    found = []
    nodes(tree, found)
    holder, key = r.choice(found)
    how = r.randrange(4)
    if how == 0 and isinstance(holder, dict): del holder[key]
    elif how == 1 and isinstance(holder, dict): holder[key + "x"] = holder.pop(key)
    elif how == 2 and isinstance(holder, list) and len(holder) > 0 and holder is not tree: holder.extend(holder * r.choice([1, 50]))
    else: holder[key] = r.choice(VALUES)
    lines[at] = json.dumps(tree[0]).encode(errors="surrogatepass")
    return b"\n".join(lines)


MUTATIONS = [bits, truncate, delete, repeat, number, number, nest, nest, nest, junk, move, value, value, value, value]


def mutated(seed, kind, i, data):
    r = random.Random(f"{seed} {kind} {i}")
    if i < len(MUTATIONS): return MUTATIONS[i](r, data) # each once; then several, at random
    for _ in range(r.choice([1, 1, 1, 2, 3])): data = r.choice(MUTATIONS)(r, data)
    return data


# ---- running

class World:
    def __init__(self, options):
        self.program, self.options = os.path.abspath(options.program), options
        self.sanitized = b"__asan_init" in open(self.program, "rb").read()
        self.folder = tempfile.mkdtemp(prefix="anneal-hostile.")
        self.environment = dict(os.environ, ANNEAL_CUDA_PATH="/nonexistent", ANNEAL_METAL_PATH="/nonexistent", ASAN_OPTIONS="detect_leaks=1",
                                HOME=self.folder, XDG_STATE_HOME=self.folder + "/state", UBSAN_OPTIONS="halt_on_error=1",
                                ANNEAL_CACHE=self.folder + "/cache")
        self.commands, self.faults = 0, []

    def path(self, name):
        return os.path.join(self.folder, name)

    def limits(self):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if not self.sanitized: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))

    def run(self, arguments):
        """(exit code or -signal, stderr, MiB, seconds); the code is None where the time is over."""
        began, code, told = time.time(), None, self.path("stderr")
        with open(told, "wb") as err, open(self.path("stdout"), "wb") as out:
            p = subprocess.Popen([self.program] + arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=self.folder,
                                 env=self.environment, preexec_fn=self.limits, start_new_session=True)
            while time.time() - began < self.options.time:
                pid, status, usage = os.wait4(p.pid, os.WNOHANG)
                if pid: break
                time.sleep(0.004)
            else:
                os.killpg(p.pid, signal.SIGKILL)
                _, status, usage = os.wait4(p.pid, 0)
                status = None
            if status is not None: code = os.waitstatus_to_exitcode(status)
            p.returncode = 0
        with open(told, "rb") as f: said = f.read()
        mib = usage.ru_maxrss / (1024 if sys.platform.startswith("linux") else 1 << 20)
        return code, said, mib, time.time() - began

    def must(self, *arguments):
        code, said, _, _ = self.run(list(arguments))
        if code != 0: sys.exit(f"{' '.join(arguments)}: {code}: {said.decode(errors='replace')}")
        with open(self.path("stdout"), "rb") as f: return f.read()


def verdict(world, code, said, mib):
    if code is None: return f"no end within {world.options.time} s"
    if re.search(rb"(Address|Leak|Memory|Thread|UndefinedBehavior)Sanitizer|runtime error:", said): return "a sanitizer's word"
    if code < 0: return f"signal {-code}"
    if code not in (0, 1, 2): return f"exit code {code}"
    if mib > world.options.memory: return f"{mib:.0f} MiB of memory"
    if re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", said): return "a raw control character"
    lines = said.split(b"\n")[:-1]
    if code and (not lines or not lines[-1].startswith(b"anneal: ") or len([l for l in lines if l.startswith(b"anneal: ")]) != 1
                 or not said.endswith(b"\n")): return "no sentence"
    return None


def check(world, kind, i, path, arguments):
    code, said, mib, seconds = world.run(arguments)
    world.commands += 1
    world.most = max(getattr(world, "most", 0), mib)
    world.longest = max(getattr(world, "longest", 0), seconds)
    world.codes = getattr(world, "codes", {})
    world.codes[code] = world.codes.get(code, 0) + 1
    why = verdict(world, code, said, mib)
    if not why: return
    world.faults.append(why)
    print(f"# {kind} {i}: {why}: anneal {' '.join(arguments)}: {said[-300:].decode(errors='replace')!r}", flush=True)
    if world.options.keep:
        os.makedirs(world.options.keep, exist_ok=True)
        shutil.copy(path, os.path.join(world.options.keep, f"{kind.replace('/', '-')}.{i}"))


# ---- kinds: what is read, and how. Each gives the sound bytes, where the damaged ones go, and the commands.

def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f: f.write(data)


def plain(world, name, sound, *commands):
    def place(data):
        write(world.path(name), data)
        return world.path(name)
    return sound, place, commands


def repack(world, source, member):
    """A pack whose `member` is damaged, with the checksums that its list must have, so that the damage is read."""
    with zipfile.ZipFile(source) as z: members = [(n, z.read(n)) for n in z.namelist()]

    def place(data):
        path = world.path("hostile.anneal")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
            for name, sound in members:
                if name == member: sound = data
                elif name == "pack.json":
                    manifest = json.loads(sound)
                    for f in manifest["files"]:
                        if f["name"] == member: f["bytes"], f["sha256"] = len(data), hashlib.sha256(data).hexdigest()
                    sound = json.dumps(manifest, separators=(",", ":")).encode()
                z.writestr(zipfile.ZipInfo(name), sound)
        for made in ("there", ): shutil.rmtree(world.path(made), ignore_errors=True)
        return path
    return dict(members)[member], place, [["handoff", "hostile.anneal", "out=there", "smoke=0"]]


def tokenizer_json():
    shown = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174] # GPT-2's letters of bytes; the others are from 256 on
    letters = [chr(b) for b in shown] + [chr(256 + i) for i in range(256 - len(shown))]
    merges = [("t", "h"), ("th", "e"), ("a", "n"), ("an", "d"), ("\u0120", "a")]
    vocabulary = {p: i for i, p in enumerate(letters + [a + b for a, b in merges])}
    return json.dumps({"version": "1.0", "added_tokens": [{"id": len(vocabulary), "content": "<|endoftext|>", "special": True}], "normalizer": None,
                       "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                       "decoder": {"type": "ByteLevel"},
                       "model": {"type": "BPE", "vocab": dict(vocabulary, **{"<|endoftext|>": len(vocabulary)}),
                                 "merges": [f"{a} {b}" for a, b in merges]}}).encode()


def arc(world):
    grid = lambda k: [[(r * k + c * 3 + k) % 9 + 1 for c in range(5)] for r in range(5)]
    pair = lambda k: {"input": grid(k), "output": [[0]]}
    write(world.path("x_old_challenges.json"), json.dumps({"a1": {"train": [pair(1), pair(2)], "test": [{"input": grid(3)}]}}).encode())
    write(world.path("x_old_solutions.json"), b'{"a1":[[[0]]]}')
    world.must("prepare", "arc", "from=x", "subsets=old", "test_set_name=old", "num_aug=2", "out=set")
    world.must("train", "arc1", "data=set", "device=cpu", "dtype=float32", "epochs=0", "max_iters=2", "warmup_iters=1", "batch_size=3", "threads=1",
               "arch.hidden_size=16", "arch.num_heads=2", "arch.L_layers=1", "arch.H_cycles=1", "arch.L_cycles=1", "arch.halt_max_steps=1",
               "arch.pos_encodings=learned", "arch.puzzle_emb_len=1", "eval_interval=100", "eval_iters=1", "out=arc", "--quiet")
    return [["eval", "arc", "device=cpu", "threads=1"]]


def kinds(world, wanted):
    def is_wanted(*names): return any(n in wanted or not wanted for n in names)

    def read(name):
        with open(world.path(name), "rb") as f: return f.read()
    world.must("train", "demo", *TINY, "max_iters=3", "log_interval=1", "out=run", "--quiet")
    write(world.path("text.txt"), b"the band and the hand\n" * 200)
    out = {}
    if is_wanted("sweep.json"):
        world.must("sweep", "demo", *TINY[:4], "threads=1", "steps=4", "from=4", "minutes=1", "budget=2MiB", "out=sweep")
        out["sweep.json"] = plain(world, "sweep/sweep.json", read("sweep/sweep.json"), ["report", "run", "sweep=sweep", "out=page.html"])
    if is_wanted("profile.json"):
        sound = world.must("profile", "demo", *TINY, "--steps", "1", "--json")
        write(world.path("sound.json"), sound)
        out["profile.json"] = plain(world, "profile.json", sound, ["profile", "diff", "sound.json", "profile.json"],
                                    ["diagnose", "run", "profile=profile.json"], ["report", "run", "profile=profile.json", "out=page.html"])
    if is_wanted("config.json"):
        here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/torch/hf")
        shutil.copy(os.path.join(here, "model.safetensors"), os.path.join(os.makedirs(world.path("hf")) or world.path("hf"), "model.safetensors"))
        with open(os.path.join(here, "config.json"), "rb") as f: sound = f.read()
        out["config.json"] = plain(world, "hf/config.json", sound, ["inspect", "hf/model.safetensors"],
                                   ["export", "hf/model.safetensors", "out=exported.safetensors"],
                                   ["plan", "macbook", "block_size=12", "init_from=hf/model.safetensors", "data=33"])
        write(world.path("33.txt"), (b"".join(bytes([65 + i]) for i in range(33)) * 40))
        world.must("prepare", "33.txt", "out=33")
    if is_wanted("tokenizer.json"):
        out["tokenizer.json"] = plain(world, "tokenizer.json", tokenizer_json(), ["prepare", "text.txt", "tokenizer=tokenizer.json", "out=tokens"])
    if is_wanted("identifiers.json", "test_puzzles.json"):
        commands = arc(world)
        for name in ("identifiers.json", "test_puzzles.json"):
            if is_wanted(name): out[name] = plain(world, "set/" + name, read("set/" + name), *commands)
    world.must("pack", "run", "out=sound.anneal")
    for member in ("pack.json", "config.yaml", "metrics.jsonl", "logbook.jsonl"):
        if is_wanted("pack/" + member): out["pack/" + member] = repack(world, world.path("sound.anneal"), member)
    if is_wanted("settings.yaml"):
        out["settings.yaml"] = plain(world, "settings.yaml", read("run/config.yaml"), ["plan", "settings.yaml"])
    if is_wanted("settings.py"):
        sound = b"# of nanoGPT\nout_dir = 'out'\nlearning_rate = 1e-3 # high\nmax_iters = 5000 // 2\nn_layer = 2\nn_head = 2\nn_embd = 8 * 2\n" \
                b"block_size = 16\nbatch_size = 4\nbias = False\ndtype = 'float32'\nmin_lr = learning_rate / 10\n"
        out["settings.py"] = plain(world, "settings.py", sound, ["plan", "settings.py", "data=text.txt"])
    return out


def plant(world):
    """Programs with one fault each: the verdict must see them."""
    sort = {"signal 11": "kill -SEGV $$", "a sanitizer's word": "echo 'x.c:1:2: runtime error: overflow' >&2; exit 1", "no sentence": "exit 2",
            "no end": "sleep 60", "a raw control character": "printf 'anneal: \\033[2J\\n' >&2; exit 1", "exit code 3": "echo 'anneal: x' >&2; exit 3",
            "MiB of memory": "exec python3 -c 'b\"x\" * (300 << 20)'"}
    world.program, world.options.time, world.options.memory = "/bin/sh", 2, 200
    for want, script in sort.items():
        code, said, mib, _ = world.run(["-c", script])
        why = verdict(world, code, said, mib)
        if not why or want not in why: sys.exit(f"{script}: {why} in place of {want}")
    code, said, mib, _ = world.run(["-c", "echo 'anneal: no such file' >&2; exit 2"])
    if verdict(world, code, said, mib): sys.exit("a sound refusal is taken for a fault")
    print(f"{len(sort)} planted faults are seen")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("--mutations", type=int, default=20, help="of each file (20)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--first", type=int, default=0, help="number of the first mutation (0)")
    p.add_argument("--kinds", default="", help="files, with commas between them; all")
    p.add_argument("--keep", default="", help="folder for files that made a fault")
    p.add_argument("--time", type=float, default=30, help="seconds that a command may take (30)")
    p.add_argument("--memory", type=float, default=1024, help="MiB that a command may take (1024)")
    p.add_argument("--plant", action="store_true", help="only: faults that are planted are seen")
    world = World(p.parse_args())
    try:
        if world.options.plant: return plant(world)
        table = kinds(world, [k for k in world.options.kinds.split(",") if k])
        for kind, (sound, place, commands) in table.items():
            before = world.commands
            for c in commands: # as it is, it is taken
                place(sound)
                world.must(*c)
            for i in range(world.options.first, world.options.first + world.options.mutations):
                data = mutated(world.options.seed, kind, i, sound)
                for c in commands: check(world, kind, i, place(data), c)
            print(f"# {kind}: {world.commands - before} commands", flush=True)
            place(sound)
    finally:
        shutil.rmtree(world.folder, ignore_errors=True)
    codes = ", ".join(f"{n} with exit code {c}" for c, n in sorted(world.codes.items(), key=str))
    print(f"{world.commands} commands on {len(table)} kinds of files ({codes}), {world.longest:.1f} s and {world.most:.0f} MiB at most, "
          f"{len(world.faults)} faults")
    return 1 if world.faults else 0


sys.exit(main())
