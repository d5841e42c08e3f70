"""Interpolation: nearest, linear, cubic, and with antialiasing, in one, two and three dimensions.

Every mode treats one dimension after the other, and which elements make an output, with which weights, is known
beforehand. Nearest neighbours are gathered, which is exact. Weighted sums of few elements are gathered as well, or
are products with a small constant matrix: on a v5e that takes half the cycles of gathers up to some hundred elements
([8, 256, 32, 32] to 64: 165,429 against 353,601), and a broadcast and reshape takes more than both (737,888). The
price: a matrix spreads a NaN or an infinity over its whole row and column, where eager has it among its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tpuc.lowerings.any_size import sizes_vary, tables
from tpuc.lowerings.registry import lowering

Array = jax.Array
#: Up to so many elements in a dimension, two elements an output come from a matrix. A matrix of more costs more
#: than its gathers (1024 elements to 2048: 1,795,768 cycles against 1,234,444).
_MATRIX_UP_TO = 256
#: The free parameter of the cubic kernel. Source: ATen/native/UpSample.h, and UpSampleKernel.cpp for antialiasing.
_CUBIC = -0.75
_CUBIC_ANTIALIASED = -0.5
_SCALES = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}


@dataclass(frozen=True, kw_only=True)
class _Taps:
    """What makes each output of a dimension, arrays of `tables()`.

    Attributes:
        index: [outputs, taps], the elements; None for all of them, in order.
        weights: [outputs, taps], their weights.
    """

    index: Any
    weights: Any


@dataclass(frozen=True, kw_only=True)
class _Axis:
    """How one dimension is interpolated.

    Attributes:
        size: The input's elements.
        outputs: The output's.
        scale: The factor that was given, or None: it is then that of the sizes.
        aligned: Whether the centers of the outermost elements stay in place, or the edges.
        dtype: What positions are computed in, as PyTorch does: f64 for an input of f64, else f32.
    """

    size: int
    outputs: int
    scale: float | None
    aligned: bool
    dtype: type[np.floating[Any]]


TapsOf = Callable[[_Axis], _Taps]


def _resize(x: Array, sizes: Sequence[int], scales: Sequence[float | None], aligned: bool, taps_of: TapsOf) -> Array:
    """Interpolates the last dimensions to `sizes`."""
    y = x
    dtype = np.float64 if x.dtype == jnp.float64 else np.float32
    for axis, outputs, scale in zip(range(x.ndim - len(sizes), x.ndim), sizes, scales, strict=True):
        y = _resample(
            y,
            axis,
            taps_of(_Axis(size=x.shape[axis], outputs=outputs, scale=scale, aligned=aligned, dtype=dtype)),
        )
    return jnp.round(y) if jnp.issubdtype(x.dtype, jnp.integer) else y


def _resample(x: Array, axis: int, taps: _Taps) -> Array:
    count = taps.weights.shape[1]
    if count == 1 and taps.index is not None:
        return jnp.take(x, taps.index[:, 0], axis=axis)
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    weights = taps.weights.astype(x.dtype)
    if taps.index is None:
        return _weighted(x, axis, weights)
    if sizes_vary() or (count == 2 and x.shape[axis] > _MATRIX_UP_TO):
        weights = weights.reshape(-1, count, *(1,) * (x.ndim - 1 - axis))
        first, *others = (jnp.take(x, taps.index[:, tap], axis=axis) * weights[:, tap] for tap in range(count))
        return sum(others, first)
    matrix = np.zeros((len(weights), x.shape[axis]), weights.dtype)
    np.add.at(matrix, (np.arange(len(weights))[:, None], taps.index), weights)
    return _weighted(x, axis, matrix)


def _weighted(x: Array, axis: int, matrix: Any) -> Array:
    """Makes each output of all elements of a dimension."""
    y = jnp.tensordot(x, matrix, axes=((axis,), (1,)), precision=lax.Precision.HIGHEST)
    return jnp.moveaxis(y, -1, axis)


def _step(axis: _Axis) -> Any:
    """The distance between outputs, in elements of the input. Source: `area_pixel_compute_scale`, UpSample.h."""
    if sizes_vary() and (axis.aligned or not axis.scale):
        size, outputs = (jnp.asarray(number - axis.aligned, axis.dtype) for number in (axis.size, axis.outputs))
        return jnp.where(outputs > 0, size / outputs, 0)
    if axis.aligned:
        return axis.dtype((axis.size - 1) / (axis.outputs - 1) if axis.outputs > 1 else 0)
    return axis.dtype(1 / axis.scale if axis.scale else axis.size / axis.outputs)


def _positions(axis: _Axis) -> Any:
    """Where outputs lie among the input's elements. Source: `area_pixel_compute_source_index`, UpSample.h."""
    xp = tables()
    number = xp.arange(axis.outputs, dtype=axis.dtype)
    half = axis.dtype(0.5)
    return _step(axis) * number if axis.aligned else _step(axis) * (number + half) - half


def _nearest(axis: _Axis, *, centered: bool) -> _Taps:
    """The element below each output; below its center if `centered`, which PyTorch calls exact."""
    xp = tables()
    number = xp.arange(axis.outputs, dtype=np.float32)  # In f32 for every dtype, as PyTorch does.
    position = np.float32(_step(axis)) * (number + np.float32(0.5 if centered else 0))
    index = xp.minimum(xp.floor(position).astype(np.int64), axis.size - 1)
    return _Taps(index=index[:, None], weights=xp.ones((axis.outputs, 1)))


def _linear(axis: _Axis) -> _Taps:
    xp = tables()
    position = xp.maximum(_positions(axis), 0)
    low = xp.minimum(xp.floor(position).astype(np.int64), axis.size - 1)
    share = xp.clip(position - low, 0, 1)
    high = xp.minimum(low + 1, axis.size - 1)
    return _Taps(index=xp.stack([low, high], -1), weights=xp.stack([1 - share, share], -1))


def _cubic(axis: _Axis) -> _Taps:
    xp = tables()
    position = _positions(axis)
    low = xp.floor(position).astype(np.int64)
    offsets = xp.arange(-1, 3)
    distance = xp.abs((position - low)[:, None] - offsets)
    return _Taps(index=xp.clip(low[:, None] + offsets, 0, axis.size - 1), weights=cubic_kernel(distance, _CUBIC))


def cubic_kernel(distance: Any, a: float) -> Any:
    """The weight of an element at a distance (not negative) by cubic convolution, of a NumPy or JAX array.

    Source: Keys, "Cubic Convolution Interpolation for Digital Image Processing", IEEE Transactions on Acoustics,
    Speech, and Signal Processing 29(6), 1981.
    """
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return (distance <= 1) * near + ((distance > 1) & (distance < 2)) * far


def _linear_kernel(distance: Any) -> Any:
    return tables().maximum(1 - distance, 0)


def _lanczos_kernel(distance: Any) -> Any:
    xp = tables()
    return xp.sinc(distance) * xp.sinc(distance / 3) * (distance < 3)


def _antialiased(axis: _Axis, *, kernel: Callable[[Any], Any], reach: int) -> _Taps:
    """A kernel as wide as the outputs are apart. Source: `_compute_indices_weights_aa`, UpSampleKernel.cpp.

    How many elements it reaches depends on the sizes: where they vary, each output is made of all.
    """
    xp = tables()
    step = _step(axis) if sizes_vary() else float(_step(axis))
    stretch = xp.maximum(step, 1.0)
    center = step * (xp.arange(axis.outputs) + xp.asarray(0.5, axis.dtype if sizes_vary() else np.float64))
    first = xp.maximum((center - reach * stretch + 0.5).astype(np.int64), 0)
    end = xp.minimum((center + reach * stretch + 0.5).astype(np.int64), axis.size)
    index = xp.arange(axis.size) if sizes_vary() else first[:, None] + np.arange(max(end - first, default=0))
    inside = (index >= first[:, None]) & (index < end[:, None])
    weights = kernel(xp.abs(index - center[:, None] + 0.5) / stretch) * inside
    total = weights.sum(-1, keepdims=True)
    weights = weights / xp.where(total == 0, 1, total)
    return _Taps(index=None if sizes_vary() else np.minimum(index, axis.size - 1), weights=weights)


def _register(name: str, rank: int, why: str, taps_of: TapsOf, *, has_corners: bool) -> None:
    """Registers an operator with a scale for each dimension, with all of them in a list, and its gradient."""

    def resize(x: Array, output_size: Sequence[int], *rest: Any, **by_name: Any) -> Array:
        names = ("align_corners", *_SCALES[rank]) if has_corners else _SCALES[rank]
        given = dict(zip(names, rest, strict=False)) | by_name
        scales = [given.get(scale) for scale in _SCALES[rank]]
        return _resize(x, output_size, scales, given.get("align_corners", False), taps_of)

    def resize_vec(x: Array, output_size: Sequence[int] | None, *rest: Any) -> Array:
        *corners, factors = rest
        sizes = output_size or [math.floor(n * f) for n, f in zip(x.shape[-rank:], factors, strict=True)]
        return _resize(x, sizes, factors or [None] * rank, any(corners), taps_of)

    def resize_backward(gradient: Array, output_size: Sequence[int], input_size: Sequence[int], *rest: Any) -> Array:
        x = jax.ShapeDtypeStruct(tuple(input_size), gradient.dtype)
        (transposed,) = jax.linear_transpose(lambda x: resize(x, output_size, *rest), x)(gradient)
        return cast(Array, transposed)

    lowering(f"aten.{name}.default", why=why)(resize)
    lowering(f"aten.{name}.vec", why=why)(resize_vec)
    lowering(f"aten.{name}_backward.default", why="JAX's transpose of the forward one")(resize_backward)


for _rank in (1, 2, 3):
    _why = "indices known beforehand"
    _register(f"upsample_nearest{_rank}d", _rank, _why, partial(_nearest, centered=False), has_corners=False)
    _register(f"_upsample_nearest_exact{_rank}d", _rank, _why, partial(_nearest, centered=True), has_corners=False)
for _name, _rank in (("upsample_linear1d", 1), ("upsample_bilinear2d", 2), ("upsample_trilinear3d", 3)):
    _register(_name, _rank, "weights known beforehand", _linear, has_corners=True)
_register("upsample_bicubic2d", 2, "weights known beforehand", _cubic, has_corners=True)
for _name, _kernel, _reach in (
    ("_upsample_bilinear2d_aa", _linear_kernel, 1),
    ("_upsample_bicubic2d_aa", partial(cubic_kernel, a=_CUBIC_ANTIALIASED), 2),
    ("_upsample_lanczos2d_aa", _lanczos_kernel, 3),
):
    _register(_name, 2, "torch-mlir has none", partial(_antialiased, kernel=_kernel, reach=_reach), has_corners=True)
