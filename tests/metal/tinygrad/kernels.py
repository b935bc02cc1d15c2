"""Kernels that others wrote, on the stand-in: the GPT-2 kernels of a public port of llm.c to Metal, against numpy. The text is read from a
file and not part of this project: github.com/leok7v/llm.metal.rnd, gpt2.metal at bbf80e1 (MIT). It is handed to the stand-in as it is.

Environment: STANDIN, ANNEAL_STANDIN as in train.py. Argument: the file."""
import ctypes, os, sys

sys.argv, source = [sys.argv[0]], sys.argv[1]
exec(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "train.py")).read().split("# ---- end of PATCHES")[0])

import numpy
from tinygrad.device import BufferSpec, Device
from tinygrad.runtime.autogen import metal
from tinygrad.runtime.ops_metal import error_check, to_ns_str, wait_check

device = Device["METAL"]
text = open(source).read()
error = metal.NSError().retained()
options = metal.MTLCompileOptions.new()
library = device.sysdevice.newLibraryWithSource_options_error(to_ns_str(text), options, ctypes.byref(error)).retained()
error_check(error)
rng = numpy.random.default_rng(3)


def run(name, groups, threads, arguments, shared=0):
    """Arrays are bound in order (an output is any float32 array that the kernel writes); returns them as they are afterwards."""
    function = library.newFunctionWithName(to_ns_str(name)).retained()
    state = device.sysdevice.newComputePipelineStateWithFunction_error(function, ctypes.byref(error)).retained()
    error_check(error)
    buffers = [device.allocator._alloc(a.nbytes, BufferSpec()) for a in arguments]
    for b, a in zip(buffers, arguments): device.allocator._copyin(b, memoryview(numpy.ascontiguousarray(a)).cast("B"))
    commands = device.mtl_queue.commandBuffer().retained()
    encoder = commands.computeCommandEncoder().retained()
    encoder.setComputePipelineState(state)
    for i, b in enumerate(buffers): encoder.setBuffer_offset_atIndex(b.buf, b.offset, i)
    if shared: encoder.setThreadgroupMemoryLength_atIndex(shared, 0)
    encoder.dispatchThreadgroups_threadsPerThreadgroup(metal.MTLSize(groups, 1, 1), metal.MTLSize(threads, 1, 1))
    encoder.endEncoding()
    commands.commit()
    wait_check(commands)
    out = []
    for b, a in zip(buffers, arguments):
        back = numpy.empty_like(a)
        device.allocator._copyout(memoryview(back).cast("B"), b)
        out.append(back)
    return out


checked = 0


def agree(name, got, want, tolerance=2e-5):
    global checked
    far = float(numpy.max(numpy.abs(got - want)))
    if not far <= tolerance: sys.exit(f"{name}: {far} from numpy's")
    checked += 1
    print(f"{name}: within {far:.1e} of numpy")


f32, u32 = numpy.float32, numpy.uint32
u = lambda x: numpy.array([x], dtype=u32)
B, T, C, H, V = 2, 12, 64, 4, 37
x = rng.standard_normal((B * T, C)).astype(f32)
zeros = lambda *s: numpy.zeros(s, f32)
wte, wpe = rng.standard_normal((V, C)).astype(f32), rng.standard_normal((T, C)).astype(f32)
ids = rng.integers(0, V, (B, T)).astype(numpy.int32)
agree("encoder_forward_kernel2", run("encoder_forward_kernel2", 24, 64, [zeros(B, T, C), ids, wte, wpe, u(B), u(T), u(C)])[0], wte[ids] + wpe)
mean = run("mean_kernel", B * T, 32, [zeros(B * T), x, u(B * T), u(C)], shared=128)[0]
agree("mean_kernel", mean, x.mean(1))
rstd = run("rstd_kernel", B * T, 64, [zeros(B * T), x, mean, u(B * T), u(C)], shared=256)[0]
agree("rstd_kernel", rstd, 1 / numpy.sqrt(x.var(1) + 1e-5))
gain, bias = rng.standard_normal(C).astype(f32), rng.standard_normal(C).astype(f32)
agree("normalization_kernel", run("normalization_kernel", B * T, C, [zeros(B * T, C), x, mean, rstd, gain, bias, u(B), u(T), u(C)])[0],
      (x - mean[:, None]) * rstd[:, None] * gain + bias)
agree("add_bias_kernel", run("add_bias_kernel", B * T, C, [x, bias, u(C)])[0], x + bias)
qkv = rng.standard_normal((B, T, 3, H, C // H)).astype(f32)
parts = run("permute_kernel", 48, 32, [zeros(B, H, T, C // H)] * 3 + [qkv, u(B), u(T), u(H), u(C // H)])
for i, part in enumerate(parts[:3]): agree(f"permute_kernel {'qkv'[i]}", part, qkv[:, :, i].transpose(0, 2, 1, 3), 0)
softmax = lambda a: numpy.exp(a - a.max(1, keepdims=True)) / numpy.exp(a - a.max(1, keepdims=True)).sum(1, keepdims=True)
agree("softmax_forward_kernel1", run("softmax_forward_kernel1", 1, B * T, [zeros(B * T, C), x, u(B * T), u(C)])[0], softmax(x))
agree("softmax_forward_kernel2", run("softmax_forward_kernel2", B * T, 64, [zeros(B * T, C), x, u(B * T), u(C)], shared=32)[0], softmax(x))
agree("residual_forward_kernel", run("residual_forward_kernel", B * T, C, [zeros(B * T, C), x, 2 * x])[0], 3 * x)
agree("gelu_kernel", run("gelu_kernel", B * T, C, [zeros(B * T, C), x])[0],
      0.5 * x * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (x + 0.044715 * x**3))))
p = softmax(x)
targets = rng.integers(0, C, (B, T)).astype(numpy.int32)
agree("crossentropy_forward_kernel1", run("crossentropy_forward_kernel1", B, T, [zeros(B * T), p, targets, u(T), u(C)])[0],
      -numpy.log(p[numpy.arange(B * T), targets.ravel()]))
heads = rng.standard_normal((B, H, T, C // H)).astype(f32)
scores = rng.standard_normal((B, H, T, T)).astype(f32)
masked = numpy.where(numpy.tril(numpy.ones((T, T), bool)), scores * f32(0.25), -numpy.inf)
got = run("scale_kernel", B * H * T, T, [scores, numpy.array([0.25], f32), u(B), u(H), u(T)])[0]
if not numpy.array_equal(got, masked): sys.exit("scale_kernel: not numpy's")
checked += 1
print("scale_kernel: equal to numpy")
class Api(ctypes.Structure):
    _fields_ = [(n, ctypes.c_void_p) for n in ("configure", "inject", "misuses", "misuse", "forgive", "counts", "leaks")]


standin = ctypes.CDLL(STANDIN)
standin.standin.restype = ctypes.POINTER(Api)
api = standin.standin().contents
misuses = ctypes.CFUNCTYPE(ctypes.c_int)(api.misuses)()
for i in range(misuses): print(ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_int)(api.misuse)(i).decode())
print(f"{checked} results of another project's kernels, all numpy's; {misuses} misuses")
sys.exit(1 if misuses else 0)
