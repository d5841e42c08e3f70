"""Activation functions and softmax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch

from tpuc.lowerings.dtypes import to_jax
from tpuc.lowerings.registry import lowering

Array = jax.Array


@lowering("aten.relu.default", why="NaN stays NaN", promotion="default")
def relu(x: Array) -> Array:
    """`x`, or 0 below zero."""
    return jnp.maximum(x, 0)


@lowering("aten.gelu.default", why="torch-mlir writes erf as a polynomial", promotion="default")
def gelu(x: Array, approximate: str = "none") -> Array:
    """Gaussian error linear unit, exact or by tanh."""
    if approximate == "tanh":
        return jax.nn.gelu(x, approximate=True)
    # As PyTorch has it. JAX's erfc is nearer to the limit far below zero, and costs several times as much on a TPU.
    return 0.5 * x * (1 + jax.lax.erf(x * (0.5**0.5)))


@lowering("aten.silu.default", why="computed in f32", promotion="default")
def silu(x: Array) -> Array:
    """`x * sigmoid(x)`."""
    return x * jax.nn.sigmoid(x)


@lowering("aten.mish.default", why="computed in f32", promotion="default")
def mish(x: Array) -> Array:
    """`x * tanh(softplus(x))`."""
    return jax.nn.mish(x)


@lowering("aten.softplus.default", why="linear above the threshold", promotion="default")
def softplus(x: Array, beta: float = 1, threshold: float = 20) -> Array:
    """`log(1 + exp(beta x)) / beta`, and `x` where `beta x` exceeds the threshold."""
    return jnp.where(x * beta > threshold, x, jnp.logaddexp(x * beta, 0) / beta)


@lowering("aten.elu.default", why="two scales", promotion="default")
def elu(x: Array, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Array:
    """Exponential linear unit."""
    return jnp.where(x > 0, x * scale, jnp.expm1(jnp.minimum(x, 0) * input_scale) * (alpha * scale))


@lowering("aten.log_sigmoid.default", why="one expression that does not overflow", promotion="default")
def log_sigmoid(x: Array) -> Array:
    """`log(sigmoid(x))`."""
    return jax.nn.log_sigmoid(x)


@lowering("aten.leaky_relu.default", why="computed in f32", promotion="default")
def leaky_relu(x: Array, negative_slope: float = 0.01) -> Array:
    """`x`, or a fraction of it below zero."""
    return jnp.where(x > 0, x, x * negative_slope)


@lowering("aten.hardtanh.default", why="clamped", promotion="default")
def hardtanh(x: Array, min_val: float = -1, max_val: float = 1) -> Array:
    """Limits to an interval."""
    return jnp.clip(x, min_val, max_val)


@lowering("aten.relu6.default", why="clamped", promotion="default")
def relu6(x: Array) -> Array:
    """Limits to [0, 6]."""
    return jnp.clip(x, 0, 6)


@lowering("aten.hardsigmoid.default", why="computed in f32", promotion="default")
def hardsigmoid(x: Array) -> Array:
    """`relu6(x + 3) / 6`."""
    return jnp.clip(x + 3, 0, 6) / 6


@lowering("aten.hardswish.default", why="computed in f32", promotion="default")
def hardswish(x: Array) -> Array:
    """`x * relu6(x + 3) / 6`."""
    return x * jnp.clip(x + 3, 0, 6) / 6


@lowering("aten.prelu.default", why="one slope a channel")
def prelu(x: Array, weight: Array) -> Array:
    """Leaky ReLU whose slope is learned, one for all or one a channel (dimension 1)."""
    if weight.size > 1 and x.ndim > 1:
        weight = weight.reshape(weight.size, *(1,) * (x.ndim - 2))
    return jnp.where(x > 0, x, x * weight)


@lowering("aten.glu.default", why="halves of one dimension", promotion="default")
def glu(x: Array, dim: int = -1) -> Array:
    """The first half times the sigmoid of the second."""
    first, second = jnp.split(x, 2, axis=dim)
    return first * jax.nn.sigmoid(second)


@lowering("aten.softmax.int", "aten._softmax.default", why="the sum in f32")
def softmax(x: Array, dim: int, dtype: torch.dtype | bool | None = None) -> Array:
    """Softmax along a dimension. `_softmax`'s last argument, half to float, is met by the result's dtype."""
    return jax.nn.softmax(_widened(x, dtype), axis=dim) if x.ndim else jnp.ones_like(x)


@lowering("aten.log_softmax.int", "aten._log_softmax.default", why="the sum in f32")
def log_softmax(x: Array, dim: int, dtype: torch.dtype | bool | None = None) -> Array:
    """The logarithm of softmax along a dimension."""
    return jax.nn.log_softmax(_widened(x, dtype), axis=dim) if x.ndim else jnp.zeros_like(x)


@lowering("aten._safe_softmax.default", why="rows that are masked out give zeros")
def safe_softmax(x: Array, dim: int, dtype: torch.dtype | None = None) -> Array:
    """Softmax along a dimension; a row of -inf gives zeros in place of NaN."""
    y = softmax(x, dim, dtype)
    masked = jnp.all(x == -jnp.inf, axis=dim, keepdims=True)
    return jnp.where(masked, jnp.zeros((), y.dtype), y)


def _widened(x: Array, dtype: torch.dtype | bool | None) -> Array:
    if isinstance(dtype, torch.dtype):
        x = x.astype(to_jax(dtype))
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
