"""The error function and its relatives, and products with logarithms.

The gamma function stands in `gamma`, Bessel functions in `bessel`, orthogonal polynomials in `polynomials`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special as jsp

from tpuc.lowerings.dtypes import common
from tpuc.lowerings.registry import lowering
from tpuc.lowerings.series import chebyshev

Array = jax.Array

_SAME = "JAX has the same function"

#: Integers become floats.
_UNARY: dict[str, Callable[[Array], Array]] = {
    "erf": lax.erf,
    "erfc": lax.erfc,
    "erfinv": lax.erf_inv,
    "special_entr": jsp.entr,
    "special_ndtri": jsp.ndtri,
}

for _name, _function in _UNARY.items():
    lowering(f"aten.{_name}.default", why=_SAME, promotion="int_to_float")(_function)


# fmt: off
#: Of `(1 + 2x) exp(x^2) erfc(x)` for x >= 0, in `t = (x - 3.75) / (x + 3.75)`, the highest degree first.
#: Source: M. M. Shepherd and J. G. Laframboise, Chebyshev approximation of (1 + 2x) exp(x^2) erfc(x) in 0 <= x < inf,
#: Mathematics of Computation 36 (1981); computed again with 40 digits.
_ERFCX = (
    5.06812017264964e-17, 7.418241185780998e-17, -1.2507946529018257e-15, -1.864562184163611e-15,
    3.3478120396422425e-14, 3.252548250849688e-14, -9.654696738199426e-13, 1.9455868636065047e-13,
    2.8687950109985656e-11, -6.318088340848984e-11, -7.754400208831038e-10, 4.521959811217968e-09,
    1.0764999465670278e-08, -2.1886401049234484e-07, 7.740383066198481e-07, 4.139027986073009e-06,
    -6.916973302501207e-05, 0.0004907758365258086, -0.002413163540417608, 0.009074997670705265, -0.026658668435305753,
    0.05920993999819189, -0.08424913336651792, -0.004590054580646478, 2.3551578691348034,
)
# fmt: on


@lowering("aten.special_erfcx.default", why="JAX's is 0 where erfc leaves the normal numbers", promotion="int_to_float")
def erfcx(x: Array) -> Array:
    """`exp(x^2) * erfc(x)`."""
    magnitude = jnp.abs(x)
    t = 1 - 2 * 3.75 / (magnitude + 3.75)
    right = chebyshev(_ERFCX, 2 * t) / (1 + 2 * magnitude)
    return jnp.where(x < 0, 2 * jnp.exp(x * x) - right, right)


@lowering("aten.special_log_ndtr.default", why="one form for each tail", promotion="int_to_float")
def log_ndtr(x: Array) -> Array:
    """The logarithm of the standard normal distribution function.

    Left of -1 it is `log(erfcx(-x / sqrt(2)) / 2) - x^2 / 2`, which does not underflow; elsewhere
    `log1p(-erfc(x / sqrt(2)) / 2)`, which keeps what is left of 1.
    """
    t = x * math.sqrt(0.5)
    left = jnp.log(erfcx(-jnp.minimum(t, 0)) / 2) - t * t
    return jnp.where(x < -1, left, jnp.log1p(-lax.erfc(t) / 2))


@lowering(
    "aten.xlogy.Tensor",
    "aten.xlogy.Scalar_Self",
    "aten.xlogy.Scalar_Other",
    why="0 where x is 0, NaN where y is NaN",
)
def xlogy(x: Any, y: Any) -> Array:
    """`x * log(y)`."""
    x, y = common(x, y, promotion="int_to_float")
    return jnp.where((x == 0) & ~jnp.isnan(y), 0, x * jnp.log(y))


@lowering(
    "aten.special_xlog1py.default",
    "aten.special_xlog1py.self_scalar",
    "aten.special_xlog1py.other_scalar",
    why="0 where x is 0, NaN where y is NaN",
)
def xlog1py(x: Any, y: Any) -> Array:
    """`x * log(1 + y)`."""
    x, y = common(x, y, promotion="int_to_float")
    return jnp.where((x == 0) & ~jnp.isnan(y), 0, x * jnp.log1p(y))
