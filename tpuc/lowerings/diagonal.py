"""Diagonals and triangles of matrices."""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tpuc.lowerings.indexing import read, repeat_interleave_index
from tpuc.lowerings.registry import lowering

Array = jax.Array
Bounds: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@lowering("aten.diagonal.default", "aten.diagonal_copy.default", why="a strided slice; PyTorch reads the storage")
def diagonal(x: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """A diagonal of the matrices over two dimensions, as the last dimension."""
    y = jnp.moveaxis(x, (dim1, dim2), (-2, -1))
    y = y[..., max(-offset, 0) :, max(offset, 0) :]
    size = min(y.shape[-2:])
    if size == 0:
        return jnp.zeros((*y.shape[:-2], 0), x.dtype)
    return y[..., :size, :size].reshape(*y.shape[:-2], size * size)[..., :: size + 1]


@lowering("aten.diagonal_scatter.default", why="a select; PyTorch writes to the storage")
def diagonal_scatter(x: Array, src: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """Writes a diagonal of the matrices over two dimensions."""
    y = jnp.moveaxis(x, (dim1, dim2), (-2, -1))
    rows, columns = y.shape[-2:]
    # The diagonal's element is spread over its row, or over its column where the diagonal begins below the corner.
    length, axis = (rows, -1) if offset >= 0 else (columns, -2)
    missing = [(0, 0, 0)] * (src.ndim - 1) + [(0, length - src.shape[-1], 0)]
    spread = jnp.expand_dims(lax.pad(src.astype(x.dtype), jnp.zeros((), x.dtype), missing), axis)
    return jnp.moveaxis(jnp.where(_on_diagonal(rows, columns, offset), spread, y), (-2, -1), (dim1, dim2))


@lowering("aten.diag_embed.default", why="a select; PyTorch's decomposition compares in i64")
def diag_embed(x: Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    """Matrices over two new dimensions, with the last dimension on a diagonal and zeros elsewhere."""
    size = x.shape[-1] + abs(offset)
    matrices = diagonal_scatter(jnp.zeros((*x.shape[:-1], size, size), x.dtype), x, offset, -2, -1)
    return jnp.moveaxis(matrices, (-2, -1), (dim1, dim2))


@lowering("aten.tril.default", why="a mask")
def tril(x: Array, diagonal: int = 0) -> Array:
    """The lower triangle of matrices."""
    return jnp.tril(x, diagonal)


@lowering("aten.triu.default", why="a mask")
def triu(x: Array, diagonal: int = 0) -> Array:
    """The upper triangle of matrices."""
    return jnp.triu(x, diagonal)


@lowering("aten.tril_indices.default", why="a row's part is known; PyTorch's decomposition solves for it in f64")
def tril_indices(rows: int, columns: int, offset: int = 0, **_kwargs: Any) -> Array:
    """The rows and the columns of a matrix's lower triangle, [2, n] in row-major order."""
    ends = (np.arange(rows) + offset + 1).clip(0, columns)
    return _cells(np.zeros_like(ends), ends)


@lowering("aten.triu_indices.default", why="a row's part is known; PyTorch's decomposition solves for it in f64")
def triu_indices(rows: int, columns: int, offset: int = 0, **_kwargs: Any) -> Array:
    """The rows and the columns of a matrix's upper triangle, [2, n] in row-major order."""
    starts = (np.arange(rows) + offset).clip(0, columns)
    return _cells(starts, np.full_like(starts, columns))


def _cells(starts: Bounds, ends: Bounds) -> Array:
    """Rows and columns of the cells from a start to an end in each row."""
    counts = ends - starts
    row = repeat_interleave_index(jnp.asarray(counts), output_size=int(counts.sum()))
    # A cell's place among all, less the place of its row's first, is its place in the row.
    shift = jnp.asarray(starts - (np.cumsum(counts) - counts), jnp.int32)
    return jnp.stack([row, jnp.arange(row.size, dtype=jnp.int32) + read(shift, row)]) if row.size else row.reshape(2, 0)


def _on_diagonal(rows: int, columns: int, offset: int) -> Array:
    shape = (rows, columns)
    return lax.broadcasted_iota(jnp.int32, shape, 1) - lax.broadcasted_iota(jnp.int32, shape, 0) == offset
