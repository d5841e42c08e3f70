"""Takes arrays over from other libraries through DLPack, without importing them.

NumPy's own `from_dlpack` does this for the types that it knows. For bf16 and the 8-bit floats the tensor is presented
to NumPy as unsigned integers of the same size, and the result is viewed as what it is.

Source of the layout: DLPack 1.1, `include/dlpack/dlpack.h` (DLTensor).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tpuc.runtime.dtypes import DTYPES, Array, DType
from tpuc.runtime.errors import InputError

_CPU = 1
_UNSIGNED = 1
_BITS_PER_BYTE = 8


class _DLTensor(ctypes.Structure):
    # The start of DLManagedTensor, as far as it is needed here.
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


class _AsUnsigned:
    """A tensor whose elements NumPy shall take for unsigned integers."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CPU, 0)


def from_dlpack(tensor: Any, where: str) -> Array:
    """Returns a tensor of another library as an array over the same memory.

    Args:
        tensor: Anything with `__dlpack__`, in host memory.
        where: What it is called, for errors.

    Raises:
        InputError: It is on another device, has a type that programs cannot use, or its library refuses to share it.
    """
    if tensor.__dlpack_device__()[0] != _CPU:
        raise InputError(f"{where}: the tensor is on another device", hint="Copy it to the host first.")
    try:
        capsule = tensor.__dlpack__()
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"{where}: {error}") from error
    header = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    dtype = _dtype_of(header)
    if dtype is None or header.lanes != 1:
        raise InputError(f"{where}: its element type is not supported", hint=f"Known are {', '.join(DTYPES)}.")
    is_native = dtype.numpy.isbuiltin == 1
    if not is_native:
        header.code = _UNSIGNED
    array = np.from_dlpack(_AsUnsigned(capsule))
    return array if is_native else array.view(dtype.numpy)


def _dtype_of(header: _DLTensor) -> DType | None:
    for dtype in DTYPES.values():
        if dtype.dlpack == header.code and dtype.itemsize * _BITS_PER_BYTE == header.bits:
            return dtype
    return None
