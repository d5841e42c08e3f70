"""The LDL factorization of symmetric and Hermitian matrices that need not be positive definite.

JAX has none. This is the unblocked algorithm of Bunch and Kaufman with LAPACK's storage and pivots, for the lower
triangle: `a = L @ D @ L.T`, D of blocks of one and two rows. Sources: Bunch, Kaufman, "Some Stable Methods for
Calculating Inertia and Solving Symmetric Linear Systems", Mathematics of Computation 31, 1977; LAPACK's `sytf2`,
`hetf2` and `sytrs`.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tpuc.lowerings.factorization import narrow_on_tpu
from tpuc.lowerings.matmul import precise_matmul
from tpuc.lowerings.registry import lowering

Array = jax.Array
_WHY = "neither torch-mlir nor JAX has it"
#: Balances the growth of the elements over one step with two rows and two steps with one (Bunch and Kaufman).
_ALPHA = (1 + math.sqrt(17)) / 8


class _State(NamedTuple):
    """Columns before `k` are done; `a` is whole, both triangles, from row and column `k` on."""

    k: Array
    a: Array
    pivots: Array
    info: Array


@lowering("aten.linalg_ldl_factor_ex.default", why=_WHY)
def ldl_factor_ex(x: Array, *, hermitian: bool = False, check_errors: bool = False) -> tuple[Array, Array, Array]:
    """L and D in one matrix, LAPACK's pivots, and 0 or which diagonal element of D is zero, from 1.

    A pivot p > 0 at i: a block of one row, swapped with row p. Pivots -p at i and i + 1: a block of two, of which
    the second was swapped with row p.
    """
    batch, n = x.shape[:-2], x.shape[-1]
    if not n:
        return x, jnp.zeros((*batch, 0), jnp.int32), jnp.zeros(batch, jnp.int32)
    flat = narrow_on_tpu(x).reshape(math.prod(batch), n, n)
    factors, pivots, info = jax.vmap(partial(_factor, hermitian=hermitian))(flat)
    return jnp.tril(factors).reshape(x.shape), pivots.reshape(*batch, n), info.reshape(batch)


@lowering("aten.linalg_ldl_solve.default", why=_WHY)
def ldl_solve(factors: Array, pivots: Array, b: Array, *, hermitian: bool = False) -> Array:
    """Solves `a @ x = b` by what `ldl_factor_ex` made of `a`."""
    batch = jnp.broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    if not b.size:
        return jnp.broadcast_to(b, (*batch, *b.shape[-2:]))
    inner = ((factors, factors.shape[-2:]), (pivots, pivots.shape[-1:]), (b, b.shape[-2:]))
    flat = [jnp.broadcast_to(array, (*batch, *shape)).reshape(-1, *shape) for array, shape in inner]
    return jax.vmap(partial(_solve, hermitian=hermitian))(*flat).reshape(*batch, *b.shape[-2:])


def _factor(x: Array, *, hermitian: bool) -> tuple[Array, Array, Array]:
    lower = jnp.tril(x, -1)
    diagonal = jnp.diag(jnp.diag(x).real.astype(x.dtype) if hermitian else jnp.diag(x))
    whole = lower + diagonal + (jnp.conj(lower.T) if hermitian else lower.T)
    n = x.shape[0]
    start = _State(k=jnp.int32(0), a=whole, pivots=jnp.zeros(n, jnp.int32), info=jnp.int32(0))
    end = lax.while_loop(lambda state: state.k < n, partial(_eliminate, hermitian=hermitian), start)
    return end.a, end.pivots, end.info


def _eliminate(state: _State, *, hermitian: bool) -> _State:
    """One step: choose a pivot block, swap it to the front, and subtract it from what remains."""
    k, a, pivots, info = state
    other, two_rows = _choose_pivot(a, k)
    last = k + two_rows
    a = _swap(a, last, other, k)
    zero = (_size(a[k, k]) == 0) & ~two_rows
    info = jnp.where((info == 0) & zero & (_largest_below(a, k)[1] == 0), k + 1, info)
    a = lax.cond(
        two_rows,
        partial(_subtract_two, hermitian=hermitian),
        partial(_subtract_one, hermitian=hermitian),
        a,
        k,
    )
    pivot = jnp.where(two_rows, -(other + 1), other + 1).astype(jnp.int32)
    places = jnp.arange(a.shape[0])
    pivots = jnp.where((places == k) | (places == last), pivot, pivots)
    return _State(k=last + 1, a=a, pivots=pivots, info=info)


def _choose_pivot(a: Array, k: Array) -> tuple[Array, Array]:
    """Returns the row to swap with the last of the pivot block, and whether the block has two rows."""
    size = _size(a[k, k])
    row, column_peak = _largest_below(a, k)
    # The largest of row `row` beside its diagonal, among what remains.
    places = jnp.arange(a.shape[0])
    row_peak = jnp.where((places >= k) & (places != row), _size(a[row]), 0).max()
    keep = (size >= _ALPHA * column_peak) | (size >= _ALPHA * column_peak * (column_peak / row_peak))
    take_row = _size(a[row, row]) >= _ALPHA * row_peak
    return jnp.where(keep, jnp.where(keep, k, row), row), ~keep & ~take_row


def _size(x: Array) -> Array:
    """What LAPACK compares complex numbers by: `cabs1`."""
    return jnp.abs(x.real) + jnp.abs(x.imag) if jnp.iscomplexobj(x) else jnp.abs(x)


def _largest_below(a: Array, k: Array) -> tuple[Array, Array]:
    """The row of the largest element of column k below its diagonal, and its size; k and 0 where there is none."""
    below = jnp.where(jnp.arange(a.shape[0]) > k, _size(a[:, k]), -1)
    row = jnp.argmax(below).astype(jnp.int32)
    return jnp.where(below[row] < 0, k, row), jnp.maximum(below[row], 0)


def _swap(a: Array, first: Array, second: Array, k: Array) -> Array:
    """Swaps two rows and two columns of what remains; the columns that are done stay as they are, as in LAPACK."""
    places = jnp.arange(a.shape[0])
    order = jnp.where(places == first, second, jnp.where(places == second, first, places))
    rest = places >= k
    return jnp.where(rest[:, None] & rest[None, :], a[order][:, order], a)


def _subtract_one(a: Array, k: Array, *, hermitian: bool) -> Array:
    below = jnp.arange(a.shape[0]) > k
    pivot = a[k, k]
    column = jnp.where(below, a[:, k], 0)
    factor = jnp.where(pivot == 0, 0, column / jnp.where(pivot == 0, 1, pivot))
    a = a - jnp.outer(factor, jnp.conj(column) if hermitian else column)
    return a.at[:, k].set(jnp.where(below & (pivot != 0), factor, a[:, k]))


def _subtract_two(a: Array, k: Array, *, hermitian: bool) -> Array:
    below = jnp.arange(a.shape[0]) > k + 1
    block = lax.dynamic_slice(a, (k, k), (2, 2))
    columns = jnp.where(below[:, None], lax.dynamic_slice_in_dim(a, k, 2, axis=1), 0)
    determinant = block[0, 0] * block[1, 1] - block[0, 1] * block[1, 0]
    inverse = jnp.array([[block[1, 1], -block[0, 1]], [-block[1, 0], block[0, 0]]]) / determinant
    factors = precise_matmul(columns, inverse)
    row = jnp.conj(columns.T) if hermitian else columns.T
    a = a - precise_matmul(factors, row)
    old = lax.dynamic_slice_in_dim(a, k, 2, axis=1)
    return lax.dynamic_update_slice_in_dim(a, jnp.where(below[:, None], factors, old), k, axis=1)


def _solve(factors: Array, pivots: Array, b: Array, *, hermitian: bool) -> Array:
    lower, block_diagonal, order = _unpack(factors, pivots, hermitian=hermitian)
    triangular = partial(lax.linalg.triangular_solve, lower, left_side=True, lower=True, unit_diagonal=True)
    y = triangular(b[order])
    y = jnp.linalg.solve(block_diagonal, y)
    y = triangular(y, transpose_a=True, conjugate_a=hermitian)
    return y[jnp.argsort(order)]


def _unpack(factors: Array, pivots: Array, *, hermitian: bool) -> tuple[Array, Array, Array]:
    """Returns L, D and an order with `a[order][:, order] = L @ D @ L.T`."""
    places = jnp.arange(factors.shape[0])
    starts = _starts_of_two(pivots)
    seconds = jnp.roll(starts, 1)
    others = jnp.where(starts, places, jnp.abs(pivots) - 1)

    def swap(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        # LAPACK does not swap the columns that were done before; a true L needs it.
        lower, order = carry
        swapped = jnp.where(places == i, others[i], jnp.where(places == others[i], i, places))
        done = places < jnp.where(seconds[i], i - 1, i)
        return jnp.where(done, lower[swapped], lower), order[swapped]

    # The element under the diagonal of a block of two is D's.
    of_block = starts[None, :] & (places[:, None] == places[None, :] + 1)
    inside = jnp.where(of_block, factors, 0)
    block_diagonal = jnp.diag(jnp.diag(factors)) + inside + (jnp.conj(inside.T) if hermitian else inside.T)
    lower, order = lax.fori_loop(0, len(places), swap, (jnp.where(of_block, 0, jnp.tril(factors, -1)), places))
    return lower, block_diagonal, order


def _starts_of_two(pivots: Array) -> Array:
    """Which rows begin a block of two: of a run of negative pivots, every other."""

    def step(before: Array, pivot: Array) -> tuple[Array, Array]:
        starts = (pivot < 0) & ~before
        return starts, starts

    return lax.scan(step, jnp.array(False), pivots)[1]
