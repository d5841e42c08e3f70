"""Writing at indices: scatters, their reductions, and masked writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tpuc.lowerings.cumulative import running_count
from tpuc.lowerings.indexing import is_mask, narrow, numpy_index, positions, read, settle_masks
from tpuc.lowerings.registry import lowering
from tpuc.lowerings.sorting import searchsorted

Array = jax.Array
#: Where to write: a function that opens `x.at[...]` for an array of the destination's shape.
Place = Callable[[Array], Any]
Reduction = Literal["sum", "prod", "mean", "amax", "amin"]

_WRAP = "torch-mlir does not wrap negative indices"
_LACKS = "torch-mlir fails"


@lowering("aten.index_put.default", "aten._unsafe_index_put.default", "aten._index_put_impl.default", why=_WRAP)
def index_put(
    x: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False, _unsafe: bool = False
) -> Array:
    """Writes, or adds, values at the places that tensors or a mask name."""
    values = values.astype(x.dtype)
    indices = settle_masks(indices)
    if any(index is not None and is_mask(index) for index in indices):
        return _mask_put(x, indices, values, accumulate)
    selected = numpy_index(x, indices)
    if not x.size or any(isinstance(index, jax.Array) and not index.size for index in selected):
        return x
    return _write(lambda y: y.at[selected], x, values, accumulate)


@lowering("aten.put.default", why=_WRAP)
def put(x: Array, index: Array, source: Array, accumulate: bool = False) -> Array:
    """Writes, or adds, to elements of the flattened tensor; negative indices count from the end."""
    if not index.size:
        return x
    place = narrow(index, x.size)
    return _write(lambda y: y.at[place], x.reshape(-1), source, accumulate).reshape(x.shape)


@lowering("aten.masked_scatter.default", why=_LACKS)
def masked_scatter(x: Array, mask: Array, source: Array) -> Array:
    """Writes the source's elements, in order, where the mask holds."""
    shape = jnp.broadcast_shapes(x.shape, mask.shape)
    x, mask = jnp.broadcast_to(x, shape), jnp.broadcast_to(mask, shape)
    if not source.size:
        return x
    return jnp.where(mask, read(source.reshape(-1), _rank_in(mask)), x)


@lowering("aten.scatter.src", why=_LACKS)
def scatter(x: Array, dim: int, index: Array, src: Array) -> Array:
    """For every position of the index, writes the source's element to the place it names."""
    if not index.size:
        return x
    x1, index, src = jnp.atleast_1d(x), jnp.atleast_1d(index), jnp.atleast_1d(src)
    values = _cut(src, index.shape).astype(x.dtype)
    return x1.at[positions(dim, index)].set(values, mode="promise_in_bounds").reshape(x.shape)


@lowering("aten.scatter.value", why=_LACKS)
def scatter_value(x: Array, dim: int, index: Array, value: Any) -> Array:
    """Writes one value to every place that the index names."""
    return scatter(x, dim, index, jnp.full(index.shape, value, x.dtype))


@lowering("aten.scatter.reduce", why=_LACKS)
def scatter_with(x: Array, dim: int, index: Array, src: Array, *, reduce: str) -> Array:
    """Adds to, or multiplies, the places that the index names."""
    return scatter_reduce(x, dim, index, src, "sum" if reduce == "add" else "prod")


@lowering("aten.scatter.value_reduce", why=_LACKS)
def scatter_value_with(x: Array, dim: int, index: Array, value: Any, *, reduce: str) -> Array:
    """Adds one value to, or multiplies by it, the places that the index names."""
    return scatter_with(x, dim, index, jnp.full(index.shape, value, x.dtype), reduce=reduce)


@lowering("aten.scatter_add.default", why=_LACKS)
def scatter_add(x: Array, dim: int, index: Array, src: Array) -> Array:
    """Adds the source's elements to the places that the index names."""
    return scatter_reduce(x, dim, index, src, "sum")


@lowering("aten.scatter_reduce.two", why=_LACKS)
def scatter_reduce(
    x: Array, dim: int, index: Array, src: Array, reduce: Reduction, *, include_self: bool = True
) -> Array:
    """Reduces the source's elements into the places that the index names.

    Args:
        x: The destination.
        dim: The dimension that the index is of.
        index: i64, not larger than the source, nor in the other dimensions than the destination.
        src: The source.
        reduce: `sum`, `prod`, `mean` (of integers: rounded down), `amax` or `amin`.
        include_self: Whether the destination's own element takes part.
    """
    if not index.size:
        return x
    x1, index, src = jnp.atleast_1d(x), jnp.atleast_1d(index), jnp.atleast_1d(src)
    place = positions(dim, index)
    reduced = _reduce_into(lambda y: y.at[place], x1, _cut(src, index.shape), reduce, include_self)
    return reduced.reshape(x.shape)


@lowering("aten.index_reduce.default", why=_LACKS)
def index_reduce(
    x: Array, dim: int, index: Array, source: Array, reduce: Reduction, *, include_self: bool = True
) -> Array:
    """Reduces the source's slices into the slices of a dimension that the index names."""
    if not index.size or not x.size:
        return x
    x1, source, index = jnp.atleast_1d(x), jnp.atleast_1d(source), jnp.atleast_1d(index)
    place = (slice(None),) * (dim % x1.ndim) + (narrow(index, x1.shape[dim]),)
    return _reduce_into(lambda y: y.at[place], x1, source, reduce, include_self).reshape(x.shape)


@lowering("aten.slice_scatter.default", why="a slice is written")
def slice_scatter(
    x: Array, src: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    """Writes a slice of a dimension."""
    dim, size = dim % x.ndim, x.shape[dim]
    first, last, step = slice(start, end, step).indices(size)
    src = src.astype(x.dtype)
    if step == 1:
        return lax.dynamic_update_slice_in_dim(x, src, first, axis=dim) if src.size else x
    # The source is spread to the tensor's size, and selected where it stands.
    reach = max(src.shape[dim] - 1, 0) * step + 1
    edges = [(0, 0, 0)] * x.ndim
    edges[dim] = (first, size - first - reach, step - 1)
    place = lax.broadcasted_iota(jnp.int32, x.shape, dim) - first
    is_written = (place >= 0) & (place < last - first) & (place % step == 0)
    return jnp.where(is_written, lax.pad(src, jnp.zeros((), x.dtype), edges), x) if src.size else x


@lowering("aten.select_scatter.default", why="one element of a dimension is written")
def select_scatter(x: Array, src: Array, dim: int, index: Any) -> Array:
    """Writes one element of a dimension; its index may be computed."""
    return lax.dynamic_update_index_in_dim(x, jnp.expand_dims(src, dim).astype(x.dtype), index, axis=dim % x.ndim)


@lowering("aten.copy.default", why="broadcast and cast to the destination")
def copy(x: Array, src: Array, non_blocking: bool = False) -> Array:
    """The source in the destination's shape and dtype."""
    return jnp.broadcast_to(src, x.shape).astype(x.dtype)


@lowering("aten.segment_reduce.default", why=_LACKS)
def segment_reduce(
    data: Array,
    reduce: str,
    *,
    lengths: Array | None = None,
    indices: Array | None = None,
    offsets: Array | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Array:
    """Reduces runs of a dimension.

    Args:
        data: [..., n, ...].
        reduce: `sum`, `prod`, `mean`, `max` or `min`.
        lengths: [..., segments], the length of each run.
        indices: Not taken, as in PyTorch.
        offsets: [..., segments + 1], the bounds of the runs, in place of lengths.
        axis: The dimension; the dimensions before it are those of lengths.
        unsafe: Whether the lengths are left unchecked; they always are.
        initial: What each run starts with, and an empty one gives.
    """
    if offsets is None:
        assert lengths is not None
        offsets = jnp.concatenate([jnp.zeros_like(lengths[..., :1]), jnp.cumsum(lengths, -1)], -1)
    kind: Reduction = {"max": "amax", "min": "amin"}.get(reduce, reduce)  # type: ignore[assignment]
    segments = offsets.shape[-1] - 1
    lead, rest = data.shape[:axis], data.shape[axis + 1 :]

    def reduce_rows(rows: Array, bounds: Array) -> Array:
        segment = searchsorted(bounds, jnp.arange(rows.shape[0], dtype=bounds.dtype), right=True) - 1
        start = jnp.full((segments, *rest), _identity(kind, data.dtype) if initial is None else initial, data.dtype)
        summed = _combine(start.at[segment], "sum" if kind == "mean" else kind, rows)
        if kind != "mean":
            return summed
        count = (bounds[1:] - bounds[:-1]).reshape(-1, *(1,) * len(rest))
        # An empty run gives what it starts with, or NaN.
        empty = jnp.asarray(jnp.nan if initial is None else initial, data.dtype)
        return jnp.where(count == 0, empty, summed / jnp.maximum(count, 1).astype(data.dtype))

    reduced = jax.vmap(reduce_rows)(
        data.reshape(-1, *data.shape[axis:]), jnp.broadcast_to(offsets, (*lead, segments + 1)).reshape(-1, segments + 1)
    )
    return reduced.reshape(*lead, segments, *rest)


def _write(place: Place, x: Array, values: Array, accumulate: bool) -> Array:
    if accumulate:
        return _reduce_into(place, x, values, "sum", include_self=True)
    return place(x).set(values, mode="promise_in_bounds")


def _mask_put(x: Array, indices: Sequence[Array | None], values: Array, accumulate: bool) -> Array:
    """Writes where a mask over some adjacent dimensions holds: `values` has one dimension in their place."""
    given = [(number, index) for number, index in enumerate(indices) if index is not None]
    if len(given) > 1:
        raise NotImplementedError("a mask beside other indices reads a number of values that depends on the data")
    (lead, mask), *_ = given
    mask = mask != 0
    rest = x.ndim - lead - mask.ndim
    values = values.reshape((1,) * (lead + 1 + rest - values.ndim) + values.shape)
    if values.shape[lead] == 1:
        values = values.reshape(*values.shape[:lead], *(1,) * mask.ndim, *values.shape[lead + 1 :])
    else:
        values = read(values, (*(slice(None),) * lead, _rank_in(mask)))
    written = x + values if accumulate else jnp.broadcast_to(values, x.shape)
    return jnp.where(mask.reshape(*mask.shape, *(1,) * rest), written, x)


def _rank_in(mask: Array) -> Array:
    """For each place, how many hold before it in row-major order."""
    return running_count(mask) - mask


def _cut(src: Array, shape: Sequence[int]) -> Array:
    return lax.slice(src, (0,) * src.ndim, tuple(shape))


def _reduce_into(place: Place, x: Array, src: Array, reduce: Reduction, include_self: bool) -> Array:
    """Reduces `src` into places of `x`, halves in f32 and bools as integers; the caller casts back."""
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.int32)
    elif x.dtype in (jnp.bfloat16, jnp.float16):
        x = x.astype(jnp.float32)
    src = src.astype(x.dtype)
    count = jnp.zeros((), jnp.int32)
    if reduce == "mean" or not include_self:
        count = place(jnp.full(x.shape, int(include_self), jnp.int32)).add(1)
    if not include_self:
        x = jnp.where(count > 0, _identity(reduce, x.dtype), x)
    reduced = _combine(place(x), "sum" if reduce == "mean" else reduce, src)
    if reduce != "mean":
        return reduced
    count = jnp.maximum(count, 1).astype(x.dtype)
    return reduced // count if jnp.issubdtype(x.dtype, jnp.integer) else reduced / count


def _combine(at: Any, reduce: Reduction, values: Array) -> Array:
    combine = {"sum": at.add, "prod": at.multiply, "amax": at.max, "amin": at.min}[reduce]
    combined: Array = combine(values, mode="drop")
    return combined


def _identity(reduce: Reduction, dtype: Any) -> Array:
    if reduce in ("sum", "mean"):
        return jnp.zeros((), dtype)
    if reduce == "prod":
        return jnp.ones((), dtype)
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.asarray(-np.inf if reduce == "amax" else np.inf, dtype)
    limits = jnp.iinfo(dtype)
    return jnp.asarray(limits.min if reduce == "amax" else limits.max, dtype)
