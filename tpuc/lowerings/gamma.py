"""The gamma function and what belongs to it: its logarithm's derivatives, zeta, incomplete gamma functions.

JAX's are accurate to 1e-6 in f32 and 1e-14 in f64; they are amended where PyTorch's values differ at the edges of the
domain, and where f32 loses digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tpuc.lowerings.dtypes import common
from tpuc.lowerings.registry import lowering
from tpuc.lowerings.series import polynomial

Array = jax.Array

lowering("aten.lgamma.default", why="JAX has the same function", promotion="int_to_float")(lax.lgamma)


@lowering("aten.digamma.default", why="PyTorch says infinity at zero, with the opposite sign", promotion="int_to_float")
def digamma(x: Array) -> Array:
    """The derivative of lgamma."""
    return jnp.where(x == 0, -jnp.copysign(jnp.asarray(jnp.inf, x.dtype), x), lax.digamma(x))


@lowering("aten.polygamma.default", why="negative arguments too", promotion="int_to_float")
def polygamma(n: int, x: Array) -> Array:
    """The nth derivative of digamma."""
    if n == 0:
        return digamma(x)
    if n == 1:
        return _trigamma(x)
    sign = 1 if n % 2 else -1
    return sign * math.factorial(n) * zeta(jnp.asarray(n + 1, x.dtype), x)


def _trigamma(x: Array) -> Array:
    """The derivative of digamma; below 1/2 by reflection.

    Source: Abramowitz and Stegun, 6.4.7 (reflection) and 6.4.10 (the series, which is the zeta function's).
    """
    # Of the square's two signs of the sine nothing is seen, and a small argument keeps its digits.
    mirrored = jnp.pi / jnp.sin(jnp.pi * (x - jnp.round(x)))
    two = jnp.asarray(2, x.dtype)
    result = jnp.where(x < 0.5, mirrored * mirrored - lax.zeta(two, 1 - x), lax.zeta(two, x))
    return jnp.where(x == jnp.inf, 0, result)


@lowering(
    "aten.special_zeta.default",
    "aten.special_zeta.self_scalar",
    "aten.special_zeta.other_scalar",
    why="negative q too",
)
def zeta(s: Any, q: Any) -> Array:
    """Hurwitz' zeta function, the sum of `(q + k) ** -s` over k = 0, 1, ...

    Left of zero, where s must be integral, the negative terms are mirrored: with f = q - floor(q), they are those of
    1 - f without those of 1 - q, and change their sign where s is odd.
    """
    s, q = jnp.broadcast_arrays(*common(s, q, promotion="int_to_float"))
    sign = jnp.where(jnp.fmod(s, 2) == 0, 1, -1).astype(s.dtype)
    f = q - jnp.floor(q)
    left = (_positive_zeta(s, f) + sign * _positive_zeta(s, 1 - f)) - sign * _positive_zeta(s, 1 - q)
    result = jnp.where(q > 0, _positive_zeta(s, q), left)
    is_pole = (s == 1) | ((q <= 0) & (q == jnp.floor(q)))
    is_undefined = (s < 1) | ((q <= 0) & (q != jnp.floor(q)) & (s != jnp.floor(s)))
    return jnp.where(is_undefined, jnp.nan, jnp.where(is_pole, jnp.inf, result))


def _positive_zeta(s: Array, q: Array) -> Array:
    """The zeta function of q > 0. Of a large s only the first term is left, where XLA multiplies zero by infinity."""
    limit = 512 if s.dtype == jnp.float64 else 128
    return jnp.where(s > limit, q**-s, lax.zeta(jnp.minimum(s, limit), q))


@lowering("aten.mvlgamma.default", why="a sum over the dimension, which is small", promotion="int_to_float")
def mvlgamma(x: Array, p: int) -> Array:
    """The logarithm of the multivariate gamma function of dimension p."""
    constant = p * (p - 1) / 4 * math.log(math.pi)
    return sum((lax.lgamma(x - i / 2) for i in range(p)), start=jnp.zeros_like(x)) + constant


@lowering("aten.igamma.default", why="PyTorch's values at the edges of the domain", promotion="default")
def igamma(a: Array, x: Array) -> Array:
    """The regularized lower incomplete gamma function."""
    return _incomplete_gamma(lax.igamma, a, x, at_zero=0.0, at_infinity=1.0)


@lowering("aten.igammac.default", why="PyTorch's values at the edges of the domain", promotion="default")
def igammac(a: Array, x: Array) -> Array:
    """The regularized upper incomplete gamma function."""
    return _incomplete_gamma(lax.igammac, a, x, at_zero=1.0, at_infinity=0.0)


def _incomplete_gamma(
    function: Callable[[Array, Array], Array], a: Array, x: Array, *, at_zero: float, at_infinity: float
) -> Array:
    """Adds the values where a or x is 0 or infinite: a small x against a gives `at_zero`, a large one `at_infinity`."""
    a, x = jnp.broadcast_arrays(a, x)
    result = function(a, x)
    if x.dtype == jnp.float32:
        # Its factor exp(a log(x) - x - lgamma(a)) cancels where a is large.
        result = jnp.where((a > 20) & (jnp.abs(x - a) < 0.3 * a), _temme(a, x, upper=at_zero == 1.0), result)
    small = (x == 0) | jnp.isinf(a)
    large = ((a == 0) & (x > 0)) | jnp.isinf(x)
    result = jnp.where(large, at_infinity, jnp.where(small, at_zero, result))
    return jnp.where((a < 0) | (x < 0) | ((a == 0) & (x == 0)) | (small & large), jnp.nan, result)


#: For each power of 1/a, the coefficients of the powers of eta, the lowest first.
#: Source: N. M. Temme, The asymptotic expansion of the incomplete gamma functions, SIAM J. Math. Anal. 10 (1979).
_TEMME = (
    (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600, 1 / 25515, -2.1854485106799924e-06),
    (-1 / 540, -1 / 288, 1 / 378, -77 / 77760, 2.0576131687242798e-04, -4.018775720164609e-07),
    (25 / 6048, -139 / 51840, 7.716049382716049e-04, 2.0093878600823047e-06),
    (6.494341563786008e-04, 2.2947209362139917e-04),
)


def _temme(a: Array, x: Array, *, upper: bool) -> Array:
    """The incomplete gamma functions of a large a, by Temme's uniform expansion (DLMF 8.12.3), to the digits of f32.

    `eta^2 / 2 = m - log(1 + m)` with `m = x / a - 1`, which is summed as a series, since the difference cancels.
    """
    m = (x - a) / a
    square = polynomial([2 * (-1) ** n / n for n in range(16, 1, -1)], m)
    eta = m * jnp.sqrt(square)
    series = jnp.zeros_like(x)
    for row in reversed(_TEMME):
        series = series / a + polynomial(row[::-1], eta)
    remainder = jnp.exp(-a * eta * eta / 2) / jnp.sqrt(2 * jnp.pi * a) * series
    sign = 1 if upper else -1
    return lax.erfc(sign * eta * jnp.sqrt(a / 2)) / 2 + sign * remainder
