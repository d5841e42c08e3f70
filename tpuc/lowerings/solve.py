"""Linear systems: solvers, inverses and determinants, over the factorizations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tpuc.lowerings.factorization import adjoint_of, eigh, lu_factor_ex, narrow_on_tpu, permutation, svd
from tpuc.lowerings.matmul import precise_matmul
from tpuc.lowerings.registry import lowering

Array = jax.Array
_WHY = "torch-mlir has no linear algebra; over the factorizations"


def solve_triangular(
    a: Array, b: Array, *, upper: bool, left: bool = True, unitriangular: bool = False, adjoint_a: bool = False
) -> Array:
    """Solves `a @ x = b`, or `x @ a = b`, reading one triangle of `a`; leading dimensions broadcast.

    With `adjoint_a` the equation has the adjoint of `a`.
    """
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return lax.linalg.triangular_solve(
        jnp.broadcast_to(narrow_on_tpu(a), (*batch, *a.shape[-2:])),
        jnp.broadcast_to(b, (*batch, *b.shape[-2:])),
        left_side=left,
        lower=not upper,
        transpose_a=adjoint_a,
        conjugate_a=adjoint_a,
        unit_diagonal=unitriangular,
    )


lowering("aten.linalg_solve_triangular.default", why=_WHY)(solve_triangular)


@lowering("aten.triangular_solve.default", why=_WHY)
def triangular_solve(
    b: Array, a: Array, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Array, Array]:
    """Solves `a @ x = b`, or with the transpose of `a`; the second result is `a`, broadcast."""
    matrix, triangle = (jnp.swapaxes(a, -1, -2), not upper) if transpose else (a, upper)
    x = solve_triangular(matrix, b, upper=triangle, unitriangular=unitriangular)
    return x, jnp.broadcast_to(a, (*x.shape[:-2], *a.shape[-2:]))


@lowering("aten.cholesky_solve.default", "aten._cholesky_solve_helper.default", why=_WHY)
def cholesky_solve(b: Array, factor: Array, upper: bool = False) -> Array:
    """Solves `a @ x = b` by the Cholesky factor of `a`."""
    y = solve_triangular(factor, b, upper=upper, adjoint_a=upper)
    return solve_triangular(factor, y, upper=upper, adjoint_a=not upper)


@lowering("aten.cholesky_inverse.default", why=_WHY)
def cholesky_inverse(factor: Array, upper: bool = False) -> Array:
    """The inverse of a matrix by its Cholesky factor."""
    return cholesky_solve(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor, upper)


@lowering("aten.linalg_lu_solve.default", why=_WHY)
def lu_solve(factors: Array, pivots: Array, b: Array, *, left: bool = True, adjoint: bool = False) -> Array:
    """Solves `a @ x = b`, or `x @ a = b`, by what `lu_factor_ex` made of `a`; or with the adjoint of `a`."""
    if not left:
        # x @ a = b is a.H @ x.H = b.H.
        return adjoint_of(lu_solve(factors, pivots, adjoint_of(b), adjoint=not adjoint))
    rows = permutation(pivots, factors.shape[-1])
    if adjoint:
        y = solve_triangular(factors, b, upper=True, adjoint_a=True)
        y = solve_triangular(factors, y, upper=False, unitriangular=True, adjoint_a=True)
        return _take_rows(y, jnp.argsort(rows, axis=-1))
    y = solve_triangular(factors, _take_rows(b, rows), upper=False, unitriangular=True)
    return solve_triangular(factors, y, upper=True)


@lowering("aten._linalg_solve_ex.default", why=_WHY)
def solve_ex(a: Array, b: Array, *, left: bool = True, check_errors: bool = False) -> tuple[Array, Array, Array, Array]:
    """Solves `a @ x = b`, or `x @ a = b`; `b` holds matrices, or as many vectors as `a` has matrices.

    Returns:
        x, and the factors, pivots and first zero pivot of `a`: see `lu_factor_ex`.
    """
    factors, pivots, info = lu_factor_ex(a)
    is_vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    if not is_vector:
        return lu_solve(factors, pivots, b, left=left), factors, pivots, info
    return lu_solve(factors, pivots, b[..., None], left=left)[..., 0], factors, pivots, info


@lowering("aten.linalg_inv_ex.default", why=_WHY)
def inv_ex(a: Array, *, check_errors: bool = False) -> tuple[Array, Array]:
    """The inverse, and 0 or, where a matrix is singular, which pivot is zero, from 1."""
    x, _, _, info = solve_ex(a, jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape))
    return x, info


@lowering("aten._linalg_det.default", why=_WHY)
def det(a: Array) -> tuple[Array, Array, Array]:
    """The determinant, with the LU factors and pivots that it came from."""
    factors, pivots, _ = lu_factor_ex(a)
    return _parity(pivots, a.dtype) * jnp.prod(_diagonal(factors), -1), factors, pivots


@lowering("aten._linalg_slogdet.default", why=_WHY)
def slogdet(a: Array) -> tuple[Array, Array, Array, Array]:
    """The sign of the determinant and the logarithm of its absolute value, with the LU factors and pivots."""
    factors, pivots, _ = lu_factor_ex(a)
    diagonal = _diagonal(factors)
    size = jnp.abs(diagonal)
    sign = _parity(pivots, a.dtype) * jnp.prod(jnp.sign(diagonal), -1)
    return sign, jnp.log(size).sum(-1), factors, pivots


@lowering("aten.linalg_pinv.atol_rtol_tensor", why=_WHY)
def pinv(a: Array, *, atol: Array | None = None, rtol: Array | None = None, hermitian: bool = False) -> Array:
    """The Moore-Penrose inverse: singular values up to `max(atol, rtol * the largest)` count as zero.

    Without `rtol` it is the larger dimension times the dtype's epsilon, or 0 where `atol` is given and positive.
    """
    if not a.size:
        return jnp.swapaxes(a, -1, -2)
    if hermitian:
        values, v = eigh(a)
        u = v
    else:
        u, values, vh = svd(a)
        v = adjoint_of(vh)
    size = jnp.abs(values)
    default = jnp.asarray(max(a.shape[-2:]) * jnp.finfo(a.dtype).eps, size.dtype)
    absolute = jnp.zeros((), size.dtype) if atol is None else atol
    relative = rtol if rtol is not None else jnp.where(absolute > 0, 0, default)
    cut = jnp.maximum(absolute[..., None], relative[..., None] * size.max(-1, keepdims=True))
    inverse = jnp.where(size > cut, 1 / values, 0).astype(a.dtype)
    return precise_matmul(v * inverse[..., None, :], adjoint_of(u))


def _take_rows(x: Array, rows: Array) -> Array:
    batch = jnp.broadcast_shapes(x.shape[:-2], rows.shape[:-1])
    x = jnp.broadcast_to(x, (*batch, *x.shape[-2:]))
    rows = jnp.broadcast_to(rows, (*batch, rows.shape[-1]))
    return jnp.take_along_axis(x, rows[..., None], axis=-2)


def _parity(pivots: Array, dtype: jnp.dtype) -> Array:
    """1, or -1 where an odd number of rows was swapped."""
    swaps = pivots != jnp.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype)
    return (1 - 2 * (swaps.sum(-1) % 2)).astype(dtype)


def _diagonal(x: Array) -> Array:
    return jnp.diagonal(x, axis1=-2, axis2=-1)
