"""Normalization layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from tpuc.lowerings.registry import lowering

Array = jax.Array


@lowering("aten.layer_norm.default", why="torch-mlir computes the variance in f64")
def layer_norm(
    x: Array,
    normalized_shape: list[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Array:
    """Layer normalization over the last dimensions, with the statistics in f32."""
    y = standardized(_wide(x), dimensions=range(x.ndim - len(normalized_shape), x.ndim), epsilon=eps)
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return y


@lowering("aten.native_layer_norm.default", why="torch-mlir computes the variance in f64")
def native_layer_norm(
    x: Array, normalized_shape: list[int], weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array]:
    """Layer normalization, with the mean and the reciprocal deviation."""
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    y = _wide(x)
    mean = y.mean(axes, keepdims=True)
    rstd = jax.lax.rsqrt(((y - mean) ** 2).mean(axes, keepdims=True) + eps)
    return layer_norm(x, normalized_shape, weight, bias, eps), mean, rstd


@lowering("aten.rms_norm.default", why="one reduction, in f32")
def rms_norm(x: Array, normalized_shape: list[int], weight: Array | None = None, eps: float | None = None) -> Array:
    """Root-mean-square normalization over the last dimensions, in f32."""
    y = _wide(x)
    eps = float(jnp.finfo(y.dtype).eps) if eps is None else eps  # Of what it is computed in.
    y = root_mean_square_scaled(y, dimensions=range(x.ndim - len(normalized_shape), x.ndim), epsilon=eps)
    return y if weight is None else y * weight


@lowering("aten.group_norm.default", why="torch-mlir computes the variance in f64")
def group_norm(
    x: Array,
    num_groups: int,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Array:
    """Normalization over groups of channels (dimension 1), with the statistics in f32."""
    y = _wide(x).reshape(x.shape[0], num_groups, math.prod(x.shape[1:]) // num_groups)
    y = standardized(y, dimensions=(2,), epsilon=eps)
    return _per_channel(y.reshape(x.shape), weight, bias)


@lowering("aten.batch_norm.default", why="scale and shift, one a channel")
def batch_norm(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Array:
    """Batch normalization with the running statistics, or the batch's where there are none."""
    y = _wide(x)
    if training or running_mean is None or running_var is None:
        mean, variance = _batch_statistics(y)
    else:
        mean, variance = _wide(running_mean), _wide(running_var)
    return _normalized(y, mean, jax.lax.rsqrt(variance + eps), weight, bias)


@lowering("aten._native_batch_norm_legit_no_training.default", why="scale and shift, one a channel")
def batch_norm_no_training(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    momentum: float,
    eps: float,
) -> tuple[Array, Array, Array]:
    """Batch normalization with the running statistics."""
    y = batch_norm(x, weight, bias, running_mean, running_var, False, momentum, eps, False)
    return y, jnp.zeros((0,), jnp.float32), jnp.zeros((0,), jnp.float32)


@lowering("aten._native_batch_norm_legit_functional.default", why="the running statistics come back as results")
def batch_norm_training(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Array, Array, Array, Array, Array]:
    """Batch normalization that also updates the running statistics.

    Returns:
        The output, the batch's mean and reciprocal deviation (of size 0 where not training), and the new running
        mean and variance.
    """
    y = _wide(x)
    if not training:
        rstd = jax.lax.rsqrt(_wide(running_var) + eps)
        nothing = jnp.zeros((0,), jnp.float32)
        return _normalized(y, running_mean, rstd, weight, bias), nothing, nothing, running_mean, running_var
    mean, variance = _batch_statistics(y)
    rstd = jax.lax.rsqrt(variance + eps)
    count = x.size // x.shape[1]
    unbiased = variance * (count / max(count - 1, 1))
    new_mean = (1 - momentum) * running_mean + momentum * mean
    new_var = (1 - momentum) * running_var + momentum * unbiased
    return _normalized(y, mean, rstd, weight, bias), mean, rstd, new_mean, new_var


def standardized(x: Array, *, dimensions: Sequence[int], epsilon: float) -> Array:
    """`(x - mean) / sqrt(variance + epsilon)`, with the statistics over these dimensions."""
    centered = x - x.mean(tuple(dimensions), keepdims=True)
    return root_mean_square_scaled(centered, dimensions=dimensions, epsilon=epsilon)


def root_mean_square_scaled(x: Array, *, dimensions: Sequence[int], epsilon: float) -> Array:
    """`x / sqrt(mean(x * x) + epsilon)`, with the mean over these dimensions."""
    return x * jax.lax.rsqrt((x * x).mean(tuple(dimensions), keepdims=True) + epsilon)


def _wide(x: Array) -> Array:
    """At least f32: what statistics are computed in."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _batch_statistics(y: Array) -> tuple[Array, Array]:
    axes = (0, *range(2, y.ndim))
    mean = y.mean(axes)
    centered = y - mean.reshape(-1, *(1,) * (y.ndim - 2))
    return mean, (centered * centered).mean(axes)


def _normalized(y: Array, mean: Array, rstd: Array, weight: Array | None, bias: Array | None) -> Array:
    """`(y - mean) * rstd * weight + bias` as one multiply and one add, their factors computed on vectors."""
    scale = rstd if weight is None else rstd * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return _per_channel(y, scale, shift)


def _per_channel(y: Array, scale: Array | None, shift: Array | None) -> Array:
    trailing = (1,) * (y.ndim - 2)
    if scale is not None:
        y = y * scale.reshape(-1, *trailing)
    if shift is not None:
        y = y + shift.reshape(-1, *trailing)
    return y
