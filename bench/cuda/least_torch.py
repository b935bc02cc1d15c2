"""least(run): the least of seven times five calls of run, in microseconds a call, by the GPU's own events."""
import torch


def least(run):
    best = float("inf")
    for _ in range(7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(5):
            run()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) / 5)
    return best * 1e3
