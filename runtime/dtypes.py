"""The element types that programs may use: one table of names.

A name such as `bf16` is what tpuc prints and stores. Each row ties it to NumPy, to the safetensors file format, to
the PJRT C API and to DLPack.

Sources: safetensors, `safetensors/src/tensor.rs` (enum Dtype); PJRT, `xla/pjrt/c/pjrt_c_api.h` (PJRT_Buffer_Type);
DLPack 1.1, `include/dlpack/dlpack.h` (DLDataTypeCode).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tpuc.runtime.errors import InputError

#: A NumPy array of any element type of the table.
Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class DType:
    """One element type, by all its names.

    Attributes:
        name: The name in specs and manifests: `bf16`.
        numpy: The NumPy type, in the machine's byte order.
        safetensors: The name in a safetensors header.
        stored_lanes: Elements of the safetensors type that hold one value. It is 2 for c128, which safetensors lacks:
            it is stored as F64 with a last dimension of 2, real part first.
        pjrt: The number in PJRT_Buffer_Type.
        dlpack: The number in DLDataTypeCode.
    """

    name: str
    numpy: np.dtype[Any]
    safetensors: str
    stored_lanes: int = 1
    pjrt: int
    dlpack: int

    @property
    def itemsize(self) -> int:
        """Bytes of one value."""
        return self.numpy.itemsize


def _row(name: str, scalar: Any, safetensors: str, pjrt: int, dlpack: int, lanes: int = 1) -> DType:
    return DType(
        name=name, numpy=np.dtype(scalar), safetensors=safetensors, stored_lanes=lanes, pjrt=pjrt, dlpack=dlpack
    )


_ROWS = (
    _row("f32", np.float32, "F32", 11, 2),
    _row("bf16", ml_dtypes.bfloat16, "BF16", 13, 4),
    _row("f16", np.float16, "F16", 10, 2),
    _row("f64", np.float64, "F64", 12, 2),
    _row("i8", np.int8, "I8", 2, 0),
    _row("i16", np.int16, "I16", 3, 0),
    _row("i32", np.int32, "I32", 4, 0),
    _row("i64", np.int64, "I64", 5, 0),
    _row("u8", np.uint8, "U8", 6, 1),
    _row("u16", np.uint16, "U16", 7, 1),
    _row("u32", np.uint32, "U32", 8, 1),
    _row("u64", np.uint64, "U64", 9, 1),
    _row("bool", np.bool_, "BOOL", 1, 6),
    _row("c64", np.complex64, "C64", 14, 5),
    _row("c128", np.complex128, "F64", 15, 5, 2),
    _row("f8e4m3fn", ml_dtypes.float8_e4m3fn, "F8_E4M3", 17, 10),
    _row("f8e5m2", ml_dtypes.float8_e5m2, "F8_E5M2", 16, 12),
)

#: Every element type by name.
DTYPES: Mapping[str, DType] = MappingProxyType({row.name: row for row in _ROWS})

#: Bytes of one element by safetensors name.
STORED_ITEMSIZE: Mapping[str, int] = MappingProxyType(
    {row.safetensors: row.itemsize // row.stored_lanes for row in _ROWS}
)


def dtype(name: str) -> DType:
    """Looks an element type up by its name.

    Raises:
        InputError: There is none of that name; the nearest is named.
    """
    if name in DTYPES:
        return DTYPES[name]
    near = difflib.get_close_matches(name, DTYPES, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(DTYPES)}."
    raise InputError(f"unknown dtype {name!r}", hint=hint)


def dtype_of(array: Array) -> DType:
    """Returns the element type of an array, whatever its byte order.

    Raises:
        InputError: The table has no such type.
    """
    native = array.dtype.newbyteorder("=")
    for row in _ROWS:
        if row.numpy == native:
            return row
    raise InputError(f"arrays of {array.dtype} are not supported", hint=f"Known are {', '.join(DTYPES)}.")
