"""tinygrad's Metal device on the stand-in: a small classifier with attention is trained on METAL and on CPU from the same weights,
and the losses and the final weights must agree. tinygrad itself is unchanged on disk; what this file patches is listed in PATCHES.

Environment: STANDIN, the path of libmetal_standin.so; ANNEAL_STANDIN, its settings.
Arguments: jit (replays steps through an indirect command buffer, as tinygrad does on a Mac) or nothing."""
import ctypes, ctypes.util, os, platform, sys

STANDIN = os.environ["STANDIN"]

# ---- PATCHES: all that tinygrad 0.14.0 needs to take the stand-in for a Mac. None is about Metal's behaviour.
# 1. runtime/support/objc.py asks ctypes for a library "objc": the stand-in has its functions.
find_library = ctypes.util.find_library
ctypes.util.find_library = lambda name: STANDIN if name == "objc" else find_library(name)


# 2. The same file takes dispatch_data_create from /usr/lib/libSystem.dylib.
class CDLL(ctypes.CDLL):
    def __init__(self, name, *args, **kwargs):
        super().__init__(STANDIN if name == "/usr/lib/libSystem.dylib" else name, *args, **kwargs)


ctypes.CDLL = CDLL
# 3. runtime/ops_metal.py chooses the language version by platform.mac_ver, which is empty on Linux.
platform.mac_ver = lambda: ("15.0", ("", "", ""), "arm64")
# 4. Metal, CoreGraphics and MTLCompiler are found through tinygrad's own variables.
for name in ("METAL", "COREGRAPHICS", "MTLCOMPILER"):
    os.environ[name + "_PATH"] = STANDIN
# ---- end of PATCHES

import numpy
from tinygrad import Context, Tensor, TinyJit
from tinygrad.nn.optim import Adam

T, C, CLASSES, BATCH, STEPS = 6, 16, 5, 8, 12


def parameters(device):
    rng = numpy.random.default_rng(1)
    shapes = {"embed": (10, C), "qkv": (C, 3 * C), "out": (C, C), "up": (C, 4 * C), "down": (4 * C, C), "head": (C, CLASSES)}
    return {k: Tensor((rng.standard_normal(s) * 0.3).astype(numpy.float32), device=device).is_param_() for k, s in shapes.items()}


def loss_of(p, x, y):
    h = p["embed"][x]                                          # [B, T, C]
    n = h.layernorm()
    q, k, v = (n @ p["qkv"]).chunk(3, dim=-1)
    a = (q @ k.transpose(1, 2) / C ** 0.5).softmax(-1) @ v     # [B, T, C]
    h = h + a @ p["out"]
    h = h + (h.layernorm() @ p["up"]).gelu() @ p["down"]
    return (h.mean(1) @ p["head"]).sparse_categorical_crossentropy(y)


def train(device, jit):
    rng = numpy.random.default_rng(2)
    p = parameters(device)
    optimizer = Adam(list(p.values()), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(p, x, y).backward()
        optimizer.step()
        return loss.realize()

    run = TinyJit(step) if jit else step
    losses = []
    with Context(TRAINING=1):
        for _ in range(STEPS):
            x = rng.integers(0, 10, (BATCH, T)).astype(numpy.int32)
            y = (x.sum(1) % CLASSES).astype(numpy.int32)
            losses.append(run(Tensor(x, device=device).realize(), Tensor(y, device=device).realize()).item())
    return numpy.array(losses), {k: v.numpy() for k, v in p.items()}


def main():
    jit = "jit" in sys.argv[1:]
    want, cpu = train("CPU", jit)
    got, metal = train("METAL", jit)
    worst = max(float(numpy.abs(cpu[k] - metal[k]).max()) for k in cpu)
    print(f"loss {want[0]:.6f} to {want[-1]:.6f} on CPU, {got[0]:.6f} to {got[-1]:.6f} on METAL; "
          f"largest difference of a loss {abs(want - got).max():.2e}, of a weight {worst:.2e}")
    library = ctypes.CDLL(STANDIN)
    counts = (ctypes.c_uint64 * 25)()

    class Api(ctypes.Structure):
        _fields_ = [(n, ctypes.c_void_p) for n in ("configure", "inject", "misuses", "misuse", "forgive", "counts", "leaks")]

    library.standin.restype = ctypes.POINTER(Api)
    api = library.standin().contents
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(api.counts)(counts)
    misuses = ctypes.CFUNCTYPE(ctypes.c_int)(api.misuses)()
    print(f"{counts[0]} launches in {counts[2]} command buffers, {counts[7] + counts[8]} waits and polls, {misuses} misuses")
    for i in range(misuses):
        print(ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_int)(api.misuse)(i).decode())
    good = numpy.isfinite(got).all() and want[-1] < want[0] and abs(want - got).max() < 1e-4 and worst < 2e-3 and not misuses
    sys.exit(0 if good else 1)


if __name__ == "__main__":  # tinygrad compiles in processes that import this file again
    main()
