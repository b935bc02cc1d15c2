"""What torch.py and _step.py share: dtypes, contexts on the CPU and what they hold."""
import torch

from ._graph import Unsupported
from ._handle import Handle
from ._library import BF16, BOOL, F16, F32, F64, I32, I64, U8, alive, empty_cache

DTYPES = {torch.float32: F32, torch.bfloat16: BF16, torch.float16: F16, torch.float64: F64, torch.int32: I32, torch.int64: I64,
          torch.uint8: U8, torch.bool: BOOL}
BACK = {v: k for k, v in DTYPES.items()}
INPUTS = {**DTYPES, torch.int8: 100, torch.int16: 101}  # AN_IMPORT_I8, AN_IMPORT_I16: of arrays that are read alone


class Model(Handle):
    """A description (importer's text) bound to a context of its own."""

    def __init__(self, name, text):
        super().__init__()
        data = text.encode()
        self.file = self.lib.an_import_open_description(name.encode(), data, len(data), self.why)
        self.check(Unsupported)
        self.bind(self.lib.an_import_bind, Unsupported, torch.get_num_threads(), torch.initial_seed() & (2**64 - 1))
        alive.add(self)


def memory():
    """Bytes that all contexts together hold."""
    return sum(m.memory().requested_bytes for m in list(alive))
