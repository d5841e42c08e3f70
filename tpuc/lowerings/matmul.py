"""Matrix products."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tpuc.lowerings.registry import lowering

Array = jax.Array


@lowering("aten.linear.default", why="torch-mlir transposes the weight and broadcasts it over the batch")
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """`x @ weight.T + bias`, contracting the weight's second dimension where it lies."""
    y = lax.dot_general(x, weight, (((x.ndim - 1,), (weight.ndim - 1,)), ((), ())))
    return y if bias is None else y + bias


@lowering(
    "aten.matmul.default", "aten.mm.default", "aten.bmm.default", "aten.mv.default", why="broadcasts without copies"
)
def matmul(x: Array, y: Array) -> Array:
    """The matrix product, with NumPy's broadcasting of leading dimensions."""
    return jnp.matmul(x, y)


@lowering("aten.dot.default", "aten.inner.default", why="contracted where they lie")
def inner(x: Array, y: Array) -> Array:
    """The product summed over the last dimensions."""
    return jnp.inner(x, y)


@lowering("aten.vdot.default", why="the first operand is conjugated")
def vdot(x: Array, y: Array) -> Array:
    """The product of two vectors, the first conjugated."""
    return jnp.vdot(x, y)


@lowering(
    "aten.addmm.default",
    "aten.addbmm.default",
    "aten.addmv.default",
    "aten.baddbmm.default",
    why="scales left out when 1",
)
def addmm(bias: Array, x: Array, y: Array, *, beta: Any = 1, alpha: Any = 1) -> Array:
    """`beta * bias + alpha * (x @ y)`; a batch that `bias` does not have is summed over."""
    product = jnp.matmul(x, y)
    if product.ndim > max(bias.ndim, 2) and x.ndim == 3 and bias.ndim == 2:
        product = product.sum(0)
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return jnp.broadcast_to(product, product.shape)
    return product + (bias if beta == 1 else bias * beta)
