"""Convolutions of one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tpuc.lowerings.registry import lowering

Array = jax.Array
_SPATIAL = "DHW"


@lowering("aten.convolution.default", "aten._convolution.default", why="grouped and dilated transposed ones too")
def convolution(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *_flags: bool,
) -> Array:
    """A convolution in channels-first layout, or its transpose."""
    rank = weight.ndim - 2
    stride, padding, dilation, output_padding = (
        _spread(value, rank) for value in (stride, padding, dilation, output_padding)
    )
    # An input without a batch dimension is a batch of one.
    unbatched = x.ndim == rank + 1
    if unbatched:
        x = x[None]
    if transposed:
        y = _transposed(x, weight, stride, padding, dilation, output_padding, groups)
    else:
        y = _convolve(x, weight, stride, [(pad, pad) for pad in padding], dilation, groups=groups)
    if bias is not None:
        y = y + bias.reshape(-1, *(1,) * rank)
    return y[0] if unbatched else y


@lowering("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default", why="see aten.convolution")
def conv(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Array:
    """A convolution."""
    return convolution(x, weight, bias, stride, padding, dilation, False, (0,), groups)


@lowering("aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding", why="padding by name")
def conv_padding(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Sequence[int] = (1,),
    padding: str = "valid",
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Array:
    """A convolution with padding `valid` (none) or `same` (the odd one goes at the end)."""
    rank = weight.ndim - 2
    dilation = _spread(dilation, rank)
    totals = [d * (size - 1) if padding == "same" else 0 for d, size in zip(dilation, weight.shape[2:], strict=True)]
    unbatched = x.ndim == rank + 1
    pads = [(total // 2, total - total // 2) for total in totals]
    y = _convolve(x[None] if unbatched else x, weight, _spread(stride, rank), pads, dilation, groups=groups)
    if bias is not None:
        y = y + bias.reshape(-1, *(1,) * rank)
    return y[0] if unbatched else y


@lowering(
    "aten.conv_transpose1d.default",
    "aten.conv_transpose2d.input",
    "aten.conv_transpose3d.input",
    why="see aten.convolution",
)
def conv_transpose(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
    dilation: Sequence[int] = (1,),
) -> Array:
    """A transposed convolution."""
    return convolution(x, weight, bias, stride, padding, dilation, True, output_padding, groups)


@lowering("aten.conv_tbc.default", why="a convolution in the layout that it comes in")
def conv_tbc(x: Array, weight: Array, bias: Array, pad: int = 0) -> Array:
    """A convolution over time, of x[time, batch, in] and weight[kernel, in, out]."""
    y = lax.conv_general_dilated(x, weight, (1,), [(pad, pad)], dimension_numbers=("WNC", "WIO", "WNC"))
    return y + bias


def _spread(value: Sequence[int], rank: int) -> list[int]:
    return list(value) * rank if len(value) == 1 else list(value)


def _convolve(
    x: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    *,
    groups: int,
    lhs_dilation: Sequence[int] | None = None,
) -> Array:
    if x.dtype == jnp.int64:
        return _convolve_by_products(x, weight, stride, padding, dilation, groups, lhs_dilation or [1] * len(stride))
    spatial = _SPATIAL[3 - len(stride) :]
    return lax.conv_general_dilated(
        x,
        weight,
        window_strides=stride,
        padding=padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=dilation,
        dimension_numbers=(f"NC{spatial}", f"OI{spatial}", f"NC{spatial}"),
        feature_group_count=groups,
    )


def _convolve_by_products(
    x: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int,
    lhs_dilation: Sequence[int],
) -> Array:
    """A product of what the kernel covers and of the kernel: libtpu has no convolution of i64."""
    batch = len(x)
    outputs, per_group, *kernel = weight.shape
    edges = [(before, after, step - 1) for (before, after), step in zip(padding, lhs_dilation, strict=True)]
    # Padding may be negative: a transposed convolution cuts its result so.
    x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), (0, 0, 0), *edges])
    reaches = [step * (size - 1) + 1 for size, step in zip(kernel, dilation, strict=True)]
    sizes = [(size - reach) // step + 1 for size, reach, step in zip(x.shape[2:], reaches, stride, strict=True)]
    # Which elements the kernel covers at each place, gathered at once: slices of them take libtpu minutes to compile.
    covered = np.zeros((1, 1), np.int32)
    for count, gap, size, step, extent in zip(kernel, dilation, sizes, stride, x.shape[2:], strict=True):
        along = np.arange(count)[:, None] * gap + np.arange(size) * step
        rows, columns = covered.shape
        covered = covered[:, None, :, None] * extent + along[:, None, :].astype(np.int32)
        covered = covered.reshape(rows * count, columns * size)
    windows = x.reshape(batch, groups, per_group, -1)[..., covered]
    weight = weight.reshape(groups, outputs // groups, per_group, len(covered))
    return jnp.einsum("bgikp,goik->bgop", windows, weight).reshape(batch, outputs, *sizes)


def _transposed(
    x: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> Array:
    """The transpose as a convolution over an input dilated by the stride, with the kernel turned round.

    The weight comes as [in, out / groups, ...]; a convolution wants [out, in / groups, ...].
    """
    inputs, per_group, *kernel = weight.shape
    weight = weight.reshape(groups, inputs // groups, per_group, *kernel)
    weight = jnp.swapaxes(weight, 1, 2).reshape(groups * per_group, inputs // groups, *kernel)
    weight = jnp.flip(weight, range(2, weight.ndim))
    pads = []
    for size, pad, step, extra in zip(kernel, padding, dilation, output_padding, strict=True):
        reach = step * (size - 1) - pad
        pads.append((reach, reach + extra))
    return _convolve(x, weight, [1] * len(kernel), pads, dilation, groups=groups, lhs_dilation=stride)
