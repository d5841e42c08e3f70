"""Reductions and cumulative operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch

from tpuc.lowerings.dtypes import to_jax
from tpuc.lowerings.registry import lowering

Array = jax.Array
Dims = Sequence[int] | int | None
_RANK0 = "torch-mlir ends the process on rank 0"


def axes_of(x: Array, dim: Dims) -> tuple[int, ...]:
    """Returns the dimensions to reduce, from 0; none named means all."""
    if isinstance(dim, int):
        dim = (dim,)
    if dim is None or len(dim) == 0:
        return tuple(range(x.ndim))
    return tuple(d % x.ndim for d in dim) if x.ndim else ()


@lowering("aten.sum.default", why=_RANK0)
def sum_all(x: Array, *, dtype: torch.dtype | None = None) -> Array:
    """The sum of all elements."""
    return sum_(x, None, dtype=dtype)


@lowering("aten.sum.dim_IntList", why=_RANK0)
def sum_(x: Array, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Array:
    """The sum over dimensions; integers and bools in i64."""
    return jnp.sum(_summable(x, dtype), axes_of(x, dim), keepdims=keepdim)


@lowering("aten.mean.default", why=_RANK0)
def mean_all(x: Array, *, dtype: torch.dtype | None = None) -> Array:
    """The mean of all elements."""
    return mean(x, None, dtype=dtype)


@lowering("aten.mean.dim", why=_RANK0)
def mean(x: Array, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Array:
    """The mean over dimensions."""
    return jnp.mean(_summable(x, dtype), axes_of(x, dim), keepdims=keepdim)


@lowering("aten.prod.default", why=_RANK0)
def prod_all(x: Array, *, dtype: torch.dtype | None = None) -> Array:
    """The product of all elements."""
    return jnp.prod(_summable(x, dtype))


@lowering("aten.prod.dim_int", why=_RANK0)
def prod(x: Array, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Array:
    """The product over a dimension."""
    return jnp.prod(_summable(x, dtype), axes_of(x, dim), keepdims=keepdim)


@lowering("aten.amax.default", why=_RANK0)
def amax(x: Array, dim: Dims = (), keepdim: bool = False) -> Array:
    """The largest element over dimensions; NaN wins."""
    return jnp.max(x, axes_of(x, dim), keepdims=keepdim)


@lowering("aten.amin.default", why=_RANK0)
def amin(x: Array, dim: Dims = (), keepdim: bool = False) -> Array:
    """The smallest element over dimensions; NaN wins."""
    return jnp.min(x, axes_of(x, dim), keepdims=keepdim)


@lowering("aten.max.default", why=_RANK0)
def max_all(x: Array) -> Array:
    """The largest element."""
    return jnp.max(x)


@lowering("aten.min.default", why=_RANK0)
def min_all(x: Array) -> Array:
    """The smallest element."""
    return jnp.min(x)


@lowering("aten.max.dim", why="NaN wins, and the first of equals")
def max_dim(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The largest element of a dimension, and where it is."""
    return amax(x, dim, keepdim), argmax(x, dim, keepdim)


@lowering("aten.min.dim", why="NaN wins, and the first of equals")
def min_dim(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The smallest element of a dimension, and where it is."""
    return amin(x, dim, keepdim), argmin(x, dim, keepdim)


@lowering("aten.argmax.default", why="torch-mlir is wrong with NaN")
def argmax(x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    """Where the largest element is; NaN counts as largest."""
    return jnp.argmax(x, dim, keepdims=keepdim) if x.ndim else jnp.zeros((), jnp.int64)


@lowering("aten.argmin.default", why="torch-mlir is wrong with NaN")
def argmin(x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    """Where the smallest element is; NaN counts as smallest."""
    return jnp.argmin(x, dim, keepdims=keepdim) if x.ndim else jnp.zeros((), jnp.int64)


@lowering("aten.any.default", "aten.any.dim", "aten.any.dims", why=_RANK0)
def any_(x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    """Whether any element is not zero."""
    return jnp.any(x, axes_of(x, dim), keepdims=keepdim)


@lowering("aten.all.default", "aten.all.dim", "aten.all.dims", why=_RANK0)
def all_(x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    """Whether all elements are not zero."""
    return jnp.all(x, axes_of(x, dim), keepdims=keepdim)


@lowering("aten.var.correction", why="torch-mlir computes it in f64")
def var(x: Array, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> Array:
    """The variance over dimensions, in f32 at least."""
    return var_mean(x, dim, correction=correction, keepdim=keepdim)[0]


@lowering("aten.std.correction", why="torch-mlir computes it in f64")
def std(x: Array, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> Array:
    """The standard deviation over dimensions, in f32 at least."""
    return jnp.sqrt(var(x, dim, correction=correction, keepdim=keepdim))


@lowering("aten.var_mean.correction", why="torch-mlir computes it in f64")
def var_mean(x: Array, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> tuple[Array, Array]:
    """The variance and the mean over dimensions, in f32 at least; no correction named means 1."""
    axes = axes_of(x, dim)
    y = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    mean_ = y.mean(axes, keepdims=True)
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    centered = y - mean_
    divisor = max(count - (1 if correction is None else correction), 0)
    squares = jnp.sum((centered * jnp.conj(centered)).real, axes, keepdims=keepdim)
    return squares / jnp.asarray(divisor, squares.dtype), mean_ if keepdim else mean_.squeeze(axes)


@lowering("aten.cumsum.default", why="torch-mlir lacks dynamic sizes, and overflows narrow integers")
def cumsum(x: Array, dim: int, *, dtype: torch.dtype | None = None) -> Array:
    """Running sums along a dimension; integers in i64."""
    return jnp.cumsum(_summable(x, dtype), dim) if x.ndim else _summable(x, dtype)


@lowering("aten.cumprod.default", why="torch-mlir fails")
def cumprod(x: Array, dim: int, *, dtype: torch.dtype | None = None) -> Array:
    """Running products along a dimension; integers in i64."""
    return jnp.cumprod(_summable(x, dtype), dim) if x.ndim else _summable(x, dtype)


@lowering("aten.logsumexp.default", why=_RANK0)
def logsumexp(x: Array, dim: Dims, keepdim: bool = False) -> Array:
    """The logarithm of the sum of exponentials over dimensions."""
    y = x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.float32)
    return jax.nn.logsumexp(y, axes_of(x, dim), keepdims=keepdim)


def _summable(x: Array, dtype: torch.dtype | None) -> Array:
    if dtype is not None:
        x = x.astype(to_jax(dtype))
    elif not jnp.issubdtype(x.dtype, jnp.inexact):
        x = x.astype(jnp.int64)
    if x.dtype in (jnp.bfloat16, jnp.float16):
        # PyTorch sums halves in f32 and rounds once.
        return x.astype(jnp.float32)
    return x
