"""Sorting, selection by rank, and search in sorted sequences.

NaN counts as larger than every number. Among equal elements the order is that of a stable sort, which is one of the
orders that PyTorch allows itself.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tpuc.lowerings.any_size import sizes_vary
from tpuc.lowerings.dtypes import computation_dtype
from tpuc.lowerings.registry import lowering

Array = jax.Array

#: Up to so many boundaries, comparisons in one elementwise fusion. For 16 boundaries and 262,144 values, v5e's compiler
#: estimates 9,152 cycles; as a reduction over a dimension of 16, 42,336.
_COMPARE_EACH = 32
#: Up to so many, comparing with all of them is faster than a search, whose every step is a gather.
_COMPARE_ALL = 256
#: Of a binary search where the number of elements, an i32, varies.
_MOST_STEPS = 32


@lowering("aten.sort.default", "aten.sort.stable", why="torch-mlir has no stable sort")
def sort(x: Array, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> tuple[Array, Array]:
    """The elements of a dimension in order, and where each was; always stable."""
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    dim %= x.ndim
    # Reversed before and after, so that equal elements of a descending order keep theirs.
    y = jnp.flip(x, dim) if descending else x
    values, places = lax.sort((y, _iota(y, dim)), dimension=dim, num_keys=1)
    if descending:
        values, places = jnp.flip(values, dim), x.shape[dim] - 1 - jnp.flip(places, dim)
    return values, places


@lowering("aten.topk.default", why="XLA's own top-k")
def topk(x: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:  # noqa: A002  ATen's name
    """The k largest or smallest elements of a dimension, in order, and where they are."""
    if x.ndim == 0:
        return (x, jnp.zeros((), jnp.int64)) if k else (x.reshape(1)[:0], jnp.zeros(0, jnp.int64))
    rows = jnp.moveaxis(x, dim, -1)
    keys = rows if largest else _reversed_order(rows)
    if jnp.issubdtype(keys.dtype, jnp.floating):
        # XLA orders NaN by its sign: below every number, or above.
        keys = jnp.where(jnp.isnan(keys), jnp.asarray(jnp.nan if largest else -jnp.nan, keys.dtype), keys)
    values, places = lax.top_k(keys, k)
    values = values if largest else _reversed_order(values)
    return jnp.moveaxis(values, -1, dim), jnp.moveaxis(places, -1, dim)


@lowering("aten.kthvalue.default", why="a sort")
def kthvalue(x: Array, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    """The k-th smallest element of a dimension, counted from 1, and where it is."""
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    values, places = sort(x, dim)
    return _at(values, dim, k - 1, keepdim), _at(places, dim, k - 1, keepdim)


@lowering("aten.median.default", why="a sort")
def median_all(x: Array) -> Array:
    """The lower median of all elements; NaN if there is one, or if there is no element."""
    return median(x.reshape(-1), 0)[0] if x.size else jnp.full((), jnp.nan, x.dtype)


@lowering("aten.median.dim", why="a sort")
def median(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The lower median of a dimension, and where it is; the first NaN if there is one."""
    values, places = kthvalue(x, (x.shape[dim] + 1) // 2 if x.ndim else 1, dim, keepdim)
    if not x.ndim or not jnp.issubdtype(x.dtype, jnp.floating):
        return values, places
    nan = jnp.isnan(x)
    found = nan.any(dim, keepdims=keepdim)
    first = jnp.argmax(nan, dim, keepdims=keepdim)
    return jnp.where(found, jnp.asarray(jnp.nan, x.dtype), values), jnp.where(found, first, places)


@lowering("aten.nanmedian.default", why="a sort")
def nanmedian_all(x: Array) -> Array:
    """The lower median of all elements that are not NaN."""
    return nanmedian(x.reshape(-1), 0)[0] if x.size else jnp.full((), jnp.nan, x.dtype)


@lowering("aten.nanmedian.dim", why="a sort")
def nanmedian(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The lower median of a dimension's elements that are not NaN, and where it is."""
    if not x.ndim or not jnp.issubdtype(x.dtype, jnp.floating):
        return median(x, dim, keepdim)
    values, places = sort(x, dim)
    # NaN stand last.
    middle = jnp.maximum(jnp.sum(~jnp.isnan(x), dim, keepdims=True, dtype=jnp.int32) - 1, 0) // 2
    found = [jnp.take_along_axis(y, middle, axis=dim, mode="clip") for y in (values, places)]
    return (found[0], found[1]) if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


@lowering("aten.mode.default", why="a sort, and the longest run")
def mode(x: Array, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    """The most frequent element of a dimension, the smallest of several, and its last place."""
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    dim %= x.ndim
    values, places = sort(x, dim)
    number = _iota(x, dim)
    first = jnp.ones_like(_at(number, dim, 0, keepdim=True), bool)
    size = x.shape[dim]
    differs = lax.slice_in_dim(values, 1, size, axis=dim) != lax.slice_in_dim(values, 0, size - 1, axis=dim)
    starts = jnp.concatenate([first, differs], axis=dim)
    length = number - lax.cummax(jnp.where(starts, number, 0), axis=dim)
    last = jnp.argmax(length, dim, keepdims=True)
    found = [jnp.take_along_axis(y, last, axis=dim, mode="clip") for y in (values, places)]
    return (found[0], found[1]) if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


@lowering("aten.searchsorted.Tensor", "aten.searchsorted.Scalar", why="torch-mlir lacks it")
def searchsorted(
    sequence: Array,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Array | None = None,
) -> Array:
    """Where to insert values into sorted rows so that they stay sorted.

    Args:
        sequence: [..., n], or [n] for values of any shape.
        values: [..., m], or a number.
        out_int32: Whether the result is i32; its dtype is PyTorch's to say.
        right: Whether a value goes behind its equals.
        side: "left" or "right", the same as `right`.
        sorter: [..., n], the order that sorts the sequence.
    """
    behind = right or side == "right"
    if sorter is not None:
        sequence = jnp.take_along_axis(sequence, sorter.astype(jnp.int32), axis=-1, mode="clip")
    dtype = computation_dtype([sequence, values], "default")
    rows, values = sequence.astype(dtype), jnp.asarray(values, dtype)
    if rows.ndim == 1 or not values.size:
        return search_row(rows, values, behind)
    count = math.prod(rows.shape[:-1])
    flat = jax.vmap(lambda row, wanted: search_row(row, wanted, behind))(
        rows.reshape(count, rows.shape[-1]), values.reshape(count, values.shape[-1])
    )
    return flat.reshape(values.shape)


@lowering("aten.bucketize.Tensor", "aten.bucketize.Scalar", why="PyTorch's decomposition reads the boundaries")
def bucketize(values: Any, boundaries: Array, *, out_int32: bool = False, right: bool = False) -> Array:
    """The number of the bucket of each value; buckets are closed on the right, or with `right` on the left."""
    return searchsorted(boundaries, values, right=right)


def search_row(row: Array, values: Array, behind: bool = False) -> Array:
    """Returns, as i32, where to insert values of any shape into a sorted vector: before their equals, or behind.

    Three ways, by what a TPU does fast: comparisons written out, comparisons with all, a binary search, which is the
    way for a size that varies.
    """

    # Said so that a NaN among the values goes to the end, as in PyTorch.
    def goes_after(element: Array) -> Array:
        return ~(element > values) if behind else ~(element >= values)

    if not row.size or not values.size:
        return jnp.zeros(values.shape, jnp.int32)
    if row.size <= _COMPARE_EACH and not sizes_vary():
        return sum((goes_after(element).astype(jnp.int32) for element in row), jnp.zeros(values.shape, jnp.int32))
    if row.size <= _COMPARE_ALL and not sizes_vary():
        return jax.vmap(goes_after)(row).sum(0, dtype=jnp.int32)

    def step(_: Any, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) // 2
        after = goes_after(row.at[middle].get(mode="promise_in_bounds", wrap_negative_indices=False))
        return jnp.where(after & (low < high), middle + 1, low), jnp.where(after, high, middle)

    bounds = (jnp.zeros(values.shape, jnp.int32), jnp.full(values.shape, row.size, jnp.int32))
    # Steps beyond the last change nothing.
    steps = _MOST_STEPS if sizes_vary() else row.size.bit_length()
    return lax.fori_loop(0, steps, step, bounds)[0]


def _iota(x: Array, dim: int) -> Array:
    return lax.broadcasted_iota(jnp.int32, x.shape, dim)


def _at(x: Array, dim: int, index: int, keepdim: bool) -> Array:
    return lax.index_in_dim(x, index, axis=dim, keepdims=keepdim)


def _reversed_order(x: Array) -> Array:
    """The other way round, so that the largest is the smallest; twice is the input. No integer overflows."""
    return -x if jnp.issubdtype(x.dtype, jnp.floating) else ~x
