"""Reductions over dimensions."""

from __future__ import annotations

from collections.abc import Sequence

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
    return jnp.sum(summable(x, dtype), axes_of(x, dim), keepdims=keepdim)


@lowering("aten.mean.default", why=_RANK0)
def mean_all(x: Array, *, dtype: torch.dtype | None = None) -> Array:
    """The mean of all elements."""
    return mean(x, None, dtype=dtype)


@lowering("aten.mean.dim", why=_RANK0)
def mean(x: Array, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Array:
    """The mean over dimensions."""
    return jnp.mean(summable(x, dtype), axes_of(x, dim), keepdims=keepdim)


@lowering("aten.prod.default", why=_RANK0)
def prod_all(x: Array, *, dtype: torch.dtype | None = None) -> Array:
    """The product of all elements."""
    return jnp.prod(summable(x, dtype))


@lowering("aten.prod.dim_int", why=_RANK0)
def prod(x: Array, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Array:
    """The product over a dimension."""
    return jnp.prod(summable(x, dtype), axes_of(x, dim), keepdims=keepdim)


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


@lowering("aten.logsumexp.default", why=_RANK0)
def logsumexp(x: Array, dim: Dims, keepdim: bool = False) -> Array:
    """The logarithm of the sum of exponentials over dimensions."""
    y = x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.float32)
    return jax.nn.logsumexp(y, axes_of(x, dim), keepdims=keepdim)


def summable(x: Array, dtype: torch.dtype | None) -> Array:
    """Casts to the dtype that PyTorch sums and multiplies in: the one named, i64 for integers, f32 for halves."""
    if dtype is not None:
        x = x.astype(to_jax(dtype))
    elif not jnp.issubdtype(x.dtype, jnp.inexact):
        x = x.astype(jnp.int64)
    if x.dtype in (jnp.bfloat16, jnp.float16):
        # PyTorch sums halves in f32 and rounds once.
        return x.astype(jnp.float32)
    return x
