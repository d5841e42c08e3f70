"""Bessel functions of orders 0 and 1, modified and spherical ones, and the Airy function.

The approximations are those of the Cephes Mathematical Library (`bessel_tables`).
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special as jsp

from tpuc.lowerings import bessel_tables as tables
from tpuc.lowerings.registry import lowering
from tpuc.lowerings.series import chebyshev, polynomial, ratio

Array = jax.Array
_Table = tuple[float, ...]
_CEPHES = "JAX has no such function; after Cephes"


@lowering("aten.special_bessel_j0.default", why=_CEPHES, promotion="int_to_float")
def bessel_j0(x: Array) -> Array:
    """The Bessel function of the first kind, of order 0."""
    x = jnp.abs(x)
    z = x * x
    small = (z - tables.J0_ZEROS[0]) * (z - tables.J0_ZEROS[1]) * ratio(tables.J0_P, tables.J0_Q, z)
    cosine, sine, phase = _oscillation0(x)
    return jnp.where(x <= 5, small, cosine * jnp.cos(phase) - sine * jnp.sin(phase))


@lowering("aten.special_bessel_j1.default", why=_CEPHES, promotion="int_to_float")
def bessel_j1(x: Array) -> Array:
    """The Bessel function of the first kind, of order 1."""
    z = x * x
    small = x * (z - tables.J1_ZEROS[0]) * (z - tables.J1_ZEROS[1]) * ratio(tables.J1_P, tables.J1_Q, z)
    cosine, sine, phase = _oscillation1(jnp.abs(x))
    large = cosine * jnp.cos(phase) - sine * jnp.sin(phase)
    return jnp.where(jnp.abs(x) <= 5, small, jnp.where(x < 0, -large, large))


@lowering("aten.special_bessel_y0.default", why=_CEPHES, promotion="int_to_float")
def bessel_y0(x: Array) -> Array:
    """The Bessel function of the second kind, of order 0; NaN below zero."""
    small = ratio(tables.Y0_P, tables.Y0_Q, x * x) + 2 / math.pi * jnp.log(x) * bessel_j0(x)
    cosine, sine, phase = _oscillation0(x)
    return jnp.where(x <= 5, small, cosine * jnp.sin(phase) + sine * jnp.cos(phase))


@lowering("aten.special_bessel_y1.default", why=_CEPHES, promotion="int_to_float")
def bessel_y1(x: Array) -> Array:
    """The Bessel function of the second kind, of order 1; NaN below zero."""
    small = x * ratio(tables.Y1_P, tables.Y1_Q, x * x) + 2 / math.pi * (bessel_j1(x) * jnp.log(x) - 1 / x)
    cosine, sine, phase = _oscillation1(x)
    large = cosine * jnp.sin(phase) + sine * jnp.cos(phase)
    return jnp.where(x == 0, -jnp.inf, jnp.where(x <= 5, small, large))


def _oscillation0(x: Array) -> tuple[Array, Array, Array]:
    cosine, sine = _amplitudes(x, (tables.COSINE0_P, tables.COSINE0_Q), (tables.SINE0_P, tables.SINE0_Q))
    return cosine, sine, x - math.pi / 4


def _oscillation1(x: Array) -> tuple[Array, Array, Array]:
    cosine, sine = _amplitudes(x, (tables.COSINE1_P, tables.COSINE1_Q), (tables.SINE1_P, tables.SINE1_Q))
    return cosine, sine, x - 3 * math.pi / 4


def _amplitudes(x: Array, cosine: tuple[_Table, _Table], sine: tuple[_Table, _Table]) -> tuple[Array, Array]:
    """Hankel's asymptotic expansion above 5: the factors of the cosine and the sine of the phase."""
    w = 5 / x
    scale = math.sqrt(2 / math.pi) / jnp.sqrt(x)
    return ratio(*cosine, w * w) * scale, w * ratio(*sine, w * w) * scale


@lowering("aten.i0.default", "aten.special_modified_bessel_i0.default", why="JAX's, scaled", promotion="int_to_float")
def bessel_i0(x: Array) -> Array:
    """The modified Bessel function of the first kind, of order 0."""
    return jsp.i0(x)


@lowering(
    "aten.special_i1.default", "aten.special_modified_bessel_i1.default", why="JAX's, scaled", promotion="int_to_float"
)
def bessel_i1(x: Array) -> Array:
    """The modified Bessel function of the first kind, of order 1."""
    return jsp.i1(x)


lowering("aten.special_i0e.default", why="JAX has the same function", promotion="int_to_float")(lax.bessel_i0e)
lowering("aten.special_i1e.default", why="JAX has the same function", promotion="int_to_float")(lax.bessel_i1e)


@lowering("aten.special_modified_bessel_k0.default", why=_CEPHES, promotion="int_to_float")
def bessel_k0(x: Array) -> Array:
    """The modified Bessel function of the second kind, of order 0; NaN below zero."""
    return jnp.where(x <= 2, _k0_small(x), jnp.exp(-x) * _k_large(x, tables.K0_LARGE))


@lowering("aten.special_scaled_modified_bessel_k0.default", why=_CEPHES, promotion="int_to_float")
def scaled_bessel_k0(x: Array) -> Array:
    """`exp(x) * K0(x)`."""
    return jnp.where(x <= 2, jnp.exp(x) * _k0_small(x), _k_large(x, tables.K0_LARGE))


@lowering("aten.special_modified_bessel_k1.default", why=_CEPHES, promotion="int_to_float")
def bessel_k1(x: Array) -> Array:
    """The modified Bessel function of the second kind, of order 1; NaN below zero."""
    return jnp.where(x <= 2, _k1_small(x), jnp.exp(-x) * _k_large(x, tables.K1_LARGE))


@lowering("aten.special_scaled_modified_bessel_k1.default", why=_CEPHES, promotion="int_to_float")
def scaled_bessel_k1(x: Array) -> Array:
    """`exp(x) * K1(x)`."""
    return jnp.where(x <= 2, jnp.exp(x) * _k1_small(x), _k_large(x, tables.K1_LARGE))


def _k0_small(x: Array) -> Array:
    return chebyshev(tables.K0_SMALL, x * x - 2) - jnp.log(x / 2) * bessel_i0(x)


def _k1_small(x: Array) -> Array:
    value = chebyshev(tables.K1_SMALL, x * x - 2) / x + jnp.log(x / 2) * bessel_i1(x)
    return jnp.where(x == 0, jnp.inf, value)


def _k_large(x: Array, series: _Table) -> Array:
    return chebyshev(series, 8 / x - 2) / jnp.sqrt(x)


@lowering("aten.special_spherical_bessel_j0.default", why="a series near zero", promotion="int_to_float")
def spherical_bessel_j0(x: Array) -> Array:
    """The spherical Bessel function of order 0: `sin(x) / x`."""
    series = [(-1) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1)]
    far = jnp.where(jnp.isinf(x), 0, jnp.sin(x) / x)
    return jnp.where(jnp.abs(x) < 0.5, polynomial(series, x * x), far)


@lowering("aten.special_airy_ai.default", why=_CEPHES, promotion="int_to_float")
def airy_ai(x: Array) -> Array:
    """The Airy function Ai; NaN at the infinities, as PyTorch has it.

    Between the intervals of the tables it is Maclaurin's series (Abramowitz and Stegun, 10.4.2).
    """
    magnitude = jnp.abs(x)
    zeta = 2 / 3 * magnitude * jnp.sqrt(magnitude)
    scale = 1 / (math.sqrt(math.pi) * jnp.sqrt(jnp.sqrt(magnitude)))
    right = scale / 2 * jnp.exp(-zeta) * ratio(tables.AI_P, tables.AI_Q, 1 / zeta)
    w = 1 / (zeta * zeta)
    sine, cosine = (
        1 + w * ratio(tables.AI_SINE_P, tables.AI_SINE_Q, w),
        ratio(tables.AI_COSINE_P, tables.AI_COSINE_Q, w) / zeta,
    )
    phase = zeta + math.pi / 4
    left = scale * (sine * jnp.sin(phase) - cosine * jnp.cos(phase))
    z = x * x * x
    middle = _AI_0 * polynomial(_AIRY_F, z) - _AI_SLOPE * x * polynomial(_AIRY_G, z)
    value = jnp.where(magnitude < 2.09, middle, jnp.where(x > 0, right, left))
    return jnp.where(jnp.isinf(x), jnp.nan, value)


#: Ai(0) and -Ai'(0).
_AI_0, _AI_SLOPE = 0.3550280538878172, 0.2588194037928068


def _airy_series(first: int) -> list[float]:
    """1, 1 / (a (a+1)), 1 / (a (a+1) (a+3) (a+4)), ..., highest first; 15 terms are enough for f64 below 2.09."""
    terms = [1.0]
    for k in range(14):
        a = first + 3 * k
        terms.append(terms[-1] / (a * (a + 1)))
    return terms[::-1]


_AIRY_F, _AIRY_G = _airy_series(2), _airy_series(3)
