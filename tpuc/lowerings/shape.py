"""Views and copies: what moves elements and computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from tpuc.lowerings.dtypes import is_array, to_jax
from tpuc.lowerings.indexing import read
from tpuc.lowerings.registry import lowering

Array = jax.Array
#: Windows are cut by so many slices at most; beyond that, a gather is the smaller program.
_SLICES = 32
_COPY = "a program has values, not storage: a copy is its input"


@lowering(
    "aten.clone.default",
    "aten.alias.default",
    "aten.detach.default",
    "aten.detach_.default",
    "aten.contiguous.default",
    "aten.lift_fresh_copy.default",
    "aten.lift_fresh.default",
    "aten.positive.default",
    "aten.resolve_conj.default",
    "aten.resolve_neg.default",
    why=_COPY,
)
def identity(x: Array, **_kwargs: Any) -> Array:
    """The input."""
    return x


@lowering("aten._to_copy.default", why=_COPY)
def to_copy(x: Array, *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """The input in another dtype; device and layout mean nothing here."""
    return x if dtype is None else _cast(x, dtype)


@lowering("aten.to.dtype", why=_COPY)
def to_dtype(x: Array, dtype: torch.dtype, *_flags: Any, **_kwargs: Any) -> Array:
    """The input in another dtype."""
    return _cast(x, dtype)


@lowering("aten.to.dtype_layout", why=_COPY)
def to_dtype_layout(x: Array, *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """The input in another dtype; layout and device mean nothing here."""
    return x if dtype is None else _cast(x, dtype)


@lowering("aten.to.device", why=_COPY)
def to_device(x: Array, _device: torch.device, dtype: torch.dtype, *_flags: Any, **_kwargs: Any) -> Array:
    """The input in another dtype; the device means nothing here."""
    return _cast(x, dtype)


@lowering("prims.convert_element_type.default", why=_COPY)
def convert_element_type(x: Array, dtype: torch.dtype) -> Array:
    """The input in another dtype."""
    return _cast(x, dtype)


@lowering("aten.type_as.default", "aten.to.other", why=_COPY)
def type_as(x: Array, other: Array, *_flags: Any, **_kwargs: Any) -> Array:
    """The input in the dtype of another tensor."""
    return x.astype(other.dtype)


@lowering(
    "aten.view.default",
    "aten.reshape.default",
    "aten._unsafe_view.default",
    "aten._reshape_copy.default",
    why="row-major order is kept",
)
def reshape(x: Array, size: Sequence[int]) -> Array:
    """The same elements in another shape."""
    return jnp.reshape(x, size)


@lowering("aten.view.dtype", why="the bits are kept")
def view_dtype(x: Array, dtype: torch.dtype) -> Array:
    """The same bits as another dtype; the last dimension changes with the element's size."""
    return x.view(to_jax(dtype))


@lowering("aten.flatten.using_ints", why="row-major order is kept")
def flatten(x: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    """Merges a range of dimensions."""
    if x.ndim == 0:
        return x.reshape(1)
    start, end = start_dim % x.ndim, end_dim % x.ndim
    return x.reshape(*x.shape[:start], -1, *x.shape[end + 1 :])


@lowering("aten.unflatten.int", why="row-major order is kept")
def unflatten(x: Array, dim: int, sizes: Sequence[int]) -> Array:
    """Splits a dimension."""
    dim %= x.ndim
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


@lowering("aten.permute.default", why="a transpose")
def permute(x: Array, dims: Sequence[int]) -> Array:
    """Reorders the dimensions."""
    return jnp.transpose(x, [dim % x.ndim for dim in dims])


@lowering("aten.transpose.int", "aten.swapaxes.default", "aten.swapdims.default", why="a transpose")
def transpose(x: Array, first: int, second: int) -> Array:
    """Swaps two dimensions."""
    return jnp.swapaxes(x, first, second) if x.ndim else x


@lowering("aten.numpy_T.default", why="a transpose")
def reverse_dimensions(x: Array) -> Array:
    """Turns the order of all dimensions around."""
    return jnp.transpose(x)


@lowering("aten.t.default", "aten.mT.default", why="a transpose")
def matrix_transpose(x: Array) -> Array:
    """Swaps the last two dimensions; vectors stay."""
    return jnp.swapaxes(x, -1, -2) if x.ndim >= 2 else x


@lowering("aten.movedim.int", "aten.movedim.intlist", why="a transpose")
def movedim(x: Array, source: Any, destination: Any) -> Array:
    """Moves dimensions to other places."""
    return jnp.moveaxis(x, source, destination)


@lowering("aten.unsqueeze.default", why="a reshape")
def unsqueeze(x: Array, dim: int) -> Array:
    """Adds a dimension of size 1."""
    return jnp.expand_dims(x, dim)


@lowering("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", why="a reshape")
def squeeze(x: Array, dim: int | Sequence[int] | None = None) -> Array:
    """Removes dimensions of size 1: all, or those named that have it."""
    if x.ndim == 0:
        return x
    named = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return jnp.squeeze(x, tuple({d % x.ndim for d in named if x.shape[d] == 1}))


@lowering("aten.expand.default", why="a broadcast")
def expand(x: Array, size: Sequence[int], *, implicit: bool = False) -> Array:
    """Broadcasts to a shape; -1 keeps a dimension."""
    lead = len(size) - x.ndim
    return jnp.broadcast_to(x, [x.shape[i - lead] if n == -1 else n for i, n in enumerate(size)])


@lowering("aten.expand_as.default", "aten.view_as.default", "aten.reshape_as.default", why="another tensor's shape")
def expand_as(x: Array, other: Array) -> Array:
    """Takes another tensor's shape."""
    return x.reshape(other.shape) if x.size == other.size else jnp.broadcast_to(x, other.shape)


@lowering("aten.broadcast_to.default", why="a broadcast")
def broadcast_to(x: Array, size: Sequence[int]) -> Array:
    """Broadcasts to a shape."""
    return expand(x, size)


@lowering("aten.cat.default", "aten.concat.default", "aten.concatenate.default", why="empty vectors join anything")
def cat(tensors: Sequence[Array], dim: int = 0) -> Array:
    """Joins along a dimension; PyTorch lets a tensor of shape [0] join any."""
    real = [x for x in tensors if x.shape != (0,)]
    return jnp.concatenate(real, axis=dim) if real else tensors[0]


@lowering("aten.stack.default", why="a new dimension")
def stack(tensors: Sequence[Array], dim: int = 0) -> Array:
    """Joins along a new dimension."""
    return jnp.stack(tensors, axis=dim)


@lowering("aten.slice.Tensor", why="torch-mlir computes the bounds at run time")
def slice_(x: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Array:
    """Every `step`th element of a range of a dimension; bounds are clamped."""
    first, last, step = slice(start, end, step).indices(x.shape[dim])
    return lax.slice_in_dim(x, first, max(first, last), step, axis=dim)


@lowering("aten.select.int", why="torch-mlir computes the index at run time")
def select(x: Array, dim: int, index: Any) -> Array:
    """One element of a dimension, which goes; its index may be computed."""
    if is_array(index):
        return lax.dynamic_index_in_dim(x, index, axis=dim, keepdims=False)
    return lax.index_in_dim(x, index % x.shape[dim], axis=dim, keepdims=False)


@lowering("aten.narrow.default", why="a slice")
def narrow(x: Array, dim: int, start: int, length: int) -> Array:
    """A range of a dimension."""
    start %= max(x.shape[dim], 1)
    return lax.slice_in_dim(x, start, start + length, axis=dim)


@lowering("aten.narrow.Tensor", why="a slice whose start is computed")
def narrow_from(x: Array, dim: int, start: Array, length: int) -> Array:
    """A range of a dimension; a negative start counts from the end."""
    return lax.dynamic_slice_in_dim(x, start.reshape(()), length, axis=dim % x.ndim)


@lowering("aten.unbind.int", why="several results")
def unbind(x: Array, dim: int = 0) -> list[Array]:
    """Every element of a dimension, which goes."""
    return [lax.index_in_dim(x, i, axis=dim, keepdims=False) for i in range(x.shape[dim])]


@lowering("aten.split.Tensor", why="several results")
def split(x: Array, split_size: int, dim: int = 0) -> list[Array]:
    """Pieces of one size; the last may be shorter."""
    size = x.shape[dim]
    if size == 0:
        return [x]
    return [lax.slice_in_dim(x, i, min(i + split_size, size), axis=dim) for i in range(0, size, split_size)]


@lowering("aten.split_with_sizes.default", "aten.split.sizes", why="several results")
def split_with_sizes(x: Array, split_sizes: Sequence[int], dim: int = 0) -> list[Array]:
    """Pieces of given sizes."""
    pieces, start = [], 0
    for size in split_sizes:
        pieces.append(lax.slice_in_dim(x, start, start + size, axis=dim))
        start += size
    return pieces


@lowering("aten.chunk.default", why="several results")
def chunk(x: Array, chunks: int, dim: int = 0) -> list[Array]:
    """So many pieces of one size, or fewer; the last may be shorter."""
    size = x.shape[dim]
    return split(x, -(-size // chunks), dim) if size else [x] * chunks


@lowering("aten.flip.default", why="a reverse")
def flip(x: Array, dims: Sequence[int]) -> Array:
    """Reverses dimensions."""
    return jnp.flip(x, tuple(dims)) if dims else x


@lowering("aten.roll.default", why="slices joined the other way round")
def roll(x: Array, shifts: Sequence[int], dims: Sequence[int] = ()) -> Array:
    """Rotates along dimensions, or the flattened tensor."""
    if not dims:
        return jnp.roll(x, shifts[0] if len(shifts) == 1 else tuple(shifts))
    return jnp.roll(x, tuple(shifts), tuple(dims))


@lowering("aten.repeat.default", why="leading dimensions are added")
def repeat(x: Array, repeats: Sequence[int]) -> Array:
    """Tiles; more repeats than dimensions add leading ones."""
    return jnp.tile(x.reshape((1,) * (len(repeats) - x.ndim) + x.shape), tuple(repeats))


@lowering("aten.unfold.default", "aten.unfold_copy.default", why="slices; PyTorch reads the storage")
def unfold(x: Array, dim: int, size: int, step: int) -> Array:
    """Windows over a dimension, which becomes their number; a window is the last dimension."""
    if x.ndim == 0:
        return x.reshape(1)[:size]
    y = jnp.moveaxis(x, dim, -1)
    count = (y.shape[-1] - size) // step + 1
    starts = range(0, size, step)
    if len(starts) > _SLICES:
        places = jnp.arange(count, dtype=jnp.int32)[:, None] * step + jnp.arange(size, dtype=jnp.int32)
        windows = read(y, (..., places))
    else:
        # Row i of the part from `start` is the piece of window i that begins there.
        room = max(size - step, 0) + count * step
        y = lax.pad(y, jnp.zeros((), y.dtype), [(0, 0, 0)] * (y.ndim - 1) + [(0, max(room - y.shape[-1], 0) + step, 0)])
        parts = [
            y[..., start : start + count * step].reshape(*y.shape[:-1], count, step)[..., : size - start]
            for start in starts
        ]
        windows = jnp.concatenate(parts, -1) if parts else jnp.zeros((*y.shape[:-1], count, 0), x.dtype)
    return jnp.moveaxis(windows, -2, dim % x.ndim)


def _cast(x: Array, dtype: torch.dtype) -> Array:
    wanted = to_jax(dtype)
    if jnp.issubdtype(x.dtype, jnp.complexfloating) and not jnp.issubdtype(wanted, jnp.complexfloating):
        x = x.real
    return x.astype(wanted)
