"""libanneal by ctypes: the functions of anneal_import.h that torch.py calls. ctypes releases the GIL during a call."""
import ctypes as c
import ctypes.util
import gc
import glob
import os
import threading
import weakref

WHY_BYTES = 1024
F32, BF16, F16, F64, I32, I64, U8, BOOL = range(8)  # an_dtype
I8, I16 = 100, 101  # AN_IMPORT_I8, AN_IMPORT_I16: of inputs alone
INPUT, OUTPUT = 0, 1  # an_import_kind


class Options(c.Structure):
    """The first members of an_options; an_open_sized takes the others as zero."""
    _fields_ = [("device", c.c_char_p), ("seed", c.c_uint64), ("threads", c.c_int), ("isa", c.c_char_p), ("cc", c.c_char_p),
                ("cache_dir", c.c_char_p), ("budget_bytes", c.c_uint64), ("recompute", c.c_char_p)]


class Array(c.Structure):
    """an_import_array"""
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int32), ("rank", c.c_int32), ("dim", c.c_int64 * 8), ("step", c.c_int64 * 8)]


class Counts(c.Structure):
    """an_import_counts"""
    _fields_ = [(n, c.c_int64) for n in ("calls", "copies", "copied_bytes", "launches", "peak_bytes")]


class Place(c.Structure):
    """an_param_place"""
    _fields_ = [("block", c.c_int32), ("offset", c.c_int64), ("bytes", c.c_int64), ("block_bytes", c.c_int64)]


class Update(c.Structure):
    """an_import_update"""
    _fields_ = [("optimizer", c.c_char_p), *((n, c.c_double) for n in ("lr", "beta1", "beta2", "eps", "weight_decay", "momentum",
                                                                       "dampening", "clip")), ("nesterov", c.c_int32), ("t", c.c_int64)]


class Result(c.Structure):
    """an_import_result"""
    _fields_ = [("loss", c.c_double), ("norm", c.c_double)]


class Shape(c.Structure):
    """an_shape"""
    _fields_ = [("rank", c.c_int), ("dim", c.c_int64 * 8)]


class Persist(c.Structure):
    """an_persist"""
    _fields_ = [("name", c.c_char_p), ("dtype", c.c_int), ("declared", c.c_int), ("shape", Shape), ("kind", c.c_int)]


class Policy(c.Structure):
    """an_policy"""
    _fields_ = [("matmul", c.c_int), ("logits", c.c_int64), ("weights", c.c_int)]


class Memory(c.Structure):
    """an_memory"""
    _fields_ = [*((n, c.c_uint64) for n in ("live_bytes", "requested_bytes", "peak_bytes", "driver_bytes", "recommended_bytes",
                                            "low_bytes", "high_bytes", "allocations")), ("plans", c.c_int32)]


FUNCTIONS = {
    "an_open_sized": (c.c_void_p, [c.POINTER(Options), c.c_size_t]),
    "an_close": (None, [c.c_void_p]),
    "an_error": (c.c_char_p, [c.c_void_p]),
    "an_stream": (c.c_uint64, [c.c_void_p]),
    "an_empty_cache": (c.c_int, [c.c_void_p]),
    "an_import_open_description": (c.c_void_p, [c.c_char_p, c.c_char_p, c.c_size_t, c.c_char_p]),
    "an_import_open": (c.c_void_p, [c.c_char_p, c.c_char_p]),
    "an_import_note": (None, [c.c_void_p, c.c_char_p]),
    "an_import_call_mode": (None, [c.c_void_p, c.c_int]),
    "an_import_close": (None, [c.c_void_p]),
    "an_import_check": (c.c_int, [c.c_void_p, c.c_char_p]),
    "an_import_count": (c.c_int, [c.c_void_p, c.c_int]),
    "an_import_bind": (c.c_void_p, [c.c_void_p, c.c_void_p, c.c_char_p]),
    "an_import_declare": (c.c_void_p, [c.c_void_p, c.c_void_p, c.c_char_p]),
    "an_import_fill": (c.c_int, [c.c_void_p, c.c_char_p]),
    "an_import_release": (None, [c.c_void_p]),
    "an_import_call_plan": (c.c_int, [c.c_void_p, c.POINTER(Array), c.POINTER(Array), c.c_char_p]),
    "an_import_call": (c.c_int, [c.c_void_p, c.POINTER(Array), c.POINTER(Array), c.c_char_p]),
    "an_import_bind_tensor": (c.c_int, [c.c_void_p, c.c_char_p, c.POINTER(Array), c.c_char_p]),
    "an_import_step": (c.c_int, [c.c_void_p, c.POINTER(Array), c.POINTER(Update), c.POINTER(Result), c.c_char_p]),
    "an_param_find": (c.c_int, [c.c_void_p, c.c_char_p, c.POINTER(Place)]),
    "an_params_decay": (c.c_int, [c.c_void_p, c.c_char_p, c.c_bool]),
    "an_bind_block": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p, c.c_size_t]),
    "an_set_policy": (None, [c.c_void_p, Policy]),
    "an_memory_read": (c.c_int, [c.c_void_p, c.POINTER(Memory)]),
    "an_persist_count": (c.c_int, [c.c_void_p]),
    "an_persist_get": (c.c_int, [c.c_void_p, c.c_int, c.POINTER(Persist)]),
    "an_persist_find": (c.c_int, [c.c_void_p, c.c_char_p]),
    "an_persist_read": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p, c.c_size_t]),
    "an_persist_write": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p, c.c_size_t]),
    "an_import_call_counts": (None, [c.c_void_p, c.POINTER(Counts)]),
}


_loaded = None
_lock = threading.Lock()


def library():
    """The library, loaded at first use."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = load()
    return _loaded


def places():
    """Where the library may be: named, in the wheel, in the build folder of a checkout, installed."""
    here = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get("ANNEAL_LIBRARY"):
        return [os.environ["ANNEAL_LIBRARY"]]
    found = []
    for pattern in ("libanneal*.so*", "libanneal*.dylib", "../../build/libanneal*.so*", "../../build/libanneal*.dylib"):
        found += sorted(glob.glob(os.path.join(here, pattern)))
    return found + [p for p in [ctypes.util.find_library("anneal")] if p]


def load():
    tried = places()
    for path in tried:
        try:
            library = c.CDLL(path)
            break
        except OSError as e:
            failure = e
    else:
        raise ImportError(f"libanneal is not there: {failure}" if tried else
                          "libanneal is not there: install the wheel, or build it (make) and name it in ANNEAL_LIBRARY")
    for name, (result, arguments) in FUNCTIONS.items():
        f = getattr(library, name)
        f.restype, f.argtypes = result, arguments
    return library


alive = weakref.WeakSet()  # what holds a context: objects with .lib, .context and .lock, which a call holds


def empty_cache():
    """Frees what no model needs now: plans with their kernels and scratch memory. The next call plans again."""
    from . import _dlpack
    gc.collect()
    _dlpack.sweep()
    for m in list(alive):
        with m.lock:
            if m.context:
                m.lib.an_empty_cache(m.context)
