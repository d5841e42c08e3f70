"""Variance, standard deviation and histograms."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tpuc.lowerings.creation import linspace
from tpuc.lowerings.reduction import Dims, axes_of
from tpuc.lowerings.registry import lowering
from tpuc.lowerings.sorting import searchsorted

Array = jax.Array
_F64 = "torch-mlir computes it in f64"
_LACKS = "torch-mlir lacks it"


@lowering("aten.var.correction", why=_F64)
def var(x: Array, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> Array:
    """The variance over dimensions, in f32 at least."""
    return var_mean(x, dim, correction=correction, keepdim=keepdim)[0]


@lowering("aten.std.correction", why=_F64)
def std(x: Array, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> Array:
    """The standard deviation over dimensions, in f32 at least."""
    return jnp.sqrt(var(x, dim, correction=correction, keepdim=keepdim))


@lowering("aten.var_mean.correction", why=_F64)
def var_mean(x: Array, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> tuple[Array, Array]:
    """The variance and the mean over dimensions, in f32 at least; no correction named means 1."""
    axes = axes_of(x, dim)
    y = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    mean = y.mean(axes, keepdims=True)
    centered = y - mean
    squares = jnp.sum((centered * jnp.conj(centered)).real, axes, keepdims=keepdim)
    count = math.prod(x.shape[axis] for axis in axes)
    divisor = max(count - (1 if correction is None else correction), 0)
    return squares / jnp.asarray(divisor, squares.dtype), mean if keepdim else mean.squeeze(axes)


@lowering("aten.std_mean.correction", why=_F64)
def std_mean(x: Array, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> tuple[Array, Array]:
    """The standard deviation and the mean over dimensions, in f32 at least."""
    variance, mean = var_mean(x, dim, correction=correction, keepdim=keepdim)
    return jnp.sqrt(variance), mean


def _unbiased(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The overloads that say `unbiased` in place of a correction: over all dimensions, and over some."""

    @functools.wraps(function)
    def over_all(x: Array, unbiased: bool = True) -> Any:
        return function(x, correction=int(unbiased))

    @functools.wraps(function)
    def over_dims(x: Array, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> Any:
        return function(x, dim, correction=int(unbiased), keepdim=keepdim)

    return over_all, over_dims


for _name, _function in {"var": var, "std": std, "var_mean": var_mean, "std_mean": std_mean}.items():
    _over_all, _over_dims = _unbiased(_function)
    lowering(f"aten.{_name}.default", why=_F64)(_over_all)
    lowering(f"aten.{_name}.dim", why=_F64)(_over_dims)


@lowering("aten.histc.default", why=_LACKS)
def histc(x: Array, bins: int = 100, min: Any = 0, max: Any = 0) -> Array:  # noqa: A002  ATen's names
    """Counts of elements in bins of one width; of those outside, and of NaN, none.

    Where min equals max, the bins span the data, or if that is one value, one on either side of it.
    """
    flat = x.reshape(-1)
    low, high = _outer_edges(flat, (min, max) if min != max else None, 1 if x.size else 0)
    place = ((flat - low) * bins / (high - low)).astype(jnp.int32)
    inside = (flat >= low) & (flat <= high)
    return _count(jnp.where(inside, jnp.minimum(place, bins - 1), bins), bins, jnp.ones_like(flat))


@lowering("aten.histogram.bin_ct", why=_LACKS)
def histogram(
    x: Array,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,  # noqa: A002  ATen's name
    weight: Array | None = None,
    density: bool = False,
) -> tuple[Array, Array]:
    """A histogram over bins of one width, and their edges."""
    edges = _edges(x.reshape(-1), bins, range)
    return histogram_at(x, edges, weight=weight, density=density)


@lowering("aten.histogram.bins_tensor", why=_LACKS)
def histogram_at(x: Array, bins: Array, *, weight: Array | None = None, density: bool = False) -> tuple[Array, Array]:
    """A histogram over bins between edges, and the edges."""
    weights = None if weight is None else weight.reshape(-1)
    return _histogram(x.reshape(-1, 1), [bins], weights, density), bins


@lowering("aten._histogramdd_bin_edges.default", why=_LACKS)
def histogramdd_bin_edges(
    x: Array,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,  # noqa: A002  ATen's name
    weight: Array | None = None,
    density: bool = False,
) -> list[Array]:
    """The edges of bins of one width, for each of the last dimension's columns."""
    columns = x.reshape(-1, x.shape[-1])
    ranges = [None] * len(bins) if range is None else [range[2 * i : 2 * i + 2] for i, _ in enumerate(bins)]
    return [_edges(columns[:, i], count, ranges[i]) for i, count in enumerate(bins)]


@lowering("aten._histogramdd_from_bin_cts.default", why=_LACKS)
def histogramdd(
    x: Array,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,  # noqa: A002  ATen's name
    weight: Array | None = None,
    density: bool = False,
) -> Array:
    """A histogram over a grid of bins; the last dimension holds the coordinates of a point."""
    return histogramdd_at(x, histogramdd_bin_edges(x, bins, range=range), weight=weight, density=density)


@lowering("aten._histogramdd_from_bin_tensors.default", why=_LACKS)
def histogramdd_at(x: Array, bins: Sequence[Array], *, weight: Array | None = None, density: bool = False) -> Array:
    """A histogram over a grid of bins between edges."""
    weights = None if weight is None else weight.reshape(-1)
    return _histogram(x.reshape(-1, x.shape[-1]), bins, weights, density)


def _outer_edges(flat: Array, given: Sequence[float] | None, widen: float) -> tuple[Array, Array]:
    """The first and the last edge: given, or the data's extrema; the data's single value is widened to both sides."""
    if given is not None:
        return jnp.asarray(given[0], flat.dtype), jnp.asarray(given[1], flat.dtype)
    low, high = (flat.min(), flat.max()) if flat.size else (jnp.zeros((), flat.dtype), jnp.ones((), flat.dtype))
    return jnp.where(low == high, low - widen, low), jnp.where(low == high, high + widen, high)


def _edges(flat: Array, bins: int, given: Sequence[float] | None) -> Array:
    return linspace(*_outer_edges(flat, given, 0.5), bins + 1)


def _histogram(points: Array, edges: Sequence[Array], weights: Array | None, density: bool) -> Array:
    """Sums the weights of points [n, d] in a grid of bins between d rows of edges."""
    shape = [edge.shape[0] - 1 for edge in edges]
    place = jnp.zeros(points.shape[0], jnp.int32)
    inside = jnp.ones(points.shape[0], bool)
    for column, edge in enumerate(edges):
        x = points[:, column]
        inside &= (x >= edge[0]) & (x <= edge[-1])
        # Bins are closed on the left, and the last one on the right too.
        number = jnp.minimum(searchsorted(edge, x, right=True) - 1, shape[column] - 1)
        place = place * shape[column] + number
    bins = math.prod(shape)
    weights = jnp.ones(points.shape[0], points.dtype) if weights is None else weights
    counts = _count(jnp.where(inside, place, bins), bins, weights).reshape(shape)
    if not density:
        return counts
    counts = counts / counts.sum()
    for axis, edge in enumerate(edges):
        counts = counts / jnp.diff(edge).reshape(-1, *(1,) * (len(edges) - axis - 1))
    return counts


def _count(place: Array, bins: int, weights: Array) -> Array:
    """Sums weights by place; what is beyond the last bin is dropped."""
    return jnp.zeros(bins, weights.dtype).at[place].add(weights, mode="drop")
