"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from tpuc.lowerings.dtypes import to_jax
from tpuc.lowerings.registry import lowering

Array = jax.Array


@lowering("aten.linear.default", why="torch-mlir transposes the weight and broadcasts it over the batch")
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """`x @ weight.T + bias`, contracting the weight's second dimension where it lies."""
    y = lax.dot_general(x, weight, (((x.ndim - 1,), (weight.ndim - 1,)), ((), ())))
    return y if bias is None else y + bias


@lowering(
    "aten.matmul.default",
    "aten.mm.default",
    "aten.bmm.default",
    "aten.mv.default",
    "aten.dot.default",
    why="broadcasts without copies",
)
def matmul(x: Array, y: Array) -> Array:
    """The matrix product, with NumPy's broadcasting of leading dimensions."""
    return jnp.matmul(x, y)


def precise_matmul(x: Array, y: Array) -> Array:
    """The matrix product, in f32 where a TPU's own would round its operands to bf16."""
    return jnp.matmul(x, y, precision=lax.Precision.HIGHEST)


@lowering("aten.mm.dtype", "aten.bmm.dtype", why="accumulates in the result's dtype")
def matmul_dtype(x: Array, y: Array, out_dtype: torch.dtype) -> Array:
    """The matrix product of narrow numbers in a wider dtype."""
    return jnp.matmul(x, y, preferred_element_type=to_jax(out_dtype))


@lowering("aten.vdot.default", why="the first operand is conjugated")
def vdot(x: Array, y: Array) -> Array:
    """The product of two vectors, the first conjugated."""
    return matmul(jnp.conj(x), y)


@lowering("aten.addmm.default", "aten.addmv.default", "aten.baddbmm.default", why="scales left out when 1")
def addmm(bias: Array, x: Array, y: Array, *, beta: Any = 1, alpha: Any = 1) -> Array:
    """`beta * bias + alpha * (x @ y)`."""
    return _add_product(bias, matmul(x, y), beta, alpha)


@lowering("aten.addmm.dtype", "aten.baddbmm.dtype", why="accumulates in the result's dtype")
def addmm_dtype(bias: Array, x: Array, y: Array, out_dtype: torch.dtype, *, beta: Any = 1, alpha: Any = 1) -> Array:
    """`beta * bias + alpha * (x @ y)` of narrow numbers in a wider dtype."""
    return _add_product(bias, matmul_dtype(x, y, out_dtype), beta, alpha)


@lowering("aten.addbmm.default", why="one product, summed over the batch as well")
def addbmm(bias: Array, x: Array, y: Array, *, beta: Any = 1, alpha: Any = 1) -> Array:
    """`beta * bias + alpha * (x @ y).sum(0)` of batches of matrices."""
    return _add_product(bias, lax.dot_general(x, y, (((0, 2), (0, 1)), ((), ()))), beta, alpha)


@lowering("aten.addr.default", why="scales left out when 1", promotion="default")
def addr(bias: Array, x: Array, y: Array, *, beta: Any = 1, alpha: Any = 1) -> Array:
    """`beta * bias + alpha * outer(x, y)`."""
    return _add_product(bias, jnp.outer(x, y), beta, alpha)


@lowering("aten.bilinear.default", why="two products in place of a broadcast one")
def bilinear(x: Array, y: Array, weight: Array, bias: Array | None = None) -> Array:
    """`x @ weight[o] @ y` for each output o, of vectors in the last dimensions."""
    z = jnp.einsum("...i,oij,...j->...o", x, weight, y)
    return z if bias is None else z + bias


@lowering("aten._trilinear.default", why="one product over all dimensions that are summed")
def trilinear(
    x: Array,
    y: Array,
    z: Array,
    expand_x: Sequence[int],
    expand_y: Sequence[int],
    expand_z: Sequence[int],
    summed: Sequence[int],
    unroll_dim: int = 1,
) -> Array:
    """`(x * y * z).sum(summed)`, where each operand first gets dimensions of one at the places of its `expand`.

    A dimension that every operand got in this way has no elements, as in PyTorch, which sums over it nothing where it
    is `unroll_dim`, and one element elsewhere.
    """
    rank = x.ndim + len(expand_x)
    operands: list[Any] = []
    sizes = [0] * rank
    for operand, expand in ((x, expand_x), (y, expand_y), (z, expand_z)):
        dims = [dim for dim in range(rank) if dim not in {each % rank for each in expand}]
        # What is broadcast has one element there: it takes no part in the product along it.
        own = [dim for dim, size in zip(dims, operand.shape, strict=True) if size != 1]
        operands += [operand.reshape([size for size in operand.shape if size != 1]), own]
        for dim, size in zip(dims, operand.shape, strict=True):
            sizes[dim] = size if size != 1 else sizes[dim] or 1
    kept = [dim for dim in range(rank) if dim not in {each % rank for each in summed}]
    if not all(sizes[dim] for dim in (*kept, unroll_dim)):
        return jnp.zeros([sizes[dim] for dim in kept], x.dtype)
    product = jnp.einsum(*operands, [dim for dim in kept if sizes[dim] != 1])
    return product.reshape([sizes[dim] for dim in kept])


def _add_product(bias: Array, product: Array, beta: Any, alpha: Any) -> Array:
    """`beta * bias + alpha * product`; with beta 0 the bias is ignored, NaN and all."""
    scaled = _times(alpha, product)
    return scaled if beta == 0 else _times(beta, bias) + scaled


def _times(scale: Any, x: Array) -> Array:
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        scale = int(scale)  # PyTorch casts the scale to the tensors' dtype.
    return x if scale == 1 else x * scale
