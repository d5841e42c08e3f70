"""Eigenvalues and eigenvectors of general matrices by the QR algorithm, for a TPU: JAX has LAPACK's for the CPU alone.

`a = q @ t @ q.H`, with t upper triangular: a Hessenberg matrix, made by Householder reflections, to which shifted QR
steps are applied. The eigenvalues stand on the diagonal of t, and its eigenvectors are solved for from the last row up.
All is complex, as real matrices have complex eigenvalues.

Sources: Golub, Van Loan, "Matrix Computations", 4th edition, sections 7.4 (Hessenberg), 7.5 (the shifted QR algorithm)
and 7.6 (eigenvectors); exceptional shifts are those of LAPACK's `zlahqr`, and vectors are scaled as by its `zgeev`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tpuc.lowerings.matmul import precise_matmul

Array = jax.Array
#: Steps for each eigenvalue, and after how many without one a shift is made up. Source: LAPACK's `zlahqr`.
_MOST_STEPS = 30
_STEPS_TO_EXCEPTION = 10
_EXCEPTIONAL = 0.75


class _Schur(NamedTuple):
    """Between two QR steps.

    Attributes:
        t: The matrix [n, n], upper triangular below row `last`, and Hessenberg above.
        q: Unitary [n, n].
        last: The last row whose eigenvalue is not found yet.
        steps: How many steps were made for it.
        all_steps: How many were made in all.
    """

    t: Array
    q: Array
    last: Array
    steps: Array
    all_steps: Array


def eig_by_qr(x: Array) -> tuple[Array, Array]:
    """The eigenvalues [..., n] of complex matrices [..., n, n], and their eigenvectors [..., n, n] as columns.

    A vector has length one, and its largest element is real. What does not converge is left as it is; the eigenvalues
    come in the order in which they are found.
    """
    if not x.size:
        return jnp.zeros(x.shape[:-1], x.dtype), x
    if x.ndim > 2:
        values, vectors = jax.vmap(eig_by_qr)(x.reshape(-1, *x.shape[-2:]))
        return values.reshape(x.shape[:-1]), vectors.reshape(x.shape)
    schur = _schur(*_hessenberg(x))
    vectors = precise_matmul(schur.q, _triangular_vectors(schur.t))
    vectors = vectors / _length(vectors)
    largest = jnp.take_along_axis(vectors, jnp.argmax(jnp.abs(vectors), axis=0)[None], axis=0)
    return jnp.diagonal(schur.t), vectors * (jnp.conj(largest) / jnp.abs(largest))


def _hessenberg(x: Array) -> tuple[Array, Array]:
    """The Hessenberg form of a matrix, and the unitary matrix that leads to it."""
    rows = jnp.arange(len(x))

    def reflect(column: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        h, q = state
        below = jnp.where(rows > column, h[:, column], 0)
        head = below[column + 1]
        size = jnp.abs(head)
        phase = jnp.where(size > 0, head / jnp.where(size > 0, size, 1), 1)
        v = below + jnp.where(rows == column + 1, phase * _length(below), 0)
        length = _length(v)
        v = (v / jnp.where(length > 0, length, 1))[:, None]
        adjoint = jnp.conj(v).T
        h = h - 2 * precise_matmul(v, precise_matmul(adjoint, h))
        h = h - 2 * precise_matmul(precise_matmul(h, v), adjoint)
        return h, q - 2 * precise_matmul(precise_matmul(q, v), adjoint)

    h, q = lax.fori_loop(0, len(x) - 2, reflect, (x, jnp.eye(len(x), dtype=x.dtype)))
    return jnp.triu(h, -1), q


def _schur(h: Array, q: Array) -> _Schur:
    n = len(h)
    epsilon = jnp.finfo(h.dtype).eps

    def unfinished(state: _Schur) -> Array:
        return (state.last > 0) & (state.all_steps < _MOST_STEPS * n)

    def step(state: _Schur) -> _Schur:
        t, q, last, steps, all_steps = state
        coupling = jnp.abs(t[last, last - 1])
        is_found = coupling <= epsilon * (jnp.abs(t[last, last]) + jnp.abs(t[last - 1, last - 1]))
        cut = t.at[last, last - 1].set(0)
        turned, turned_q = _qr_step(t, q, last, _shift(t, last, steps))
        return _Schur(
            t=jnp.where(is_found, cut, turned),
            q=jnp.where(is_found, q, turned_q),
            last=jnp.where(is_found, last - 1, last),
            steps=jnp.where(is_found, 0, steps + 1),
            all_steps=all_steps + jnp.where(is_found, 0, 1),
        )

    zero = jnp.zeros((), jnp.int32)
    return lax.while_loop(unfinished, step, _Schur(h, q, jnp.asarray(n - 1, jnp.int32), zero, zero))


def _shift(t: Array, last: Array, steps: Array) -> Array:
    """The eigenvalue of the last two rows that is nearer to the last element (Wilkinson); now and then another one."""
    a, b, c, d = t[last - 1, last - 1], t[last - 1, last], t[last, last - 1], t[last, last]
    half = (a - d) / 2
    root = jnp.sqrt(half * half + b * c)
    divisor = jnp.where(jnp.abs(half + root) >= jnp.abs(half - root), half + root, half - root)
    near = d - jnp.where(divisor == 0, 0, b * c / jnp.where(divisor == 0, 1, divisor))
    is_exceptional = (steps > 0) & (steps % _STEPS_TO_EXCEPTION == 0)
    return jnp.where(is_exceptional, d + _EXCEPTIONAL * jnp.abs(c), near)


def _qr_step(t: Array, q: Array, last: Array, shift: Array) -> tuple[Array, Array]:
    """`t - shift = g.H @ r` in the rows up to the last becomes `r @ g.H + shift`, with g of rotations of two rows."""
    n = len(t)
    is_active = jnp.arange(n) <= last
    t = t - jnp.diag(jnp.where(is_active, shift, 0))

    def rotate_rows(row: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        t, cosines, sines = state
        upper, lower = t[row], t[row + 1]
        a, b = upper[row], lower[row]
        size = jnp.hypot(jnp.abs(a), jnp.abs(b))
        is_turned = (row < last) & (size > 0)
        size = jnp.where(is_turned, size, 1)
        c, s = jnp.where(is_turned, a / size, 1), jnp.where(is_turned, b / size, 0)
        t = t.at[row].set(jnp.conj(c) * upper + jnp.conj(s) * lower).at[row + 1].set(c * lower - s * upper)
        return t, cosines.at[row].set(c), sines.at[row].set(s)

    def rotate_columns(column: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        c, s = cosines[column], sines[column]

        def rotated(x: Array) -> Array:
            left, right = x[:, column], x[:, column + 1]
            x = x.at[:, column].set(left * c + right * s)
            return x.at[:, column + 1].set(right * jnp.conj(c) - left * jnp.conj(s))

        t, q = state
        return rotated(t), rotated(q)

    t, cosines, sines = lax.fori_loop(0, n - 1, rotate_rows, (t, jnp.ones(n, t.dtype), jnp.zeros(n, t.dtype)))
    t, q = lax.fori_loop(0, n - 1, rotate_columns, (t, q))
    return t + jnp.diag(jnp.where(is_active, shift, 0)), q


def _triangular_vectors(t: Array) -> Array:
    """The eigenvectors of an upper triangular matrix, as the columns of another one.

    Equal eigenvalues would divide by zero: they are taken to differ by what rounding does.
    """
    n = len(t)
    values = jnp.diagonal(t)
    columns = jnp.arange(n)
    least = jnp.maximum(jnp.finfo(t.dtype).eps * jnp.abs(t).max(), jnp.finfo(t.dtype).tiny)

    def solve(number: Array, vectors: Array) -> Array:
        row = n - 1 - number
        known = precise_matmul(jnp.where(columns > row, t[row], 0)[None], vectors)[0]
        difference = values[row] - values
        difference = jnp.where(jnp.abs(difference) < least, least, difference)
        vectors = vectors.at[row].set(jnp.where(columns > row, -known / difference, vectors[row]))
        # Only directions count: what grows is scaled down, so that nothing overflows.
        return vectors / jnp.maximum(jnp.abs(vectors).max(axis=0), 1)

    return lax.fori_loop(0, n, solve, jnp.eye(n, dtype=t.dtype))


def _length(x: Array) -> Array:
    """The length of a vector, or of each column: scaled, as squares may overflow."""
    scale = jnp.abs(x).max(axis=0)
    scale = jnp.where(scale > 0, scale, 1)
    return scale * jnp.sqrt((jnp.abs(x / scale) ** 2).sum(axis=0))
