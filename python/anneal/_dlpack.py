"""Arrays of other libraries by the DLPack protocol, without a copy: any object that has __dlpack__, on the model's device, is read where it lies, and what
this package returns has __dlpack__ itself (numpy.from_dlpack, torch.from_dlpack, ... take it). By ctypes: nothing else is needed."""
import ctypes as c
import sys
import threading

from ._library import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, Array

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
REACHED = {"cpu": (CPU, CUDA_HOST), "cuda": (CUDA, CUDA_MANAGED)}  # whose memory a device of ours reads
TYPES = {(2, 32): F32, (2, 64): F64, (2, 16): F16, (4, 16): BF16, (0, 8): I8, (0, 16): I16, (0, 32): I32, (0, 64): I64, (1, 8): U8, (6, 8): BOOL}
CODES = {dtype: code for code, dtype in TYPES.items()}
NAMES = {F32: "float32", F64: "float64", F16: "float16", BF16: "bfloat16", I8: "int8", I16: "int16", I32: "int32", I64: "int64", U8: "uint8", BOOL: "bool"}
BYTES = {dtype: bits // 8 for (_, bits), dtype in TYPES.items()}
READ_ONLY = 1  # a flag of DLManagedTensorVersioned


class Tensor(c.Structure):
    """DLTensor"""
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("ndim", c.c_int32), ("code", c.c_uint8), ("bits", c.c_uint8),
                ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


DELETER = c.CFUNCTYPE(None, c.c_void_p)


class Managed(c.Structure):
    """DLManagedTensor"""
    _fields_ = [("tensor", Tensor), ("context", c.c_void_p), ("deleter", DELETER)]


class Versioned(c.Structure):
    """DLManagedTensorVersioned"""
    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("context", c.c_void_p), ("deleter", DELETER), ("flags", c.c_uint64), ("tensor", Tensor)]


KINDS = {b"dltensor": (Managed, b"used_dltensor"), b"dltensor_versioned": (Versioned, b"used_dltensor_versioned")}
_api = c.pythonapi
_new, _pointer, _valid, _rename = _api.PyCapsule_New, _api.PyCapsule_GetPointer, _api.PyCapsule_IsValid, _api.PyCapsule_SetName
_new.restype, _new.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]
_pointer.restype, _pointer.argtypes = c.c_void_p, [c.c_void_p, c.c_char_p]
_valid.restype, _valid.argtypes = c.c_int, [c.c_void_p, c.c_char_p]
_rename.restype, _rename.argtypes = c.c_int, [c.c_void_p, c.c_char_p]


class Borrowed:
    """Another library's array for as long as this object lives; `array` is what the library's functions take."""

    def __init__(self, x, writable=False, device="cpu", stream=None):
        """stream: the number of the stream that will read the array, which its library puts its own work in front of; None: there is none."""
        self._managed = None
        what = type(x).__name__
        if not hasattr(x, "__dlpack__"):
            raise TypeError(f"{what} has no __dlpack__: give an array of NumPy, PyTorch or another library that has")
        kind, index = x.__dlpack_device__()
        if kind not in REACHED[device]:
            raise ValueError(f"an array of another device (DLPack's number {int(kind)}): this model computes on {device}")
        if kind == CUDA and index != 0:
            raise ValueError(f"an array on GPU {index}: the model is on GPU 0; CUDA_VISIBLE_DEVICES chooses it for the whole process")
        order = {} if stream is None else {"stream": stream}
        try:
            capsule = x.__dlpack__(max_version=(1, 0), **order)
        except TypeError:  # of before version 1.0
            capsule = x.__dlpack__(**order)
        address = c.c_void_p(id(capsule))
        name = next((n for n in KINDS if _valid(address, n)), None)
        if name is None:
            raise TypeError(f"what {what}.__dlpack__ gives is no DLPack capsule")
        struct, used = KINDS[name]
        self._managed = struct.from_address(_pointer(address, name))
        _rename(address, used)  # it is ours to delete now
        self._name = used  # the capsule holds the pointer, not the text
        if struct is Versioned and self._managed.major > 1:
            raise TypeError(f"{what} is of DLPack {self._managed.major}: 1 is known")
        if writable and struct is Versioned and self._managed.flags & READ_ONLY:
            raise ValueError(f"{what} may only be read: a result cannot be written into it")
        t = self._managed.tensor
        dtype = TYPES.get((t.code, t.bits)) if t.lanes == 1 else None
        if dtype is None:
            raise TypeError(f"{what}: elements of {t.bits} bits (DLPack's code {t.code}) are not known; {', '.join(NAMES.values())} are")
        if t.ndim > 8:
            raise ValueError(f"{what} has {t.ndim} axes, 8 are the most")
        self.array = Array(dtype=dtype, rank=t.ndim)
        step = 1
        for i in reversed(range(t.ndim)):
            self.array.dim[i], self.array.step[i] = t.shape[i], t.strides[i] if t.strides else step
            step *= t.shape[i]
        empty = any(t.shape[i] == 0 for i in range(t.ndim))
        self.array.data = None if empty or not t.data else t.data + t.byte_offset

    def __del__(self):
        m, self._managed = self._managed, None
        if m is not None and m.deleter:
            m.deleter(c.addressof(m))


_given = {}  # address of a struct that another library holds -> (the struct, what its pointers point to)
_offered = {}  # address of such a struct -> its capsule, which nobody had taken when it was last looked at


@DELETER
def _delete(address):
    _given.pop(address, None)
    _offered.pop(address, None)


def _references(capsules, key):
    return sys.getrefcount(capsules[key])


_ALONE = _references({0: object()}, 0)
_sweeping = threading.Lock()


def sweep():
    """Frees what lies in capsules that nobody took and nobody holds. A capsule has no destructor: Python code would run in it, also while an
    exception is on its way, which it would lose."""
    if not _sweeping.acquire(blocking=False):
        return
    try:
        for address in list(_offered):
            try:
                alone = _references(_offered, address) == _ALONE
                taken = not any(_valid(id(_offered[address]), name) for name in KINDS)
            except KeyError:  # deleted by another thread meanwhile
                continue
            if alone or taken:
                _offered.pop(address, None)
            if alone and not taken:  # what is taken is deleted by who took it
                _given.pop(address, None)
    finally:
        _sweeping.release()


_text = {name: c.c_char_p(name) for name in KINDS}  # a capsule keeps the pointer of its name


class Result:
    """An array that the library wrote: shape, dtype (a name), and __dlpack__."""

    def __init__(self, shape, dtype):
        sweep()
        self.shape, self._dtype, self.dtype = tuple(shape), dtype, NAMES[dtype]
        n = BYTES[dtype]
        for d in self.shape:
            n *= d
        self._memory = (c.c_char * (n + 64))()
        self.address = -(-c.addressof(self._memory) // 64) * 64

    def steps(self):
        steps, step = [], 1
        for d in reversed(self.shape):
            steps.insert(0, step)
            step *= d
        return steps

    def as_array(self):
        a = Array(data=self.address, dtype=self._dtype, rank=len(self.shape))
        a.dim[:a.rank], a.step[:a.rank] = self.shape, self.steps()
        return a

    def __dlpack_device__(self):
        return CPU, 0

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if stream is not None or (dl_device is not None and tuple(dl_device) != (CPU, 0)) or copy:
            raise BufferError("this array lies on the CPU, and is given as it is")
        name = b"dltensor_versioned" if max_version is not None and tuple(max_version) >= (1, 0) else b"dltensor"
        sweep()
        rank = len(self.shape)
        shape, strides = (c.c_int64 * max(1, rank))(*self.shape), (c.c_int64 * max(1, rank))(*self.steps())
        code, bits = CODES[self._dtype]
        m = KINDS[name][0]()
        m.deleter, m.tensor = _delete, Tensor(data=self.address, device_type=CPU, ndim=rank, code=code, bits=bits, lanes=1, shape=shape, strides=strides)
        if name == b"dltensor_versioned":
            m.major = 1
        _given[c.addressof(m)] = m, shape, strides, self._memory
        capsule = _new(c.addressof(m), _text[name], None)
        _offered[c.addressof(m)] = capsule
        return capsule

    def __repr__(self):
        return f"anneal.Result({list(self.shape)}, {self.dtype})"
