"""`as_strided`: reading and writing a tensor's storage at strides.

A program has values, not storage. `rewrite_as_strided` puts an operator of ours in the place of each `as_strided`: it
takes the tensor whose elements are the storage that is read, and the layout that PyTorch recorded for it. (torch-mlir
rewrites `aten.as_strided` nodes by themselves, into constants that a graph without weights has no place for.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from tpuc.lowerings.indexing import read
from tpuc.lowerings.registry import lowering

Array = jax.Array
Places: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

torch.library.define(
    "tpuc::strided_read",
    "(Tensor base, int[] base_stride, int base_offset, int[] size, int[] stride, int offset) -> Tensor",
)
torch.library.define(
    "tpuc::strided_write",
    "(Tensor base, int[] base_stride, int base_offset, Tensor src, int[] stride, int offset) -> Tensor",
)

_READS = frozenset({"aten.as_strided.default", "aten.as_strided_copy.default"})
_WRITES = frozenset({"aten.as_strided_scatter.default"})


def rewrite_as_strided(graph: torch.fx.Graph) -> None:
    """Replaces `as_strided`, `as_strided_copy` and `as_strided_scatter` by operators that know the layout, in place.

    Args:
        graph: A functional graph whose nodes have fake tensors, with the strides of eager, as `meta["val"]`; the
            branches and loop bodies that it holds are rewritten too.
    """
    assert graph.owning_module is not None
    for module in graph.owning_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in list(module.graph.nodes):
                if node.op == "call_function" and str(node.target) in _READS | _WRITES:
                    _rewrite(node)


def _rewrite(node: torch.fx.Node) -> None:
    source, graph = node.all_input_nodes[0], node.graph
    with graph.inserting_before(node):
        if str(node.target) in _READS:
            size, stride, offset = _geometry(node, source, first=1)
            base = _owner(source)
            operands: tuple[Any, ...] = (base, *_layout(base), size, stride, offset)
            new = graph.call_function(torch.ops.tpuc.strided_read.default, operands)
        else:
            _, stride, offset = _geometry(node, source, first=2)
            operands = (source, *_layout(source), node.args[1], stride, offset)
            new = graph.call_function(torch.ops.tpuc.strided_write.default, operands)
    new.meta = node.meta
    node.replace_all_uses_with(new)
    graph.erase_node(node)


@lowering("tpuc.strided_read.default", why="slices where the places do not overlap, else a gather")
def strided_read(
    base: Array,
    base_stride: Sequence[int],
    base_offset: int,
    size: Sequence[int],
    stride: Sequence[int],
    offset: int,
) -> Array:
    """Reads the storage of a tensor: element i is at `offset + sum(i * stride)`.

    Args:
        base: The tensor whose elements the storage holds.
        base_stride: The strides of its dimensions in the storage.
        base_offset: The place of its first element.
        size: The result's shape.
        stride: The strides of the result's dimensions.
        offset: The place of the result's first element.

    Raises:
        NotImplementedError: A place is read that holds no element of the tensor.
    """
    if 0 in size:
        return jnp.zeros(tuple(size), base.dtype)
    flat = _dense_storage(base, base_stride)
    start = offset - base_offset
    last = start + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if flat is not None and start >= 0 and last < flat.size:
        return read_flat(flat, size, stride, start)
    elements = _elements_at(_places(size, stride, start), base.shape, base_stride)
    if (elements == base.size).any():
        raise NotImplementedError("as_strided reads storage outside of its tensor, which a program's values lack")
    return read(base.reshape(-1), elements)


def read_flat(flat: Array, size: Sequence[int], stride: Sequence[int], start: int) -> Array:
    """Reads a vector at strides: element i is at `start + sum(i * stride)`, and all are inside."""
    # Dimensions of one element or of stride 0 are added at the end, by a broadcast.
    moving = sorted(
        (d for d, (n, step) in enumerate(zip(size, stride, strict=True)) if n > 1 and step), key=lambda d: -stride[d]
    )
    sizes, strides = [size[d] for d in moving], [stride[d] for d in moving]
    if _is_nested(sizes, strides):
        moved = _read_nested(flat[start:], sizes, strides)
    else:
        moved = read(flat, _iota_places(sizes, strides) + jnp.int32(start))
    ordered = moved.transpose([moving.index(d) for d in sorted(moving)])
    return lax.broadcast_in_dim(ordered, tuple(size), sorted(moving))


@lowering("tpuc.strided_write.default", why="a scatter")
def strided_write(
    base: Array, base_stride: Sequence[int], base_offset: int, src: Array, stride: Sequence[int], offset: int
) -> Array:
    """Writes to the storage of a tensor at strides; the arguments are those of `strided_read`."""
    elements = _elements_at(_places(src.shape, stride, offset - base_offset), base.shape, base_stride)
    # What is written beside the tensor's elements is not seen in the result.
    written = base.reshape(-1).at[elements].set(src.astype(base.dtype), mode="drop")
    return written.reshape(base.shape)


def _geometry(node: torch.fx.Node, source: torch.fx.Node, first: int) -> tuple[list[int], list[int], int]:
    """Size, strides and offset of a call, whose arguments hold them from position `first` on."""
    names = ("size", "stride", "storage_offset")
    given: dict[str, Any] = dict(zip(names, node.args[first:], strict=False)) | dict(node.kwargs)
    offset = given.get("storage_offset")
    return list(given["size"]), list(given["stride"]), source.meta["val"].storage_offset() if offset is None else offset


def _layout(node: torch.fx.Node) -> tuple[list[int], int]:
    return list(node.meta["val"].stride()), node.meta["val"].storage_offset()


def _owner(node: torch.fx.Node) -> torch.fx.Node:
    """Follows views up to the tensor whose elements are the whole storage."""
    while node.op == "call_function" and not _fills_storage(node.meta["val"]):
        node = node.all_input_nodes[0]
    return node


def _fills_storage(tensor: torch.Tensor | Sequence[torch.Tensor]) -> bool:
    if not isinstance(tensor, torch.Tensor):
        return False  # The pieces that `split` gives: views all.
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def _dense_storage(base: Array, stride: Sequence[int]) -> Array | None:
    """The elements in the order of storage, or None where some places between them hold none."""
    order = sorted(range(base.ndim), key=lambda d: (-stride[d], base.shape[d] != 1))
    expected = 1
    for d in reversed(order):
        if base.shape[d] == 1:
            continue
        if stride[d] != expected:
            return None
        expected *= base.shape[d]
    return base.transpose(order).reshape(-1)


def _is_nested(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether each dimension lies inside one step of the dimension before it, and steps divide each other."""
    inner = zip(strides, sizes[1:], strides[1:], strict=False)
    return all(outer % step == 0 and n * step <= outer for outer, n, step in inner)


def _read_nested(flat: Array, sizes: Sequence[int], strides: Sequence[int]) -> Array:
    """Reads by reshapes and slices: rows of one step each, of which the inner dimensions are the beginning."""
    lead: tuple[int, ...] = ()
    for n, step in zip(sizes, strides, strict=True):
        missing = n * step - flat.shape[-1]
        if missing > 0:
            flat = lax.pad(flat, jnp.zeros((), flat.dtype), [(0, 0, 0)] * len(lead) + [(0, missing, 0)])
        lead = (*lead, n)
        flat = flat[..., : n * step].reshape(*lead, step)
    return flat[..., 0]


def _iota_places(sizes: Sequence[int], strides: Sequence[int]) -> Array:
    places = jnp.zeros(tuple(sizes), jnp.int32)
    for d, step in enumerate(strides):
        places += lax.broadcasted_iota(jnp.int32, tuple(sizes), d) * jnp.int32(step)
    return places


def _places(size: Sequence[int], stride: Sequence[int], offset: int) -> Places:
    places = np.full(tuple(size), offset, np.int64)
    for d, step in enumerate(stride):
        places += (np.arange(size[d]) * step).reshape(-1, *(1,) * (len(size) - d - 1))
    return places


def _elements_at(places: Places, shape: Sequence[int], stride: Sequence[int]) -> Places:
    """The row-major number of the element at each place of the storage; the number of elements where there is none."""
    held = _places(shape, stride, 0).reshape(-1)
    order = np.argsort(held, kind="stable")
    at = np.searchsorted(held, places, sorter=order)
    found = np.append(order, held.size)[at]
    return np.where(np.append(held, -1)[found] == places, found, held.size)
