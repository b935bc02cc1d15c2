"""What a model of the library holds, with PyTorch or without: the opened file, a context of its own, and both bound."""
import ctypes
import threading

from ._library import WHY_BYTES, Memory, Options, library


class Handle:
    """Who calls a function of the library with one of these holds `lock`. A subclass opens `file`, calls `check` and
    `bind`, and adds itself to `alive`."""

    file = context = model = None  # a constructor that failed has nothing to close

    def __init__(self):
        self.lib, self.why, self.lock = library(), ctypes.create_string_buffer(WHY_BYTES), threading.RLock()

    def check(self, kind):
        """The file is open, and all that it needs is known."""
        if not self.file or self.lib.an_import_check(self.file, self.why) != 0:
            raise self.failure(kind)

    def bind(self, how, kind, threads=0, seed=1, device="cpu"):
        """how: an_import_bind or an_import_declare."""
        options = Options(device=device.encode(), seed=seed, threads=threads, recompute=b"off")
        self.context = self.lib.an_open_sized(ctypes.byref(options), ctypes.sizeof(options))
        sentence = self.lib.an_error(self.context) if self.context else b"no memory for a context"
        if sentence:
            self.close()
            raise RuntimeError(sentence.decode())
        self.model = how(self.file, self.context, self.why)
        if not self.model:
            raise self.failure(kind)

    def sentence(self):
        return self.why.value.decode(errors="replace")

    def failure(self, kind):
        """The exception that says `sentence`, of a handle that is of no use then."""
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
