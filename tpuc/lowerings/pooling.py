"""Pooling over windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tpuc.lowerings.any_size import sizes_vary, tables
from tpuc.lowerings.indexing import narrow
from tpuc.lowerings.registry import lowering

Array = jax.Array
#: The place of what lies outside of the input.
_NOWHERE = np.int32(np.iinfo(np.int32).max)


def window_padding(
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> list[tuple[int, int]]:
    """Returns the padding of each dimension so that a window operation gives PyTorch's output size.

    Source: the documentation of torch.nn.MaxPool2d. In ceil mode a last window counts if it starts inside the input
    or its left padding; the extra room goes to the end.
    """
    pads = []
    for size, window, step, pad, dilate in zip(sizes, kernel, stride, padding, dilation, strict=True):
        span = size + 2 * pad - dilate * (window - 1) - 1
        count = (-(-span // step) if ceil_mode else span // step) + 1
        if ceil_mode and (count - 1) * step >= size + pad:
            count -= 1
        needed = (count - 1) * step + dilate * (window - 1) + 1
        pads.append((pad, needed - size - pad))
    return pads


@dataclass(frozen=True, kw_only=True)
class _Windows:
    """Windows over the last dimensions of a tensor, for each dimension, as `lax.reduce_window` takes them."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    def reduce(self, operands: Any, initial: Any, function: Callable[..., Any]) -> Any:
        """Reduces each window of an array, or of several at once."""
        return lax.reduce_window(
            operands, initial, function, self.kernel, self.stride, self.padding, window_dilation=self.dilation
        )


def _windows(
    x: Array,
    rank: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> _Windows:
    """Reads the arguments of a pooling operator over the last `rank` dimensions; no stride means the kernel's size."""
    kernel, padding, dilation = (_spread(value, rank) for value in (kernel, padding, dilation))
    stride = _spread(stride, rank) if len(stride) else kernel
    lead = x.ndim - rank
    pads = window_padding(x.shape[lead:], kernel, stride, padding, dilation, ceil_mode)
    return _Windows(
        kernel=(*(1,) * lead, *kernel),
        stride=(*(1,) * lead, *stride),
        padding=(*((0, 0),) * lead, *pads),
        dilation=(*(1,) * lead, *dilation),
    )


def _spread(value: Sequence[int], rank: int) -> list[int]:
    return list(value) * rank if len(value) == 1 else list(value)


def max_pool(
    x: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
    *,
    rank: int,
) -> Array:
    """The largest element of each window over the last dimensions."""
    windows = _windows(x, rank, kernel_size, stride, padding, dilation, ceil_mode)
    return windows.reduce(x, _least(x.dtype), lax.max)


def max_pool_with_indices(
    x: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
    *,
    rank: int,
) -> tuple[Array, Array]:
    """The largest element of each window, and its place in the flattened last dimensions."""
    windows = _windows(x, rank, kernel_size, stride, padding, dilation, ceil_mode)
    return windows.reduce((x, _places(x, rank)), (_least(x.dtype), _NOWHERE), _larger)


def adaptive_max_pool(x: Array, output_size: Sequence[int], *, rank: int) -> tuple[Array, Array]:
    """The largest element of windows that divide each of the last dimensions into so many, and its place."""
    values, places = x, _places(x, rank)
    for axis, count in zip(range(x.ndim - rank, x.ndim), output_size, strict=True):
        if count == 1 or sizes_vary():
            values, places = _adaptive_largest(values, places, axis, count)
            continue
        starts, ends = adaptive_windows(x.shape[axis], count)
        offsets = np.arange(max(ends - starts, default=1))
        # Windows of several lengths: the short ones take their last element more than once.
        index = np.minimum(starts[:, None] + offsets, ends[:, None] - 1).reshape(-1)
        values, places = _largest(
            jnp.take(values, index, axis=axis), jnp.take(places, index, axis=axis), axis, len(offsets)
        )
    return values, places


@lowering("aten.max_unpool2d.default", "aten.max_unpool3d.default", why="the decomposition computes places in i64")
def max_unpool(x: Array, indices: Array, output_size: Sequence[int], *_window: Sequence[int]) -> Array:
    """Writes each element to its place, counted within its channel, among zeros.

    Args:
        x: [..., windows], as many spatial dimensions as `output_size` has.
        indices: i64, of x's shape.
        output_size: The result's spatial dimensions.
    """
    lead, count = x.shape[: x.ndim - len(output_size)], math.prod(output_size)
    rows = math.prod(lead)
    if not x.size:
        return jnp.zeros((*lead, *output_size), x.dtype)
    place = narrow(indices, count).reshape(rows, -1)
    row = lax.broadcasted_iota(jnp.int32, place.shape, 0)
    written = jnp.zeros((rows, count), x.dtype).at[row, place].set(x.reshape(rows, -1), mode="drop")
    return written.reshape(*lead, *output_size)


def _adaptive_largest(values: Array, places: Array, axis: int, count: int) -> tuple[Array, Array]:
    """Compares for each window the whole dimension, of which only the window counts: its form is that of any size."""
    size = values.shape[axis]
    if count == 1:
        return _largest(values, places, axis, size)
    starts, ends = adaptive_windows(size, count, jnp)
    position = jnp.arange(size)
    inside = (position >= starts[:, None]) & (position < ends[:, None])
    inside = inside.reshape(count, size, *(1,) * (values.ndim - axis - 1))
    spread = (
        jnp.where(inside, jnp.expand_dims(operand, axis), outside)
        for operand, outside in ((values, _least(values.dtype)), (places, _NOWHERE))
    )
    result: tuple[Array, Array] = lax.reduce(tuple(spread), (_least(values.dtype), _NOWHERE), _larger, (axis + 1,))
    return result


def fractional_max_pool(
    x: Array, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Array, *, rank: int
) -> tuple[Array, Array]:
    """The largest element of windows of one size, at distances drawn for each channel, and its place.

    Args:
        x: [N, C, ...] or [C, ...].
        kernel_size: The windows' sizes.
        output_size: How many windows in each dimension.
        random_samples: [N, C, rank], in [0, 1); of two dimensions the last comes first.
        rank: The dimensions that are pooled.
    """
    lead = x.ndim - rank
    samples = random_samples.reshape(*x.shape[:lead], rank)
    if rank == 2:
        samples = samples[..., ::-1]
    values, places = x, _places(x, rank)
    for number, (window, count) in enumerate(zip(kernel_size, output_size, strict=True)):
        starts = _fractional_starts(samples[..., number], x.shape[lead + number], window, count)
        index = (starts[..., None] + jnp.arange(window)).reshape(*x.shape[:lead], count * window)
        index = jnp.expand_dims(index, [axis for axis in range(lead, x.ndim) if axis != lead + number])
        values, places = _largest(
            jnp.take_along_axis(values, index, axis=lead + number),
            jnp.take_along_axis(places, index, axis=lead + number),
            lead + number,
            window,
        )
    return values, places


def _fractional_starts(sample: Array, size: int, window: int, count: int) -> Array:
    """Where each window starts: [...] to [..., count]. Source: ATen/native/FractionalMaxPool2d.cpp."""
    steps = jnp.arange(count, dtype=sample.dtype)
    ratio = (size - window) / max(count - 1, 1)
    starts = jnp.trunc((steps + sample[..., None]) * ratio) - jnp.trunc(sample[..., None] * ratio)
    return jnp.where(steps == count - 1, size - window, starts.astype(jnp.int32))


def avg_pool(
    x: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    rank: int,
) -> Array:
    """The mean of each window over the last dimensions."""
    windows = _windows(x, rank, kernel_size, stride, padding, [1], ceil_mode)
    y = x.astype(jnp.promote_types(x.dtype, jnp.float32)) if jnp.issubdtype(x.dtype, jnp.floating) else x
    total = windows.reduce(y, np.zeros((), y.dtype), lax.add)
    edge = _spread(padding, rank) if count_include_pad else [0] * rank
    if not ceil_mode and edge == _spread(padding, rank):
        divisor = divisor_override or math.prod(windows.kernel)  # Every window is full.
    else:
        divisor = divisor_override or _window_sizes(x.shape[-rank:], windows, edge)
    if jnp.issubdtype(y.dtype, jnp.floating):
        return total / divisor
    return lax.div(total, jnp.broadcast_to(jnp.asarray(divisor, y.dtype), total.shape))  # Rounds to zero, as C does.


def _window_sizes(sizes: Sequence[int], windows: _Windows, edge: Sequence[int]) -> Any:
    """How many elements each window has: a number, or an array of the dimensions that are pooled.

    An edge of padding may count as elements, but never the room that ceil mode adds behind it.
    """
    xp = tables()
    counts: Any = xp.ones(())
    last = zip(*(values[-len(sizes) :] for values in (windows.kernel, windows.stride, windows.padding)), strict=True)
    for size, side, (window, step, (low, high)) in zip(sizes, edge, last, strict=True):
        starts = xp.arange(len(range(-low, size + high - window + 1, step))) * step - low
        lengths = xp.minimum(starts + window, size + side) - xp.maximum(starts, -side)
        counts = counts[..., None] * lengths
    if sizes_vary():
        return counts
    return counts.flat[0] if counts.size and (counts == counts.flat[0]).all() else counts


@lowering(
    "aten.adaptive_avg_pool1d.default",
    "aten.adaptive_avg_pool2d.default",
    "aten.adaptive_avg_pool3d.default",
    "aten._adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool3d.default",
    why="one matrix a dimension where the windows differ",
)
def adaptive_avg_pool(x: Array, output_size: Sequence[int]) -> Array:
    """The mean of windows that divide each of the last dimensions into so many."""
    rank = len(output_size)
    y = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    for axis, count in zip(range(x.ndim - rank, x.ndim), output_size, strict=True):
        y = _adaptive_mean(y, axis, count)
    return y


def adaptive_windows(size: int, count: int, arrays: Any = np) -> tuple[Any, Any]:
    """Where the windows that divide a dimension start, and where they end; neighbours may overlap.

    Args:
        size: The dimension.
        count: How many windows.
        arrays: The module that computes it; see `tables`.
    """
    number = arrays.arange(count)
    return number * size // max(count, 1), -(-(number + 1) * size // max(count, 1))


def _adaptive_mean(y: Array, axis: int, count: int) -> Array:
    size = y.shape[axis]
    if count == 1 or (count and size % count == 0 and not sizes_vary()):
        split = (*y.shape[:axis], count, size // count, *y.shape[axis + 1 :])
        return y.reshape(split).mean(axis + 1)
    starts, ends = adaptive_windows(size, count, tables())
    position = tables().arange(size)
    inside = (position >= starts[:, None]) & (position < ends[:, None])
    weights = (inside / (ends - starts)[:, None]).astype(y.dtype)
    product = jnp.tensordot(y, jnp.asarray(weights), axes=((axis,), (1,)), precision=lax.Precision.HIGHEST)
    return jnp.moveaxis(product, -1, axis)


def _least(dtype: Any) -> np.ndarray:
    return np.asarray(-np.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min, dtype)


def _places(x: Array, rank: int) -> Array:
    """The number of each element among the flattened last dimensions."""
    sizes = x.shape[x.ndim - rank :]
    return jnp.broadcast_to(jnp.arange(np.prod(sizes), dtype=jnp.int32).reshape(sizes), x.shape)


def _larger(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    """Of two elements with their places the larger, and of equal ones the first; NaN wins, and of two the last."""
    (x, at_x), (y, at_y) = first, second
    either, both = jnp.isnan(x) | jnp.isnan(y), jnp.isnan(x) & jnp.isnan(y)
    of_numbers = (x > y) | ((x == y) & (at_x < at_y))
    takes_first = jnp.where(both, at_x > at_y, jnp.where(either, jnp.isnan(x), of_numbers))
    return jnp.where(takes_first, x, y), jnp.where(takes_first, at_x, at_y)


def _largest(values: Array, places: Array, axis: int, window: int) -> tuple[Array, Array]:
    """Reduces windows that lie one behind the other in a dimension."""
    shape = (*values.shape[:axis], values.shape[axis] // window, window, *values.shape[axis + 1 :])
    operands = (values.reshape(shape), places.reshape(shape))
    result: tuple[Array, Array] = lax.reduce(operands, (_least(values.dtype), _NOWHERE), _larger, (axis + 1,))
    return result


for _rank in (1, 2, 3):
    lowering(f"aten.max_pool{_rank}d.default", why="torch-mlir splits ceil-mode padding evenly")(
        partial(max_pool, rank=_rank)
    )
    lowering(f"aten.max_pool{_rank}d_with_indices.default", why="one reduction of windows of values and places")(
        partial(max_pool_with_indices, rank=_rank)
    )
    lowering(f"aten.adaptive_max_pool{_rank}d.default", why="one dimension at a time")(
        partial(adaptive_max_pool, rank=_rank)
    )
    lowering(f"aten.avg_pool{_rank}d.default", why="torch-mlir ignores a divisor in three dimensions")(
        partial(avg_pool, rank=_rank)
    )
for _rank in (2, 3):
    lowering(f"aten.fractional_max_pool{_rank}d.default", why="one dimension at a time")(
        partial(fractional_max_pool, rank=_rank)
    )
