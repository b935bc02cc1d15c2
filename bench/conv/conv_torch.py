"""conv_torch.py: the shapes of bench_conv by PyTorch and cuDNN on the same GPU: microseconds of forward, dx and dw.

    python3 bench/conv/conv_torch.py [images] [float32|bfloat16 ...]

float32 is what bench_conv -f runs, tf32. Each time is the median of 30 by events after 5; cuDNN chooses by measuring.
"""
import sys

import torch
import torch.nn.functional as F

SHAPES = [("3x3 64", 32, 64, 64, 3, 1, 1), ("3x3 128", 16, 128, 128, 3, 1, 1), ("3x3 256", 8, 256, 256, 3, 1, 1),
          ("3x3 64 wide", 56, 64, 64, 3, 1, 1), ("3x3 128 s2", 32, 64, 128, 3, 2, 1), ("1x1 256", 16, 64, 256, 1, 1, 1),
          ("1x1 s2", 32, 64, 128, 1, 2, 1), ("stem 3", 32, 3, 64, 3, 1, 1), ("stem 7x7 s2", 224, 3, 64, 7, 2, 1),
          ("grouped 32", 16, 128, 128, 3, 1, 4), ("depthwise", 32, 64, 64, 3, 1, 64)]


def microseconds(f, n=30):
    for _ in range(5):
        f()
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(n)]
    torch.cuda._sleep(20_000_000)  # so that the launches are queued: events then time the device alone
    for a, b in pairs:
        a.record()
        f()
        b.record()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) * 1e3 for a, b in pairs)[n // 2]


def main():
    images = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    for dtype in sys.argv[2:] or ["float32", "bfloat16"]:
        for layout in (torch.contiguous_format, torch.channels_last):
            here = dict(device="cuda", dtype=getattr(torch, dtype))
            for name, side, c, o, k, s, g in SHAPES:
                x = torch.randn(images, c, side, side, **here).contiguous(memory_format=layout)
                w = torch.randn(o, c // g, k, k, **here).contiguous(memory_format=layout)
                y = F.conv2d(x, w, None, s, k // 2, 1, g)
                dy = torch.randn_like(y).contiguous(memory_format=layout)

                def back(which):
                    torch.ops.aten.convolution_backward(dy, x, w, None, [s, s], [k // 2] * 2, [1, 1], False, [0, 0], g,
                                                        which)
                times = [microseconds(lambda: F.conv2d(x, w, None, s, k // 2, 1, g)),
                         microseconds(lambda: back([True, False, False])), microseconds(lambda: back([False, True, False]))]
                rates = [2 * y.numel() * k * k * (c // g) / t * 1e-6 for t in times]
                print(f"{dtype} {str(layout)[6:]:18} {name:12}" + "".join(f"{t:9.1f} us {r:6.1f} TFLOP/s" for t, r in zip(times, rates)))
            x = torch.randn(images, 64, 32, 32, **here).contiguous(memory_format=layout).requires_grad_()
            bn = torch.nn.BatchNorm2d(64, device="cuda")
            for name, f in (("batch norm", lambda: F.relu(bn(x))), ("max pool 2x2", lambda: F.max_pool2d(x, 2)),
                            ("max pool 3x3 s2", lambda: F.max_pool2d(x, 3, 2, 1)), ("avg pool 2x2", lambda: F.avg_pool2d(x, 2))):
                y = f()
                dy = torch.randn_like(y)
                forward = microseconds(f)
                print(f"{dtype} {str(layout)[6:]:18} {name:16} forward {forward:9.1f} us, backward "
                      f"{microseconds(lambda: torch.autograd.grad(y, x, dy, retain_graph=True)):9.1f} us")


main()
