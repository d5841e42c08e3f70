"""The parts of floating-point numbers: sign, exponent, neighbours."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tpuc.lowerings.dtypes import result_dtype
from tpuc.lowerings.registry import lowering

Array = jax.Array


@lowering("aten.signbit.default", why="zero and NaN have a sign too")
def signbit(x: Array) -> Array:
    """Whether the sign bit is set."""
    if jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.signbit(x)
    return x < 0 if jnp.issubdtype(x.dtype, jnp.signedinteger) else jnp.zeros(x.shape, jnp.bool_)


@lowering("aten.copysign.Tensor", "aten.copysign.Scalar", why="JAX has the same function", promotion="int_to_float")
def copysign(x: Array, y: Any) -> Array:
    """The magnitude of `x` with the sign of `y`."""
    return jnp.copysign(x, y)


@lowering("aten.nextafter.default", why="in the dtype itself, where others compute in f32")
def nextafter(x: Array, y: Array) -> Array:
    """The next number from `x` towards `y`."""
    dtype = result_dtype([x, y])
    return lax.nextafter(*jnp.broadcast_arrays(x.astype(dtype), y.astype(dtype)))


@lowering("aten.frexp.Tensor", why="JAX has the same function", promotion="default")
def frexp(x: Array) -> tuple[Array, Array]:
    """The fraction, of magnitude in [0.5, 1), and the exponent of two."""
    return jnp.frexp(x)
