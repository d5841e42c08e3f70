"""Orthogonal polynomials, by their three-term recurrences.

Source: Abramowitz and Stegun, table 22.7 (recurrences) and 22.3.15-16 (Chebyshev polynomials of an angle).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tpuc.lowerings.dtypes import common
from tpuc.lowerings.registry import lowering

Array = jax.Array
#: (k, x, p_k, p_(k-1)) -> p_(k+1)
_Step = Callable[[Array, Array, Array, Array], Array]

#: For each kind of Chebyshev polynomial, the one of degree 1, and all of them of the angle whose cosine is x.
_CHEBYSHEV: dict[str, tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]] = {
    "t": (lambda x: x, lambda n, angle: jnp.cos(n * angle)),
    "u": (lambda x: 2 * x, lambda n, angle: jnp.sin((n + 1) * angle) / jnp.sin(angle)),
    "v": (lambda x: 2 * x - 1, lambda n, angle: jnp.cos((n + 0.5) * angle) / jnp.cos(angle / 2)),
    "w": (lambda x: 2 * x + 1, lambda n, angle: jnp.sin((n + 0.5) * angle) / jnp.sin(angle / 2)),
}
#: The one of degree 1, and the recurrence.
_POLYNOMIALS: dict[str, tuple[Callable[[Array], Array], _Step]] = {
    "hermite_polynomial_h": (lambda x: 2 * x, lambda k, x, p, q: 2 * (x * p - k * q)),
    "hermite_polynomial_he": (lambda x: x, lambda k, x, p, q: x * p - k * q),
    "laguerre_polynomial_l": (lambda x: 1 - x, lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1)),
    "legendre_polynomial_p": (lambda x: x, lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1)),
}
#: PyTorch gives NaN for Hermite polynomials of higher degrees, in f32 and f64.
_HERMITE_LIMITS = {4: 128, 8: 512}
#: Inside [-1, 1] a Chebyshev polynomial of higher degree is computed from the angle.
_BY_RECURRENCE = 8


def _overloads(name: str) -> tuple[str, ...]:
    return tuple(f"aten.special_{name}.{overload}" for overload in ("default", "x_scalar", "n_scalar"))


def _register_chebyshev(kind: str) -> None:
    @lowering(*_overloads(f"chebyshev_polynomial_{kind}"), why="JAX has no such function")
    def chebyshev(x: Any, n: Any) -> Array:
        return _chebyshev(kind, *_operands(x, n))

    @lowering(*_overloads(f"shifted_chebyshev_polynomial_{kind}"), why="JAX has no such function")
    def shifted_chebyshev(x: Any, n: Any) -> Array:
        x, n = _operands(x, n)
        return _chebyshev(kind, 2 * x - 1, n)


def _register(name: str) -> None:
    first, step = _POLYNOMIALS[name]

    @lowering(*_overloads(name), why="JAX has no such function")
    def polynomial(x: Any, n: Any) -> Array:
        x, n = _operands(x, n)
        if "hermite" not in name:
            return _recurrence(x, n, first(x), step)
        limit = _HERMITE_LIMITS[x.dtype.itemsize]
        return jnp.where(n > limit, jnp.nan, _recurrence(x, jnp.minimum(n, limit), first(x), step))


def _operands(x: Any, n: Any) -> tuple[Array, Array]:
    """The argument and the degree in one shape and float dtype, the degree integral."""
    x, n = jnp.broadcast_arrays(*common(x, n, promotion="int_to_float"))
    return x, jnp.trunc(n)


def _chebyshev(kind: str, x: Array, n: Array) -> Array:
    first, of_angle = _CHEBYSHEV[kind]
    by_angle = (jnp.abs(x) < 1) & (n > _BY_RECURRENCE)
    by_recurrence = _recurrence(x, jnp.where(by_angle, 0, n), first(x), lambda k, x, p, q: 2 * x * p - q)
    return jnp.where(by_angle, of_angle(n, jnp.arccos(x)), by_recurrence)


def _recurrence(x: Array, n: Array, first: Array, step: _Step) -> Array:
    """The polynomial of degree n, elementwise; 0 for negative degrees.

    There are as many steps as the highest degree asks for. NaN ends an element's, as it does PyTorch's.
    """

    def goes_on(k: Array, p: Array) -> Array:
        return (k < n) & ~jnp.isnan(p)

    def advance(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, p, q = state
        active = goes_on(k, p)
        return k + 1, jnp.where(active, step(k, x, p, q), p), jnp.where(active, p, q)

    start = (jnp.ones((), x.dtype), first, jnp.ones_like(x))
    _, p, _ = lax.while_loop(lambda state: jnp.any(goes_on(state[0], state[1])), advance, start)
    return jnp.where(n < 0, 0, jnp.where(n == 0, 1, p))


for _kind in _CHEBYSHEV:
    _register_chebyshev(_kind)
for _name in _POLYNOMIALS:
    _register(_name)
