"""Padding by a constant, by reflection, by the edge, and around."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tpuc.lowerings.registry import lowering

Array = jax.Array
Places: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
_SLICES = "slices joined; PyTorch's decomposition gathers"


@lowering("aten.constant_pad_nd.default", why="negative padding cuts")
def constant_pad_nd(x: Array, pad: Sequence[int], value: Any = 0) -> Array:
    """Pads with a constant, the last dimension's amounts first; negative amounts cut."""
    edges = [(0, 0, 0)] * (x.ndim - len(pad) // 2)
    edges += [(pad[i], pad[i + 1], 0) for i in range(len(pad) - 2, -1, -2)]
    return lax.pad(x, jnp.asarray(value, x.dtype), edges)


@lowering(
    "aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default", why=_SLICES
)
def reflection_pad(x: Array, padding: Sequence[int]) -> Array:
    """Pads the last dimensions by their mirror image, without the edge itself."""
    return _pad(x, padding, lambda places, size: size - 1 - abs(size - 1 - abs(places)))


@lowering(
    "aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default", why=_SLICES
)
def replication_pad(x: Array, padding: Sequence[int]) -> Array:
    """Pads the last dimensions by their first and last elements."""
    return _pad(x, padding, lambda places, size: places.clip(0, size - 1))


@lowering("aten._pad_circular.default", why=_SLICES)
def circular_pad(x: Array, pad: Sequence[int]) -> Array:
    """Pads the last dimensions by the elements from their other end; what negative amounts cut is not among them."""

    def around(places: Places, size: int) -> Places:
        start, end = max(places[0], 0), min(places[-1] + 1, size)
        return start + (places - start) % (end - start)

    return _pad(x, pad, around)


def _pad(x: Array, padding: Sequence[int], element: Callable[[Places, int], Places]) -> Array:
    """Pads, or with negative amounts cuts, the last dimensions.

    Args:
        x: The tensor.
        padding: The amounts before and after each dimension, the last dimension first.
        element: Gives the element that stands at each place, where those of the tensor are at 0 up to its size.
    """
    for number, axis in enumerate(range(x.ndim - 1, x.ndim - 1 - len(padding) // 2, -1)):
        before, after = padding[2 * number : 2 * number + 2]
        size = x.shape[axis]
        places = np.arange(-before, size + after)
        elements = element(places, size) if places.size else places
        # The tensor itself stays one piece, for a run of the padding may go on into it.
        groups = (elements[places < 0], elements[(places >= 0) & (places < size)], elements[places >= size])
        x = lax.concatenate([run for group in groups for run in _runs(x, axis, group)], axis)
    return x


def _runs(x: Array, axis: int, elements: Places) -> list[Array]:
    """Takes elements of a dimension by slices: one for each run that goes up, stays, or goes down."""
    runs = []
    while elements.size > 1:
        steps = np.diff(elements)
        ends = np.flatnonzero((steps != steps[0]) | (abs(steps) > 1)) + 1
        count = int(ends[0]) if ends.size else elements.size
        runs.append(_run(x, axis, elements[:count]))
        elements = elements[count:]
    return [*runs, _run(x, axis, elements)]


def _run(x: Array, axis: int, elements: Places) -> Array:
    if not elements.size:
        return lax.slice_in_dim(x, 0, 0, axis=axis)
    low, high = int(elements.min()), int(elements.max())
    part = lax.slice_in_dim(x, low, high + 1, axis=axis)
    if low == high:
        return jnp.broadcast_to(part, (*x.shape[:axis], elements.size, *x.shape[axis + 1 :]))
    return part if elements[0] == low else lax.rev(part, (axis,))
