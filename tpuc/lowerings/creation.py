"""Tensors out of nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from tpuc.lowerings.dtypes import to_jax
from tpuc.lowerings.registry import lowering

Array = jax.Array
_CONSTANT = "a constant or an iota"


def _dtype(dtype: torch.dtype | None, default: Any = None) -> Any:
    # Where the operator names no dtype, PyTorch's result says it, and the result is cast to that.
    return default if dtype is None else to_jax(dtype)


@lowering("aten.arange.default", why=_CONSTANT)
def arange(end: Any, *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """0, 1, ... below the end."""
    return arange_start_step(0, end, 1, dtype=dtype)


@lowering("aten.arange.start", why=_CONSTANT)
def arange_start(start: Any, end: Any, *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """From the start, by one, below the end."""
    return arange_start_step(start, end, 1, dtype=dtype)


@lowering("aten.arange.start_step", why=_CONSTANT)
def arange_start_step(
    start: Any, end: Any, step: Any = 1, *, dtype: torch.dtype | None = None, **_kwargs: Any
) -> Array:
    """From the start, by a step, short of the end."""
    bounds = (start, end, step)
    wanted = _dtype(dtype, jnp.int64 if all(isinstance(value, int) for value in bounds) else jnp.float32)
    if jnp.issubdtype(wanted, jnp.integer):
        start, end, step = map(int, bounds)
        count, wide = max(-((start - end) // step), 0), wanted
    else:
        count, wide = max(math.ceil((end - start) / step), 0), jnp.promote_types(wanted, jnp.float32)
    return (jnp.arange(count, dtype=wide) * step + start).astype(wanted)


@lowering("aten.full.default", why=_CONSTANT)
def full(size: Sequence[int], value: Any, *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """One value everywhere."""
    return jnp.full(tuple(size), value, _dtype(dtype))


@lowering(
    "aten.zeros.default",
    "aten.empty.memory_format",
    "aten.empty_strided.default",
    "aten.empty_permuted.default",
    why="what is empty holds zeros",
)
def zeros(size: Sequence[int], *_layout: Any, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """Zeros; also for tensors that PyTorch leaves uninitialized."""
    return jnp.zeros(tuple(size), _dtype(dtype, jnp.float32))


@lowering("aten.ones.default", why=_CONSTANT)
def ones(size: Sequence[int], *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """Ones."""
    return jnp.ones(tuple(size), _dtype(dtype, jnp.float32))


@lowering("aten.scalar_tensor.default", why=_CONSTANT)
def scalar_tensor(value: Any, *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """A 0-d tensor."""
    return jnp.asarray(value, _dtype(dtype))


@lowering("aten.full_like.default", why=_CONSTANT)
def full_like(x: Array, value: Any, *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """One value in another tensor's shape."""
    return jnp.full(x.shape, value, _dtype(dtype, x.dtype))


@lowering("aten.zeros_like.default", "aten.empty_like.default", why="what is empty holds zeros")
def zeros_like(x: Array, *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """Zeros in another tensor's shape."""
    return jnp.zeros(x.shape, _dtype(dtype, x.dtype))


@lowering("aten.ones_like.default", why=_CONSTANT)
def ones_like(x: Array, *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """Ones in another tensor's shape."""
    return jnp.ones(x.shape, _dtype(dtype, x.dtype))


@lowering("aten.new_zeros.default", "aten.new_empty.default", why="what is empty holds zeros")
def new_zeros(x: Array, size: Sequence[int], *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """Zeros in another tensor's dtype."""
    return jnp.zeros(tuple(size), _dtype(dtype, x.dtype))


@lowering("aten.new_ones.default", why=_CONSTANT)
def new_ones(x: Array, size: Sequence[int], *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """Ones in another tensor's dtype."""
    return jnp.ones(tuple(size), _dtype(dtype, x.dtype))


@lowering("aten.new_full.default", why=_CONSTANT)
def new_full(x: Array, size: Sequence[int], value: Any, *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """One value in another tensor's dtype."""
    return jnp.full(tuple(size), value, _dtype(dtype, x.dtype))


@lowering("aten.eye.default", why=_CONSTANT)
def eye(n: int, *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """The identity matrix."""
    return jnp.eye(n, dtype=_dtype(dtype, jnp.float32))


@lowering("aten.eye.m", why=_CONSTANT)
def eye_m(n: int, m: int, *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """Ones on the diagonal."""
    return jnp.eye(n, m, dtype=_dtype(dtype, jnp.float32))


@lowering("aten.linspace.default", why="PyTorch counts from both ends")
def linspace(start: Any, end: Any, steps: int, *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """Evenly spaced values, both ends included; integers are rounded to zero."""
    wanted = _dtype(dtype, jnp.float32)
    half, gaps = max(steps // 2, 1), max(steps - 1, 1)
    if jnp.issubdtype(wanted, jnp.integer):
        # NumPy, so that what is f64 here is not in the program.
        places = np.arange(steps)
        step = (int(end) - int(start)) / gaps
        values = np.where(places < half, int(start) + step * places, int(end) - step * (gaps - places))
        return jnp.asarray(values.astype(wanted))
    wide = jnp.promote_types(wanted, jnp.float32)
    start, end = jnp.asarray(start, wide), jnp.asarray(end, wide)
    step = (end - start) / gaps
    place = jnp.arange(steps, dtype=jnp.finfo(wide).dtype)
    return jnp.where(place < half, start + step * place, end - step * (gaps - place))
