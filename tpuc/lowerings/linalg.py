"""Functions of matrices, and distances between vectors."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tpuc.lowerings.factorization import narrow_on_tpu
from tpuc.lowerings.matmul import precise_matmul
from tpuc.lowerings.registry import lowering

Array = jax.Array
#: The 1-norm up to which a Taylor polynomial of degree 18 is as exact as the dtype.
#: Source: Bader, Blanes, Casas, "Computing the Matrix Exponential with an Optimized Taylor Polynomial Approximation",
#: Mathematics 7(12):1174, 2019, table 1.
_TAYLOR_18 = {np.dtype(np.float32): 3.010066362817634, np.dtype(np.float64): 1.090863719290036}
#: Above so many vectors PyTorch computes Euclidean distances by a matrix product. Source: ATen/native/Distance.cpp.
_PRODUCT_FROM = 25


@lowering("aten.linalg_matrix_exp.default", why="products alone, which a TPU is made for")
def matrix_exp(x: Array) -> Array:
    """The exponential of square matrices: a Taylor polynomial of `x / 2**s`, squared s times."""
    if not x.size:
        return x
    x = narrow_on_tpu(x.astype(jnp.promote_types(x.dtype, jnp.float32)))
    norm = jnp.abs(x).sum(-2).max(-1)
    halvings = jnp.ceil(jnp.log2(norm / _TAYLOR_18[np.dtype(norm.dtype)]))
    # Where the norm is not finite neither is the result, whatever is done.
    halvings = jnp.where(jnp.isfinite(norm), jnp.maximum(halvings, 0), 0)[..., None, None]
    y = _taylor_20(x * jnp.exp2(-halvings))

    def square(step: Array, y: Array) -> Array:
        return jnp.where(step < halvings, precise_matmul(y, y), y)

    return lax.fori_loop(0, halvings.max().astype(jnp.int32), square, y)


def _taylor_20(x: Array) -> Array:
    """The exponential's Taylor polynomial of degree 20, by Horner's rule in the fourth power: seven products."""
    x2 = precise_matmul(x, x)
    powers = (jnp.eye(x.shape[-1], dtype=x.dtype), x, x2, precise_matmul(x2, x))
    x4 = precise_matmul(x2, x2)

    def terms(lowest: int) -> Array:
        return sum((power / math.factorial(lowest + k) for k, power in enumerate(powers)), jnp.zeros_like(x))

    y = x4 / math.factorial(20) + terms(16)
    for lowest in (12, 8, 4, 0):
        y = precise_matmul(y, x4) + terms(lowest)
    return y


@lowering("aten._cdist_forward.default", why="one matrix product where PyTorch makes one")
def cdist_forward(x: Array, y: Array, p: float, compute_mode: int | None) -> Array:
    """The p-norm distance between every row of `x` and every row of `y`: [..., P, M] and [..., R, M] to [..., P, R].

    The modes, for Euclidean distances: 0 or None goes through a matrix product from 26 rows on, 1 always, 2 never.
    """
    use_product = compute_mode == 1 or (
        compute_mode != 2 and (x.shape[-2] > _PRODUCT_FROM or y.shape[-2] > _PRODUCT_FROM)
    )
    if p == 2 and use_product:
        return _euclidean_by_product(x, y)
    return _norm(x[..., :, None, :] - y[..., None, :, :], p)


@lowering("aten._pdist_forward.default", why="pairs known beforehand")
def pdist_forward(x: Array, p: float = 2) -> Array:
    """The p-norm distances between the rows of a matrix, of each pair once."""
    first, second = np.triu_indices(x.shape[0], 1)
    return _norm(x[first] - x[second], p)


def _euclidean_by_product(x: Array, y: Array) -> Array:
    squares = (x * x).sum(-1)[..., :, None] + (y * y).sum(-1)[..., None, :]
    product = precise_matmul(x, jnp.swapaxes(y, -1, -2))
    return jnp.sqrt(jnp.maximum(squares - 2 * product, 0))


def _norm(x: Array, p: float) -> Array:
    """The p-norm over the last dimension; nothing has the norm 0."""
    size = jnp.abs(x)
    if not x.shape[-1]:
        return jnp.zeros(x.shape[:-1], size.dtype)
    if p == 0:
        return (size != 0).sum(-1).astype(size.dtype)
    if p == 1:
        return size.sum(-1)
    if p == 2:
        return jnp.sqrt((size * size).sum(-1))
    if math.isinf(p):
        return size.max(-1)
    return (size**p).sum(-1) ** (1 / p)
