"""Running sums, products and extrema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from tpuc.lowerings.reduction import summable
from tpuc.lowerings.registry import lowering

Array = jax.Array


@lowering("aten.cumsum.default", why="torch-mlir lacks dynamic sizes, and overflows narrow integers")
def cumsum(x: Array, dim: int, *, dtype: torch.dtype | None = None) -> Array:
    """Running sums along a dimension; integers in i64."""
    return jnp.cumsum(summable(x, dtype), dim) if x.ndim else summable(x, dtype)


@lowering("aten.cumprod.default", why="torch-mlir fails")
def cumprod(x: Array, dim: int, *, dtype: torch.dtype | None = None) -> Array:
    """Running products along a dimension; integers in i64."""
    return jnp.cumprod(summable(x, dtype), dim) if x.ndim else summable(x, dtype)


@lowering("aten.logcumsumexp.default", why="torch-mlir overflows")
def logcumsumexp(x: Array, dim: int) -> Array:
    """Logarithms of running sums of exponentials along a dimension, in f32 at least."""
    y = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    if not x.ndim or not x.size:
        return y
    if jnp.issubdtype(y.dtype, jnp.complexfloating):
        return _complex_logcumsumexp(y, dim)
    return lax.cumlogsumexp(y, axis=dim % x.ndim)


@lowering("aten.cummax.default", why="torch-mlir lacks it")
def cummax(x: Array, dim: int) -> tuple[Array, Array]:
    """Running maxima along a dimension, and where each is: the last of equals. A NaN stays."""
    return _running_extremum(x, dim, lax.cummax)


@lowering("aten.cummin.default", why="torch-mlir lacks it")
def cummin(x: Array, dim: int) -> tuple[Array, Array]:
    """Running minima along a dimension, and where each is: the last of equals. A NaN stays."""
    return _running_extremum(x, dim, lax.cummin)


def running_count(mask: Array) -> Array:
    """Returns, as i32, how many elements of a mask hold up to each, itself included, in row-major order."""
    return _running_sum(jnp.atleast_1d(mask).astype(jnp.int32)).reshape(mask.shape)


def _running_sum(x: Array) -> Array:
    # Row by row: libtpu takes long to compile a sum over hundreds of thousands.
    within = jnp.cumsum(x, -1, dtype=x.dtype)
    if x.ndim == 1 or not x.size:
        return within
    totals = within[..., -1]
    return within + (_running_sum(totals) - totals)[..., None]


def _complex_logcumsumexp(x: Array, dim: int) -> Array:
    """One element after the other: the order decides which of the angles, 2 pi apart, comes out."""

    def step(total: Array, element: Array) -> tuple[Array, Array]:
        is_less = total.real < element.real
        low, high = jnp.where(is_less, total, element), jnp.where(is_less, element, total)
        total = jnp.where(low.real == -jnp.inf, high, high + jnp.log1p(jnp.exp(low - high)))
        return total, total

    rows = jnp.moveaxis(x, dim, 0)
    _, rest = lax.scan(step, rows[0], rows[1:])
    return jnp.moveaxis(jnp.concatenate([rows[:1], rest]), 0, dim)


def _running_extremum(x: Array, dim: int, running: Callable[..., Array]) -> tuple[Array, Array]:
    if not x.ndim or not x.size:
        return x, jnp.zeros(x.shape, jnp.int64)
    dim %= x.ndim
    y = x.astype(jnp.int8) if x.dtype == jnp.bool_ else x
    values = running(y, axis=dim)
    is_new: Any = y == values
    if jnp.issubdtype(y.dtype, jnp.floating):
        is_new |= jnp.isnan(y)
    places = lax.broadcasted_iota(jnp.int32, x.shape, dim)
    return values, lax.cummax(jnp.where(is_new, places, 0), axis=dim)
