"""Integers and bits: bitwise operators, shifts, common divisors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tpuc.lowerings.dtypes import common
from tpuc.lowerings.reduction import axes_of
from tpuc.lowerings.registry import lowering

Array = jax.Array

_SAME = "JAX has the same function"

_BITWISE: dict[str, Callable[[Any, Any], Array]] = {
    "and": jnp.bitwise_and,
    "or": jnp.bitwise_or,
    "xor": jnp.bitwise_xor,
}

lowering("aten.bitwise_not.default", why=_SAME)(jnp.bitwise_not)
for _name, _function in _BITWISE.items():
    _overloads = (
        *(f"aten.bitwise_{_name}.{overload}" for overload in ("Tensor", "Scalar", "Scalar_Tensor")),
        *(f"aten.__{_name}__.{overload}" for overload in ("Tensor", "Scalar")),
    )
    lowering(*_overloads, why=_SAME, promotion="default")(_function)


@lowering(
    "aten.bitwise_left_shift.Tensor",
    "aten.bitwise_left_shift.Tensor_Scalar",
    "aten.bitwise_left_shift.Scalar_Tensor",
    "aten.__lshift__.Tensor",
    "aten.__lshift__.Scalar",
    why="broadcasting shifts end torch-mlir's process",
)
def left_shift(x: Any, y: Any) -> Array:
    """`x << y`; 0 where y is negative or not less than the width."""
    x, y = jnp.broadcast_arrays(*common(x, y))
    return lax.shift_left(x, y)


@lowering(
    "aten.bitwise_right_shift.Tensor",
    "aten.bitwise_right_shift.Tensor_Scalar",
    "aten.bitwise_right_shift.Scalar_Tensor",
    "aten.__rshift__.Tensor",
    "aten.__rshift__.Scalar",
    why="broadcasting shifts end torch-mlir's process",
)
def right_shift(x: Any, y: Any) -> Array:
    """`x >> y`; only the sign is left where y is negative or not less than the width."""
    x, y = jnp.broadcast_arrays(*common(x, y))
    if jnp.issubdtype(x.dtype, jnp.unsignedinteger):
        return lax.shift_right_logical(x, y)
    return lax.shift_right_arithmetic(x, y)


@lowering("aten.gcd.default", why="JAX's never ends on the least integer")
def gcd(x: Array, y: Array) -> Array:
    """The greatest common divisor, by Euclid's algorithm; 0 of two zeros.

    The steps are PyTorch's, so that the least integer, which has no absolute value, comes out with the same sign.
    """

    def step(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        x, y = pair
        done = x == 0
        return jnp.where(done, 0, lax.rem(y, jnp.where(done, 1, x))), jnp.where(done, y, x)

    x, y = jnp.broadcast_arrays(*common(x, y))
    _, divisor = lax.while_loop(lambda pair: jnp.any(pair[0] != 0), step, (jnp.abs(x), jnp.abs(y)))
    return divisor


@lowering("aten.lcm.default", why="through the divisor above")
def lcm(x: Array, y: Array) -> Array:
    """The least common multiple, not negative; 0 where either is. Narrow integers wrap once, at the end."""
    x, y = jnp.broadcast_arrays(*common(x, y))
    divisor = gcd(x, y)
    wide = jnp.promote_types(x.dtype, jnp.int32)
    return jnp.abs(lax.div(x, jnp.where(divisor == 0, 1, divisor)).astype(wide) * y.astype(wide))


@lowering("aten.hash_tensor.default", why="bits, wherever they come from")
def hash_tensor(x: Array, dim: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0) -> Array:
    """The exclusive or of the elements' bits, floats as f64 and integers as i64."""
    wide = x.astype(jnp.float64 if jnp.issubdtype(x.dtype, jnp.floating) else jnp.int64)
    axes = axes_of(x, dim)
    result = lax.reduce(lax.bitcast_convert_type(wide, jnp.uint64), np.uint64(0), lax.bitwise_xor, axes)
    return jnp.expand_dims(result, axes) if keepdim else result
