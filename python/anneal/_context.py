"""What torch.py and _step.py share: dtypes, contexts on the CPU and what they hold."""
import ctypes
import threading

import torch

from ._graph import Unsupported
from ._library import BF16, BOOL, F16, F32, F64, I32, I64, U8, WHY_BYTES, Memory, Options, alive, empty_cache, library

DTYPES = {torch.float32: F32, torch.bfloat16: BF16, torch.float16: F16, torch.float64: F64, torch.int32: I32, torch.int64: I64,
          torch.uint8: U8, torch.bool: BOOL}
BACK = {v: k for k, v in DTYPES.items()}


class Model:
    """A description (importer's text) bound to a context of its own. Who calls holds `lock`."""

    file = context = model = None  # a constructor that failed has nothing to close

    def __init__(self, name, text):
        self.lib, self.why, self.lock = library(), ctypes.create_string_buffer(WHY_BYTES), threading.RLock()
        data = text.encode()
        self.file = self.lib.an_import_open_description(name.encode(), data, len(data), self.why)
        if not self.file or self.lib.an_import_check(self.file, self.why) != 0:
            raise self._failure(Unsupported)
        options = Options(device=b"cpu", seed=torch.initial_seed() & (2**64 - 1), threads=torch.get_num_threads(), recompute=b"off")
        self.context = self.lib.an_open_sized(ctypes.byref(options), ctypes.sizeof(options))
        sentence = self.lib.an_error(self.context) if self.context else b"no memory for a context"
        if sentence:
            self.close()
            raise RuntimeError(sentence.decode())
        self.model = self.lib.an_import_bind(self.file, self.context, self.why)
        if not self.model:
            raise self._failure(Unsupported)
        alive.add(self)

    def sentence(self):
        return self.why.value.decode(errors="replace")

    def _failure(self, kind):
        sentence = self.sentence()
        self.close()
        return kind(sentence)

    def close(self):
        if not self.file:
            return
        with self.lock:
            if self.model:
                self.lib.an_import_release(self.model)
            if self.context:
                self.lib.an_close(self.context)
            if self.file:
                self.lib.an_import_close(self.file)
            self.model = self.context = self.file = None

    __del__ = close

    def memory(self):
        """Bytes that the context holds now and held at most."""
        out = Memory()
        with self.lock:
            if self.context:
                self.lib.an_memory_read(self.context, ctypes.byref(out))
        return out


def memory():
    """Bytes that all contexts together hold."""
    return sum(m.memory().requested_bytes for m in list(alive))
