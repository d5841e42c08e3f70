"""Quantization: the operators that PyTorch's and torchao's flows put around those on floats.

A quantized tensor is an integer tensor here, int8 weights included: they are widened where they are used, and XLA
fuses that into the use. Real values and integers relate by `value = (integer - zero_point) * scale`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from tpuc.lowerings.dtypes import to_jax
from tpuc.lowerings.registry import lowering

Array = jax.Array
_WHY = "torch-mlir has no lowering of it"
_NAMESPACE = "quantized_decomposed"


@lowering(
    f"{_NAMESPACE}.quantize_per_tensor.default",
    f"{_NAMESPACE}.quantize_per_tensor.tensor",
    f"{_NAMESPACE}.quantize_per_tensor.tensor2",
    why=_WHY,
)
def quantize_per_tensor(x: Array, scale: Any, zero_point: Any, low: Any, high: Any, dtype: torch.dtype) -> Array:
    """Rounds to integers, with one scale for all."""
    rounded = jnp.round(_divided(x, scale)) + zero_point
    return jnp.clip(rounded, low, high).astype(to_jax(dtype))


@lowering(
    f"{_NAMESPACE}.dequantize_per_tensor.default",
    f"{_NAMESPACE}.dequantize_per_tensor.tensor",
    f"{_NAMESPACE}.dequantize_per_tensor.tensor2",
    why=_WHY,
)
def dequantize_per_tensor(
    x: Array,
    scale: Any,
    zero_point: Any,
    _low: Any,
    _high: Any,
    _dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Array:
    """The real values of integers, with one scale for all."""
    return _real(x, scale, zero_point, out_dtype or torch.float32)


@lowering(f"{_NAMESPACE}.quantize_per_channel.default", why=_WHY)
def quantize_per_channel(
    x: Array, scales: Array, zero_points: Array, axis: int, low: int, high: int, dtype: torch.dtype
) -> Array:
    """Rounds to integers, with one scale for each element of a dimension."""
    return quantize_per_tensor(x, _along(scales, axis, x), _along(zero_points, axis, x), low, high, dtype)


@lowering(f"{_NAMESPACE}.dequantize_per_channel.default", why=_WHY)
def dequantize_per_channel(
    x: Array,
    scales: Array,
    zero_points: Array | None,
    axis: int,
    _low: int,
    _high: int,
    _dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Array:
    """The real values of integers, with one scale for each element of a dimension."""
    zero_point = 0 if zero_points is None else _along(zero_points, axis, x)
    return _real(x, _along(scales, axis, x), zero_point, out_dtype or torch.float32)


@lowering(f"{_NAMESPACE}.quantize_per_token.default", why=_WHY)
def quantize_per_token(x: Array, scales: Array, zero_points: Array, low: int, high: int, dtype: torch.dtype) -> Array:
    """Rounds to integers, with one scale for each row of the last dimension; the zero point is added first."""
    return jnp.clip(jnp.round(_divided(x, scales) + zero_points), low, high).astype(to_jax(dtype))


@lowering(f"{_NAMESPACE}.dequantize_per_token.default", why=_WHY)
def dequantize_per_token(
    x: Array,
    scales: Array,
    zero_points: Array,
    _low: int,
    _high: int,
    _dtype: torch.dtype,
    output_dtype: torch.dtype,
) -> Array:
    """The real values of integers, with one scale for each row of the last dimension."""
    return _real(x, scales, zero_points, output_dtype)


@lowering(f"{_NAMESPACE}.quantize_per_channel_group.default", why=_WHY)
def quantize_per_channel_group(
    x: Array, scales: Array, zero_points: Array, low: int, high: int, dtype: torch.dtype, group_size: int
) -> Array:
    """Rounds a matrix to integers, with one scale for so many neighbours of a row."""
    groups = _grouped(x, scales, group_size)
    return quantize_per_token(groups, scales.reshape(-1, 1), zero_points.reshape(-1, 1), low, high, dtype).reshape(
        x.shape
    )


@lowering(f"{_NAMESPACE}.dequantize_per_channel_group.default", why=_WHY)
def dequantize_per_channel_group(
    x: Array,
    scales: Array,
    zero_points: Array | None,
    _low: int,
    _high: int,
    _dtype: torch.dtype,
    group_size: int,
    output_dtype: torch.dtype,
) -> Array:
    """The real values of a matrix of integers, with one scale for so many neighbours of a row."""
    groups = _grouped(x, scales, group_size)
    zero_point = 0 if zero_points is None else zero_points.reshape(-1, 1)
    return _real(groups, scales.reshape(-1, 1), zero_point, output_dtype).reshape(x.shape)


@lowering(f"{_NAMESPACE}.fake_quant_per_channel.default", "aten.fake_quantize_per_channel_affine.default", why=_WHY)
def fake_quant_per_channel(x: Array, scales: Array, zero_points: Array, axis: int, low: int, high: int) -> Array:
    """Rounds to what `quantize_per_channel` would keep; stays real."""
    return fake_quantize_per_tensor(x, _along(scales, axis, x), _along(zero_points, axis, x), low, high)


@lowering(
    "aten.fake_quantize_per_tensor_affine.default",
    "aten.fake_quantize_per_tensor_affine.tensor_qparams",
    why=_WHY,
)
def fake_quantize_per_tensor(x: Array, scale: Any, zero_point: Any, low: int, high: int) -> Array:
    """Rounds to what `quantize_per_tensor` would keep; stays real."""
    return fake_quantize_with_mask(x, scale, zero_point, low, high)[0]


@lowering("aten.fake_quantize_per_tensor_affine_cachemask.default", why=_WHY)
def fake_quantize_with_mask(x: Array, scale: Any, zero_point: Any, low: int, high: int) -> tuple[Array, Array]:
    """Rounds to what `quantize_per_tensor` would keep, and says of each element whether it is in the range."""
    rounded = jnp.round(_divided(x, scale)) + zero_point
    kept = (jnp.clip(rounded, low, high) - zero_point) * scale
    return kept.astype(x.dtype), (low <= rounded) & (rounded <= high)


@lowering("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default", why=_WHY)
def fake_quantize_where_enabled(
    x: Array, scale: Array, zero_point: Array, enabled: Array, low: int, high: int
) -> tuple[Array, Array]:
    """`fake_quantize_with_mask` where it is enabled, else the tensor as it is."""
    kept, mask = fake_quantize_with_mask(x, scale, zero_point, low, high)
    return jnp.where(enabled[0] != 0, kept, x), (enabled[0] == 0) | mask


@lowering("aten.fake_quantize_per_channel_affine_cachemask.default", why=_WHY)
def fake_quantize_per_channel_with_mask(
    x: Array, scales: Array, zero_points: Array, axis: int, low: int, high: int
) -> tuple[Array, Array]:
    """`fake_quantize_with_mask`, with a scale for each index of a dimension."""
    return fake_quantize_with_mask(x, _along(scales, axis, x), _along(zero_points, axis, x), low, high)


@lowering(f"{_NAMESPACE}.choose_qparams.tensor", why=_WHY)
def choose_qparams(x: Array, low: int, high: int, eps: float, _dtype: torch.dtype) -> tuple[Array, Array]:
    """The scale and zero point that take a tensor's range, with zero in it, to the integers from low to high."""
    smallest, largest = jnp.minimum(x.min(), 0), jnp.maximum(x.max(), 0)
    scale = jnp.maximum(_exact_quotient(largest - smallest, high - low), jnp.asarray(eps, x.dtype))
    zero_point = jnp.clip(low - jnp.round(smallest / scale), low, high)
    return scale[None], zero_point[None]


@lowering(f"{_NAMESPACE}.choose_qparams_symmetric.tensor", why=_WHY)
def choose_qparams_symmetric(x: Array, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple[Array, Array]:
    """The scale that takes a tensor's largest absolute value to half the range; the zero point is its middle."""
    scale = jnp.maximum(_exact_quotient(jnp.abs(x).max(), (high - low) / 2), jnp.asarray(eps, x.dtype))
    return scale[None], jnp.full((1,), 128 if dtype == torch.uint8 else 0, jnp.int64)


@lowering(f"{_NAMESPACE}.choose_qparams_per_token.default", why=_WHY)
def choose_qparams_per_token(x: Array, _dtype: torch.dtype) -> tuple[Array, Array]:
    """For each row of the last dimension, the scale that takes its largest absolute value to 127."""
    largest = jnp.abs(x).max(-1, keepdims=True)
    scale = _exact_quotient(jnp.maximum(largest.astype(jnp.promote_types(x.dtype, jnp.float32)), 1e-5), 127)
    return scale, jnp.zeros(scale.shape, jnp.int64)


@lowering(f"{_NAMESPACE}.choose_qparams_per_token_asymmetric.default", why=_WHY)
def choose_qparams_per_token_asymmetric(x: Array, _dtype: torch.dtype) -> tuple[Array, Array]:
    """For each row of the last dimension, what takes its range, with zero in it, to -128 ... 127."""
    smallest, largest = (
        jnp.minimum(x.min(-1, keepdims=True), 0),
        jnp.maximum(x.max(-1, keepdims=True), 0),
    )
    scale = jnp.maximum(_exact_quotient(largest - smallest, 255), jnp.asarray(jnp.finfo(jnp.float32).eps, x.dtype))
    # Of the two ends, the one whose rounding loses less becomes exact.
    from_low, from_high = -128 - smallest / scale, 127 - largest / scale
    low_is_better = -128 + smallest / scale + 127 + largest / scale > 0
    return scale, jnp.round(jnp.clip(jnp.where(low_is_better, from_low, from_high), -128, 127))


@lowering("aten._int_mm.default", why="bytes in, i32 out")
def int_mm(x: Array, y: Array) -> Array:
    """The product of matrices of bytes, exact in i32."""
    if x.dtype != y.dtype:  # uint8 by int8: XLA takes one type for both.
        x, y = x.astype(jnp.int32), y.astype(jnp.int32)
    return lax.dot(x, y, preferred_element_type=jnp.int32)


@lowering("aten._weight_int8pack_mm.default", why="the weight is widened where it is used")
def weight_int8pack_mm(x: Array, weight: Array, scales: Array) -> Array:
    """`x @ weight.T * scales` with an int8 weight of one scale an output."""
    return jnp.matmul(x, weight.T.astype(x.dtype)) * scales


def _exact_quotient(x: Array, divisor: float) -> Array:
    """`x / divisor`, correctly rounded: a range of equal ends has its zero point halfway between two integers."""
    # XLA multiplies by the reciprocal of a constant that it sees.
    return x / lax.optimization_barrier(jnp.asarray(divisor, x.dtype))


def _divided(x: Array, scale: Any) -> Array:
    """`x / scale` as PyTorch computes it: by the reciprocal, rounded to the dtype of `x`."""
    return x * jnp.asarray(1.0 / scale, x.dtype)


def _real(x: Array, scale: Any, zero_point: Any, dtype: torch.dtype) -> Array:
    wanted = to_jax(dtype)
    wide = jnp.promote_types(wanted, jnp.float32)
    return ((x.astype(wide) - jnp.asarray(zero_point, wide)) * jnp.asarray(scale, wide)).astype(wanted)


def _along(values: Array, axis: int, x: Array) -> Array:
    """Lets a vector run along a dimension of `x`."""
    return jnp.expand_dims(values, [d for d in range(x.ndim) if d != axis % x.ndim])


def _grouped(x: Array, scales: Array, group_size: int) -> Array:
    # One scale a row serves rows that are shorter than a group.
    return x.reshape(-1, x.shape[-1] if group_size > x.shape[-1] and scales.shape[-1] == 1 else group_size)
