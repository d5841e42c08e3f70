"""Reading at indices: gathers, tables and selections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tpuc.lowerings.cumulative import running_count
from tpuc.lowerings.registry import lowering
from tpuc.lowerings.sorting import search_row

Array = jax.Array


def narrow(index: Array, size: int) -> Array:
    """Casts an index to i32 where the dimension allows it: a TPU computes i64 in pairs."""
    return index.astype(jnp.int32) if size < 2**31 else index


def read(x: Array, index: Any, *, wrap: bool = False) -> Array:
    """Reads at NumPy's advanced indices; PyTorch has them inside the bounds.

    Args:
        x: The tensor.
        index: Indices as NumPy takes them.
        wrap: Whether negative ones count from the end.
    """
    return x.at[index].get(mode="promise_in_bounds", wrap_negative_indices=wrap)


@lowering("aten.index_select.default", why="JAX's gather")
def index_select(x: Array, dim: int, index: Array) -> Array:
    """Elements of a dimension, by index."""
    if x.ndim == 0:
        return x
    return read(x, (slice(None),) * (dim % x.ndim) + (narrow(jnp.atleast_1d(index), x.shape[dim]),))


@lowering("aten.gather.default", why="torch-mlir makes one-hot products")
def gather(x: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    """For every position of the index, the element of a dimension that it names."""
    if not index.size:
        return jnp.zeros(index.shape, x.dtype)
    return read(jnp.atleast_1d(x), positions(dim, jnp.atleast_1d(index))).reshape(index.shape)


def positions(dim: int, index: Array) -> tuple[Array, ...]:
    """Returns an index for each dimension: the given one for `dim`, and an element's own place for the others."""
    dim %= index.ndim
    return tuple(
        index.astype(jnp.int32) if d == dim else lax.broadcasted_iota(jnp.int32, index.shape, d)
        for d in range(index.ndim)
    )


@lowering("aten.take.default", why="PyTorch's decomposition reads the index")
def take(x: Array, index: Array) -> Array:
    """Elements of the flattened tensor; negative indices count from the end."""
    return read(x.reshape(-1), narrow(index, x.size), wrap=True)


@lowering("aten.index.Tensor", "aten._unsafe_index.Tensor", why="torch-mlir does not wrap negative indices")
def index(x: Array, indices: Sequence[Array | None]) -> Array:
    """Indexing by tensors, as NumPy has it; None takes a whole dimension."""
    indices = settle_masks(indices)
    if any(index is not None and is_mask(index) for index in indices):
        raise NotImplementedError("its result has a size that depends on the data")
    selected = numpy_index(x, indices)
    if x.size:
        return read(x, selected, wrap=True)
    # Nothing can be read; JAX's gather would refuse the empty dimension.
    shape = jax.eval_shape(
        lambda: jnp.zeros([max(n, 1) if _is_read(i, indices) else n for i, n in enumerate(x.shape)])[selected]
    )
    return jnp.zeros(shape.shape, x.dtype)


def is_mask(index: Array) -> bool:
    """Whether an index is a mask; PyTorch takes u8 as one."""
    return index.dtype in (jnp.bool_, jnp.uint8)


def settle_masks(indices: Sequence[Array | None]) -> list[Array | None]:
    """Turns masks beside indices of n places into n places: as many hold, or one does, which stands for all.

    Returns:
        The indices, one for each dimension; the same where no index says how many places a mask has.
    """
    others = [index.shape[-1] for index in indices if index is not None and index.ndim and not is_mask(index)]
    sizes = [size for size in others if size != 1]
    if not sizes:
        return list(indices)
    settled: list[Array | None] = []
    for index in indices:
        if index is None or not is_mask(index):
            settled.append(index)
            continue
        places = nonzero_static(index, size=sizes[0])
        settled.extend(jnp.moveaxis(jnp.where(places < 0, places[:1], places), 1, 0))
    return settled


def numpy_index(x: Array, indices: Sequence[Array | None]) -> tuple[Any, ...]:
    """Turns ATen's indices, none of which is a mask, into NumPy's."""
    return tuple(
        slice(None) if index is None else narrow(index, size) for index, size in zip(indices, x.shape, strict=False)
    )


def _is_read(dim: int, indices: Sequence[Array | None]) -> bool:
    return dim < len(indices) and indices[dim] is not None


@lowering("aten.one_hot.default", why="a comparison with an iota")
def one_hot(x: Array, num_classes: int = -1) -> Array:
    """A one at each element's index."""
    if num_classes < 0:
        raise NotImplementedError("without num_classes, its result has a size that depends on the data")
    return (narrow(x, num_classes)[..., None] == jnp.arange(num_classes, dtype=jnp.int32)).astype(jnp.int64)


@lowering("aten.nonzero.default", "aten.argwhere.default", why="nothing holds in an empty tensor")
def nonzero(x: Array) -> Array:
    """The indices of the elements that are not zero: none, in an empty tensor."""
    if x.size:
        raise NotImplementedError("its result has a size that depends on the data")
    return jnp.zeros((0, x.ndim), jnp.int64)


@lowering("aten.nonzero_static.default", why="a size that is given")
def nonzero_static(x: Array, *, size: int, fill_value: int = -1) -> Array:
    """The indices of the first `size` elements that are not zero, one a row; the rest is filled."""
    if not x.ndim or not x.size:
        return jnp.full((size, x.ndim), fill_value, jnp.int64)
    counts = running_count(x != 0).reshape(-1)
    wanted = jnp.arange(1, size + 1, dtype=jnp.int32)
    places = jnp.stack(jnp.unravel_index(search_row(counts, wanted), x.shape), axis=-1)
    return jnp.where((wanted <= counts[-1])[:, None], places, fill_value)


@lowering("aten.repeat_interleave.self_int", why="one count for all")
def repeat_interleave(x: Array, repeats: int, dim: int | None = None, *, output_size: int | None = None) -> Array:
    """Repeats each element in place."""
    return jnp.repeat(x, repeats, axis=dim)


@lowering("aten.repeat_interleave.Tensor", why="a size that is given")
def repeat_interleave_index(repeats: Array, *, output_size: int | None = None) -> Array:
    """Each index as often as its count says."""
    if output_size is None:
        raise NotImplementedError("without output_size, its result has a size that depends on the data")
    # The index goes up by one wherever the run of the one before ends.
    ends = jnp.cumsum(repeats, dtype=jnp.int32)[:-1]
    return jnp.cumsum(jnp.zeros(output_size, jnp.int32).at[ends].add(1, mode="drop"), dtype=jnp.int32)


@lowering("aten.repeat_interleave.self_Tensor", why="a size that is given")
def repeat_interleave_each(
    x: Array, repeats: Array, dim: int | None = None, *, output_size: int | None = None
) -> Array:
    """Repeats each element of a dimension, or of the flattened tensor, as often as its count says."""
    if dim is None:
        x, dim = x.reshape(-1), 0
    counts = jnp.broadcast_to(repeats, (x.shape[dim],))
    return index_select(x, dim, repeat_interleave_index(counts, output_size=output_size))


@lowering("aten.resize.default", why="what is new holds zeros")
def resize(x: Array, size: Sequence[int], *, memory_format: Any = None) -> Array:
    """The first elements in another shape; zeros where PyTorch leaves memory uninitialized."""
    flat, count = x.reshape(-1), math.prod(size)
    return lax.pad(flat, jnp.zeros((), x.dtype), [(0, count - x.size, 0)]).reshape(tuple(size))


@lowering("aten.resize_as.default", why="what is new holds zeros")
def resize_as(x: Array, template: Array, *, memory_format: Any = None) -> Array:
    """The first elements in another tensor's shape."""
    return resize(x, template.shape)
