"""PyTorch's dtypes beside JAX's, and PyTorch's type promotion for JAX arrays."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes

Array = jax.Array

_NUMPY: dict[torch.dtype, Any] = {
    torch.bool: np.bool_,
    torch.uint8: np.uint8,
    torch.uint16: np.uint16,
    torch.uint32: np.uint32,
    torch.uint64: np.uint64,
    torch.int8: np.int8,
    torch.int16: np.int16,
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.float16: np.float16,
    torch.bfloat16: ml_dtypes.bfloat16,
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.complex64: np.complex64,
    torch.complex128: np.complex128,
    torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
    torch.float8_e5m2: ml_dtypes.float8_e5m2,
}
_TORCH = {np.dtype(value): key for key, value in _NUMPY.items()}

_KINDS = {
    "default": KIND.DEFAULT,
    "int_to_float": KIND.INT_TO_FLOAT,
    "bool": KIND.ALWAYS_BOOL,
}


def to_jax(dtype: torch.dtype) -> np.dtype[Any]:
    """Returns JAX's dtype for PyTorch's.

    Raises:
        TypeError: XLA has no such dtype.
    """
    try:
        return np.dtype(_NUMPY[dtype])
    except KeyError:
        raise TypeError(f"XLA has no dtype for {dtype}") from None


def to_torch(dtype: Any) -> torch.dtype:
    """Returns PyTorch's dtype for JAX's."""
    return _TORCH[np.dtype(dtype)]


@cache
def _stand_in(dtype: torch.dtype, scalar: bool) -> torch.Tensor:
    # Promotion looks at the dtype, and at whether a tensor has any dimension, and at nothing else.
    return torch.empty((), dtype=dtype, device="meta") if scalar else torch.empty((1,), dtype=dtype, device="meta")


def computation_dtype(values: list[Any], promotion: str) -> np.dtype[Any]:
    """Returns the dtype that PyTorch computes an elementwise operator in.

    bf16 and f16 are computed in f32 and rounded once, as PyTorch's kernels do.

    Args:
        values: JAX arrays and Python numbers, in argument order.
        promotion: `default`, `int_to_float` or `bool`: see `Lowering.promotion`.
    """
    return to_jax(_promoted(values, promotion)[0])


def result_dtype(values: list[Any]) -> np.dtype[Any]:
    """Returns the common dtype of values, by PyTorch's promotion: that of `torch.result_type`."""
    return to_jax(_promoted(values, "default")[1])


def common(*values: Any, promotion: str = "default") -> list[Array]:
    """Casts JAX arrays and Python numbers to the dtype that PyTorch computes an elementwise operator in."""
    dtype = computation_dtype(list(values), promotion)
    return [jnp.asarray(wrapped(value, dtype), dtype) for value in values]


def wrapped(value: Any, dtype: np.dtype[Any]) -> Any:
    """Returns a Python integer as an integer dtype holds it: PyTorch takes -1 as 255 in u8. Others stay as they are."""
    if isinstance(value, int) and np.issubdtype(dtype, np.integer):
        return int(np.asarray(value).astype(dtype))
    return value


def _promoted(values: list[Any], promotion: str) -> tuple[torch.dtype, torch.dtype]:
    stand_ins = [
        value if isinstance(value, bool | int | float | complex) else _stand_in(to_torch(value.dtype), value.ndim == 0)
        for value in values
    ]
    return elementwise_dtypes(*stand_ins, type_promotion_kind=_KINDS[promotion])


def is_array(value: Any) -> bool:
    """Whether a value is a JAX array or tracer (or NumPy's)."""
    return isinstance(value, jnp.ndarray | np.ndarray)
