"""python tests/import/torch_tests.py [NAME...]: the tests of torch_compile.py, torch_step.py and torch_arrays.py, or those of these names. Prints TAP.
PYTHONPATH has the package anneal; test_torch.sh runs it where PyTorch is."""
import sys
import traceback

import torch

import torch_arrays
import torch_compile
import torch_step

if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(1)
    tests = [f for f in torch_compile.TESTS + torch_step.TESTS + torch_arrays.TESTS if f.__name__ in sys.argv[1:] or len(sys.argv) == 1]
    print(f"1..{len(tests)}", flush=True)
    for i, f in enumerate(tests, 1):
        try:
            f()
            print(f"ok {i} - {f.__name__}", flush=True)
        except Exception:
            print(f"not ok {i} - {f.__name__}\n# " + traceback.format_exc().replace("\n", "\n# ")[-1500:], flush=True)
