"""Reading and writing at indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tpuc.lowerings.registry import lowering

Array = jax.Array


@lowering("aten.embedding.default", why="torch-mlir wraps indices that cannot be negative")
def embedding(weight: Array, indices: Array, padding_idx: int = -1, *_flags: Any) -> Array:
    """Rows of a table."""
    return weight.at[indices].get(mode="clip", wrap_negative_indices=False)


@lowering("aten.index_select.default", why="JAX's gather")
def index_select(x: Array, dim: int, index: Array) -> Array:
    """Elements of a dimension, by index."""
    if x.ndim == 0:
        return x
    return jnp.take(x, index, axis=dim, mode="clip") if index.ndim else jnp.take(x, index[None], axis=dim, mode="clip")


@lowering("aten.gather.default", why="torch-mlir makes one-hot products")
def gather(x: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    """For every position of the index, the element of a dimension that it names."""
    if x.ndim == 0:
        return jnp.broadcast_to(x, index.shape)
    x = x[tuple(slice(None) if d == dim % x.ndim else slice(size) for d, size in enumerate(index.shape))]
    return jnp.take_along_axis(x, index, axis=dim, mode="clip")


@lowering("aten.index.Tensor", "aten._unsafe_index.Tensor", why="torch-mlir does not wrap negative indices")
def index(x: Array, indices: Sequence[Array | None]) -> Array:
    """Indexing by tensors, as NumPy has it; None takes a whole dimension."""
    return x.at[_as_numpy_index(indices)].get(mode="clip")


@lowering("aten.index_put.default", "aten._unsafe_index_put.default", why="torch-mlir does not wrap negative indices")
def index_put(x: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False) -> Array:
    """Writes, or adds, values at the places that tensors name."""
    at = x.at[_as_numpy_index(indices)]
    values = values.astype(x.dtype)
    return at.add(values) if accumulate else at.set(values)


@lowering("aten.slice_scatter.default", why="a slice is written")
def slice_scatter(
    x: Array, src: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    """Writes a slice of a dimension."""
    return x.at[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)].set(src.astype(x.dtype))


@lowering("aten.select_scatter.default", why="one element of a dimension is written")
def select_scatter(x: Array, src: Array, dim: int, index: int) -> Array:
    """Writes one element of a dimension."""
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)].set(src.astype(x.dtype))


@lowering("aten.copy.default", why="broadcast and cast to the destination")
def copy(x: Array, src: Array, non_blocking: bool = False) -> Array:
    """The source in the destination's shape and dtype."""
    return jnp.broadcast_to(src, x.shape).astype(x.dtype)


@lowering("aten.one_hot.default", why="a comparison with an iota")
def one_hot(x: Array, num_classes: int = -1) -> Array:
    """A one at each element's index."""
    if num_classes < 0:
        raise NotImplementedError("one_hot without num_classes has a size that depends on the data")
    return (x[..., None] == jnp.arange(num_classes, dtype=x.dtype)).astype(jnp.int64)


def _as_numpy_index(indices: Sequence[Array | None]) -> tuple[Any, ...]:
    for index in indices:
        if index is not None and index.dtype in (jnp.bool_, jnp.uint8):
            raise NotImplementedError("indexing by a mask has a size that depends on the data")
    return tuple(slice(None) if index is None else index for index in indices)
