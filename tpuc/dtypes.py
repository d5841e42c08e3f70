"""PyTorch's dtypes by the names that tpuc uses: see `tpuc.runtime.dtypes` for what else a name stands for."""

from __future__ import annotations

import torch

#: PyTorch's dtype for each name.
TORCH_DTYPES: dict[str, torch.dtype] = {
    "bf16": torch.bfloat16,
    "bool": torch.bool,
    "c128": torch.complex128,
    "c64": torch.complex64,
    "f16": torch.float16,
    "f32": torch.float32,
    "f64": torch.float64,
    "f8e4m3fn": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "i8": torch.int8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "u8": torch.uint8,
}
#: The name of each of PyTorch's dtypes.
DTYPE_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}
