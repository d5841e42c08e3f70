"""Polynomials, ratios of them, and Chebyshev series of fixed coefficients: what special functions are made of."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

Array = jax.Array


def polynomial(coefficients: Sequence[float], x: Array) -> Array:
    """Evaluates a polynomial by Horner's scheme; the coefficient of the highest power comes first."""
    result = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


def ratio(numerator: Sequence[float], denominator: Sequence[float], x: Array) -> Array:
    """Evaluates the ratio of two polynomials."""
    return polynomial(numerator, x) / polynomial(denominator, x)


def chebyshev(coefficients: Sequence[float], x: Array) -> Array:
    """Evaluates a Chebyshev series in x / 2 by Clenshaw's recurrence.

    The coefficient of the highest degree comes first, and that of degree 0, the last, counts half.
    """
    current = previous = before = jnp.zeros_like(x)
    for coefficient in coefficients:
        before, previous = previous, current
        current = x * previous - before + coefficient
    return (current - before) / 2
