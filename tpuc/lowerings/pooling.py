"""Pooling over windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tpuc.lowerings.registry import lowering

Array = jax.Array


def _spread(value: Sequence[int], rank: int) -> list[int]:
    return list(value) * rank if len(value) == 1 else list(value)


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


@lowering(
    "aten.max_pool1d.default",
    "aten.max_pool2d.default",
    "aten.max_pool3d.default",
    why="torch-mlir splits ceil-mode padding evenly",
)
def max_pool(
    x: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Array:
    """The largest element of each window over the last dimensions."""
    rank = len(kernel_size) if len(kernel_size) > 1 else x.ndim - 2
    kernel = _spread(kernel_size, rank)
    steps = _spread(stride, rank) if len(stride) else kernel
    dilations = _spread(dilation, rank)
    pads = window_padding(x.shape[-rank:], kernel, steps, _spread(padding, rank), dilations, ceil_mode)
    lead = (1,) * (x.ndim - rank)
    least = -np.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
    return lax.reduce_window(
        x,
        np.asarray(least, x.dtype),
        lax.max,
        (*lead, *kernel),
        (*lead, *steps),
        [(0, 0)] * len(lead) + pads,
        window_dilation=(*lead, *dilations),
    )


@lowering(
    "aten.avg_pool1d.default",
    "aten.avg_pool2d.default",
    "aten.avg_pool3d.default",
    why="torch-mlir ignores a divisor in three dimensions",
)
def avg_pool(
    x: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """The mean of each window over the last dimensions."""
    rank = len(kernel_size) if len(kernel_size) > 1 else x.ndim - 2
    kernel = _spread(kernel_size, rank)
    steps = _spread(stride, rank) if len(stride) else kernel
    padding = _spread(padding, rank)
    pads = window_padding(x.shape[-rank:], kernel, steps, padding, [1] * rank, ceil_mode)
    y = x.astype(jnp.promote_types(x.dtype, jnp.float32)) if jnp.issubdtype(x.dtype, jnp.floating) else x
    total = _window_sum(y, kernel, steps, pads)
    if divisor_override is not None:
        return total / divisor_override
    # Padding counts, but not the extra room that ceil mode adds at the end: PyTorch's divisor ends with the padding.
    edge = padding if count_include_pad else [0] * rank
    if all(pad == (side, side) for pad, side in zip(pads, edge, strict=True)):
        return total / np.prod(kernel)
    ones = np.ones([size + 2 * side for size, side in zip(x.shape[-rank:], edge, strict=True)], np.float32)
    rest = [(low - side, high - side) for (low, high), side in zip(pads, edge, strict=True)]
    return total / _window_sum(jnp.asarray(ones, total.dtype), kernel, steps, rest)


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


def _adaptive_mean(y: Array, axis: int, count: int) -> Array:
    size = y.shape[axis]
    if count and size % count == 0:
        split = (*y.shape[:axis], count, size // count, *y.shape[axis + 1 :])
        return y.reshape(split).mean(axis + 1)
    # Window i covers floor(i size / count) to ceil((i + 1) size / count).
    weights = np.zeros((count, size), np.float32)
    for i in range(count):
        start, end = i * size // count, -(-(i + 1) * size // count)
        weights[i, start:end] = 1 / (end - start)
    product = jnp.tensordot(y, jnp.asarray(weights, y.dtype), axes=((axis,), (1,)), precision=lax.Precision.HIGHEST)
    return jnp.moveaxis(product, -1, axis)


def _window_sum(y: Array, kernel: Sequence[int], steps: Sequence[int], pads: Sequence[tuple[int, int]]) -> Array:
    lead = (1,) * (y.ndim - len(kernel))
    zero: Any = np.zeros((), y.dtype)
    return lax.reduce_window(y, zero, lax.add, (*lead, *kernel), (*lead, *steps), [(0, 0)] * len(lead) + list(pads))
