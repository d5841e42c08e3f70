"""Factorizations of matrices: Cholesky, LU, QR, eigenvalues and singular values.

JAX has them: LAPACK's on the CPU, XLA's own on a TPU. All take batches of matrices in the last two dimensions.
A program cannot raise: where PyTorch says that a matrix is singular, or not positive definite, what comes back holds
infinities or NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from tpuc.lowerings.eigenvalues import eig_by_qr
from tpuc.lowerings.matmul import precise_matmul
from tpuc.lowerings.platforms import refuse_on_tpu
from tpuc.lowerings.registry import lowering

Array = jax.Array
_WHY = "torch-mlir has no linear algebra; JAX has LAPACK's for the CPU and XLA's for a TPU"


def adjoint_of(x: Array) -> Array:
    """The conjugate transpose of matrices."""
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def narrow_on_tpu(x: Array) -> Array:
    """Returns a matrix; no factorization of one that is complex128 compiles for a TPU (it ends libtpu's process)."""
    return refuse_on_tpu(x, "libtpu has no linear algebra in complex128") if x.dtype == jnp.complex128 else x


@lowering("aten.cholesky.default", why=_WHY)
def cholesky(x: Array, upper: bool = False) -> Array:
    """The Cholesky factor `L` of `x = L @ L.H`, from the lower triangle of `x`; with `upper`, `L.H` from the upper."""
    x = narrow_on_tpu(x)
    factor = lax.linalg.cholesky(adjoint_of(x) if upper else x, symmetrize_input=False)
    return adjoint_of(factor) if upper else factor


@lowering("aten.linalg_cholesky_ex.default", why=_WHY)
def cholesky_ex(x: Array, *, upper: bool = False, check_errors: bool = False) -> tuple[Array, Array]:
    """The Cholesky factor, and 0 or, where a matrix is not positive definite, a row (not always LAPACK's)."""
    factor = cholesky(x, upper)
    return factor, _first(jnp.isnan(_diagonal(factor).real))


@lowering("aten.linalg_lu_factor_ex.default", why=_WHY)
def lu_factor_ex(x: Array, *, pivot: bool = True, check_errors: bool = False) -> tuple[Array, Array, Array]:
    """L and U in one matrix, LAPACK's pivots (row i was swapped with row pivots[i], from 1), and the first zero pivot.

    Returns:
        LU [..., m, n], pivots i32[..., min(m, n)], and i32[...]: 0, or which diagonal element of U is zero, from 1.
    """
    if not pivot:
        raise NotImplementedError("LU without pivoting is not implemented, on PyTorch's CPU neither")
    if x.dtype in (jnp.float64, jnp.complex128):
        x = refuse_on_tpu(x, f"libtpu has no LU factorization in {x.dtype}")
    factors, pivots, _ = lax.linalg.lu(x)
    return factors, pivots + 1, _first(_diagonal(factors) == 0)


@lowering("aten.lu_unpack.default", why="a gather of the identity")
def lu_unpack(
    factors: Array, pivots: Array, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Array, Array, Array]:
    """P, L and U from what `lu_factor_ex` returns; what is not asked for has size 0."""
    m, n = factors.shape[-2:]
    k = min(m, n)
    empty = jnp.zeros((0,), factors.dtype)
    p = lower = upper = empty
    if unpack_pivots:
        # Row i of P.T has its one in column permutation[i].
        one_hot = permutation(pivots, m)[..., None] == jnp.arange(m)
        p = jnp.swapaxes(one_hot, -1, -2).astype(factors.dtype)
    if unpack_data:
        lower = jnp.tril(factors[..., :, :k], -1) + jnp.eye(m, k, dtype=factors.dtype)
        upper = jnp.triu(factors[..., :k, :])
    return p, lower, upper


@lowering("aten.linalg_lu.default", why=_WHY)
def lu(x: Array, *, pivot: bool = True) -> tuple[Array, Array, Array]:
    """P, L and U with `x = P @ L @ U`."""
    factors, pivots, _ = lu_factor_ex(x, pivot=pivot)
    return lu_unpack(factors, pivots)


def permutation(pivots: Array, rows: int) -> Array:
    """Returns which row each of the swaps' rows comes from: the factored matrix is `x[permutation]`."""
    return lax.linalg.lu_pivots_to_permutation(pivots - 1, rows)


@lowering("aten.linalg_qr.default", why=_WHY)
def qr(x: Array, mode: str = "reduced") -> tuple[Array, Array]:
    """Q and R with `x = Q @ R`; with the mode `r`, R alone and a Q of size 0."""
    q, r = lax.linalg.qr(narrow_on_tpu(x), full_matrices=mode == "complete")
    return (jnp.zeros((0,), x.dtype) if mode == "r" else q), r


@lowering("aten.geqrf.default", why=_WHY)
def geqrf(x: Array) -> tuple[Array, Array]:
    """QR as LAPACK leaves it: R and below it the Householder vectors, and their factors."""
    vectors, tau = jnp.linalg.qr(narrow_on_tpu(x), mode="raw")
    return jnp.swapaxes(vectors, -1, -2), tau


@lowering("aten.linalg_householder_product.default", why=_WHY)
def householder_product(vectors: Array, tau: Array) -> Array:
    """The first columns of the product of Householder reflections: what `geqrf` leaves, as Q."""
    return lax.linalg.householder_product(narrow_on_tpu(vectors), tau)


@lowering("aten.ormqr.default", why=_WHY)
def ormqr(vectors: Array, tau: Array, x: Array, left: bool = True, transpose: bool = False) -> Array:
    """`Q @ x`, or `x @ Q`, of the whole Q that `geqrf` leaves; with `transpose`, of its adjoint."""
    return lax.linalg.ormqr(narrow_on_tpu(vectors[..., : tau.shape[-1]]), tau, x, left=left, transpose=transpose)


@lowering("aten.linalg_eig.default", why=_WHY)
def eig(x: Array) -> tuple[Array, Array]:
    """The eigenvalues and eigenvectors of square matrices, complex; the order of the eigenvalues is the platform's."""
    values, vectors = _eig(x, with_vectors=True)
    return values, vectors


@lowering("aten.linalg_eigvals.default", "aten._linalg_eigvals.default", why=_WHY)
def eigvals(x: Array) -> Array:
    """The eigenvalues of square matrices, complex, in the order of the platform."""
    (values,) = _eig(x, with_vectors=False)
    return values


def _eig(x: Array, *, with_vectors: bool) -> Sequence[Array]:
    def by_lapack(x: Array) -> tuple[Array, ...]:
        return tuple(lax.linalg.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=with_vectors))

    def by_qr(x: Array) -> tuple[Array, ...]:
        z = narrow_on_tpu(x.astype(jnp.promote_types(x.dtype, jnp.complex64)))
        return eig_by_qr(z)[: 1 + with_vectors]

    results: Sequence[Array] = lax.platform_dependent(x, tpu=by_qr, default=by_lapack)
    return results


@lowering("aten._linalg_eigh.default", why=_WHY)
def eigh(x: Array, uplo: str = "L", compute_v: bool = True) -> tuple[Array, Array]:
    """The eigenvalues, ascending, and eigenvectors of Hermitian matrices, of which one triangle is read."""
    vectors, values = lax.linalg.eigh(narrow_on_tpu(x), lower=uplo.upper() == "L", symmetrize_input=False)
    return values, vectors if compute_v else jnp.zeros((0,), x.dtype)


@lowering("aten._linalg_svd.default", why=_WHY)
def svd(
    x: Array, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Array, Array, Array]:
    """U, the singular values, descending, and the adjoint of V; values alone leave the others with size 0."""
    x = narrow_on_tpu(x)
    if not compute_uv:
        empty = jnp.zeros((0,), x.dtype)
        return empty, lax.linalg.svd(x, compute_uv=False), empty
    by_lapack = partial(_svd_by_lapack, full_matrices=full_matrices)
    if not x.size:
        return by_lapack(x)
    by_polar = partial(_svd_by_polar, full_matrices=full_matrices)
    result: tuple[Array, Array, Array] = lax.platform_dependent(x, tpu=by_polar, default=by_lapack)
    return result


def _svd_by_lapack(x: Array, *, full_matrices: bool) -> tuple[Array, Array, Array]:
    u, values, vh = lax.linalg.svd(x, full_matrices=full_matrices)
    return u, values, vh


def _svd_by_polar(x: Array, *, full_matrices: bool) -> tuple[Array, Array, Array]:
    """The singular values of matrices, by their polar factors and the eigenvalues of the Hermitian one.

    JAX's own for a TPU does the same, but with 64-bit types on it multiplies floats by an i64 matrix, which ends
    libtpu's process.

    Source: Nakatsukasa, Higham, "Stable and Efficient Spectral Divide and Conquer Algorithms for the Symmetric
    Eigenvalue Decomposition and the SVD", SIAM Journal on Scientific Computing 35(3), 2013.
    """
    if x.ndim > 2:
        return jax.vmap(partial(_svd_by_polar, full_matrices=full_matrices))(x)
    m, n = x.shape
    if m < n:
        u, values, vh = _svd_by_polar(adjoint_of(x), full_matrices=full_matrices)
        return adjoint_of(vh), values, adjoint_of(u)
    q, square = lax.linalg.qr(x, full_matrices=full_matrices)
    unitary, hermitian, _, _ = lax.linalg.qdwh(square[:n])
    vectors, values = lax.linalg.eigh(hermitian)
    values, v = jnp.maximum(values[::-1], 0), vectors[:, ::-1]
    u = precise_matmul(unitary, v)
    # Where singular values vanish, the polar factor says nothing of their vectors; any that complete a basis will do.
    basis, r = lax.linalg.qr(u, full_matrices=False)
    basis = basis * jnp.where(_diagonal(r).real >= 0, 1, -1).astype(x.dtype)
    u = jnp.where(values[-1] <= n * jnp.finfo(x.dtype).eps * values[0], basis, u)
    return jnp.concatenate([precise_matmul(q[:, :n], u), q[:, n:]], axis=1), values, adjoint_of(v)


def _diagonal(x: Array) -> Array:
    return jnp.diagonal(x, axis1=-2, axis2=-1)


def _first(found: Array) -> Array:
    """The place of the first True in the last dimension, from 1, as LAPACK counts; 0 if there is none."""
    if not found.shape[-1]:
        return jnp.zeros(found.shape[:-1], jnp.int32)
    return jnp.where(found.any(-1), jnp.argmax(found, -1) + 1, 0).astype(jnp.int32)
