"""Elementwise operators: arithmetic, rounding, comparison, logic, selection.

The tables pair an ATen name with JAX's function where the two agree; a function follows where they do not.
Integers and bits stand in `integer`, the parts of floats in `floating_point`, complex numbers in `complex_numbers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tpuc.lowerings.dtypes import common, computation_dtype, is_array, result_dtype
from tpuc.lowerings.registry import lowering

Array = jax.Array

_SAME = "JAX has the same function"

#: Results in the input's dtype.
_UNARY: dict[str, Callable[[Array], Array]] = {
    "abs": jnp.abs,
    "neg": jnp.negative,
    "square": jnp.square,
}
#: Integers become floats.
_UNARY_FLOAT: dict[str, Callable[[Array], Array]] = {
    "acos": jnp.arccos,
    "acosh": jnp.arccosh,
    "asin": jnp.arcsin,
    "asinh": jnp.arcsinh,
    "atan": jnp.arctan,
    "atanh": jnp.arctanh,
    "cos": jnp.cos,
    "cosh": jnp.cosh,
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "log": jnp.log,
    "log10": jnp.log10,
    "log1p": jnp.log1p,
    "log2": jnp.log2,
    "reciprocal": jnp.reciprocal,
    "rsqrt": lax.rsqrt,
    "sigmoid": jax.nn.sigmoid,
    "sin": jnp.sin,
    "sqrt": jnp.sqrt,
    "tan": jnp.tan,
    "tanh": jnp.tanh,
}
#: To an integral value, in the input's dtype; integers are that already.
_ROUNDING: dict[str, Callable[[Array], Array]] = {
    "ceil": jnp.ceil,
    "floor": jnp.floor,
    "round": jnp.round,
    "trunc": jnp.trunc,
}
#: Two tensors, or a tensor and a number.
_BINARY: dict[str, tuple[tuple[str, ...], Callable[[Any, Any], Array]]] = {
    "fmax": (("default",), jnp.fmax),
    "fmin": (("default",), jnp.fmin),
    "maximum": (("default",), jnp.maximum),
    "minimum": (("default",), jnp.minimum),
    "mul": (("Tensor", "Scalar"), jnp.multiply),
}
_BINARY_FLOAT: dict[str, tuple[tuple[str, ...], Callable[[Any, Any], Array]]] = {
    "atan2": (("default",), jnp.arctan2),
    "div": (("Tensor", "Scalar"), jnp.true_divide),
    "hypot": (("default",), jnp.hypot),
}
_COMPARISON: dict[str, Callable[[Any, Any], Array]] = {
    "eq": jnp.equal,
    "ge": jnp.greater_equal,
    "gt": jnp.greater,
    "le": jnp.less_equal,
    "lt": jnp.less,
    "ne": jnp.not_equal,
}
_LOGICAL: dict[str, Callable[..., Array]] = {
    "logical_and": jnp.logical_and,
    "logical_not": jnp.logical_not,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
}
_CLASSES: dict[str, Callable[[Array], Array]] = {
    "isinf": jnp.isinf,
    "isnan": jnp.isnan,
    "isneginf": jnp.isneginf,
    "isposinf": jnp.isposinf,
}

for _name, _function in _UNARY.items():
    lowering(f"aten.{_name}.default", why=_SAME, promotion="default")(_function)
for _name, _function in _UNARY_FLOAT.items():
    lowering(f"aten.{_name}.default", why=_SAME, promotion="int_to_float")(_function)
for _name, (_overloads, _binary) in _BINARY.items():
    lowering(*(f"aten.{_name}.{overload}" for overload in _overloads), why=_SAME, promotion="default")(_binary)
for _name, (_overloads, _binary) in _BINARY_FLOAT.items():
    lowering(*(f"aten.{_name}.{overload}" for overload in _overloads), why=_SAME, promotion="int_to_float")(_binary)
for _name, _binary in _COMPARISON.items():
    lowering(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar", why=_SAME, promotion="bool")(_binary)
for _name, _logical in _LOGICAL.items():
    lowering(f"aten.{_name}.default", why=_SAME)(_logical)
for _name, _function in _CLASSES.items():
    lowering(f"aten.{_name}.default", why=_SAME)(_function)


def _rounding(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: function(x) if jnp.issubdtype(x.dtype, jnp.inexact) else x


for _name, _function in _ROUNDING.items():
    lowering(f"aten.{_name}.default", why=_SAME, promotion="default")(_rounding(_function))


@lowering("aten.sinh.default", why="XLA's of small complex numbers cancels", promotion="int_to_float")
def sinh(x: Array) -> Array:
    """The hyperbolic sine."""
    if not jnp.issubdtype(x.dtype, jnp.complexfloating):
        return jnp.sinh(x)
    return lax.complex(jnp.sinh(x.real) * jnp.cos(x.imag), jnp.cosh(x.real) * jnp.sin(x.imag))


@lowering("aten.round.decimals", why="scaled, as PyTorch scales", promotion="default")
def round_decimals(x: Array, *, decimals: int) -> Array:
    """Rounds to a number of decimal places, half to even; negative ones round to tens, hundreds, ..."""
    scale = 10.0 ** abs(decimals)
    return jnp.round(x * scale) / scale if decimals >= 0 else jnp.round(x / scale) * scale


@lowering("aten.add.Tensor", "aten.add.Scalar", why="alpha", promotion="default")
def add(x: Array, y: Any, alpha: Any = 1) -> Array:
    """`x + alpha * y`."""
    return jnp.add(x, y if alpha == 1 else y * alpha)


@lowering("aten.sub.Tensor", "aten.sub.Scalar", why="alpha", promotion="default")
def sub(x: Array, y: Any, alpha: Any = 1) -> Array:
    """`x - alpha * y`."""
    return jnp.subtract(x, y if alpha == 1 else y * alpha)


@lowering("aten.rsub.Tensor", "aten.rsub.Scalar", why="operands the other way round, alpha", promotion="default")
def rsub(x: Array, y: Any, alpha: Any = 1) -> Array:
    """`y - alpha * x`."""
    return jnp.subtract(y, x if alpha == 1 else x * alpha)


@lowering("aten.div.Tensor_mode", "aten.div.Scalar_mode", why="rounding as PyTorch rounds")
def div_mode(x: Array, y: Any, rounding_mode: str | None = None) -> Array:
    """Division, then rounding to zero (`trunc`) or down (`floor`)."""
    if rounding_mode is None:
        return jnp.true_divide(*common(x, y, promotion="int_to_float"))
    dtype = result_dtype([x, y])
    x, y = jnp.broadcast_arrays(*common(x, y))
    if rounding_mode == "floor":
        return floor_divide(x, y)
    # PyTorch truncates the quotient as bf16 or f16 has it.
    return lax.div(x, y) if jnp.issubdtype(dtype, jnp.integer) else jnp.trunc((x / y).astype(dtype))


@lowering(
    "aten.floor_divide.default",
    "aten.floor_divide.Scalar",
    why="torch-mlir goes through f64 above 2^53",
    promotion="default",
)
def floor_divide(x: Array, y: Any) -> Array:
    """Division rounded down; integers stay exact."""
    return jnp.floor_divide(x, y)


@lowering(
    "aten.remainder.Tensor",
    "aten.remainder.Scalar",
    "aten.remainder.Scalar_Tensor",
    why="torch-mlir truncates; the sign is the divisor's",
    promotion="default",
)
def remainder(x: Any, y: Any) -> Array:
    """The remainder with the divisor's sign."""
    return jnp.remainder(x, y)


@lowering("aten.fmod.Tensor", "aten.fmod.Scalar", why="the sign is the dividend's", promotion="default")
def fmod(x: Array, y: Any) -> Array:
    """The remainder with the dividend's sign."""
    return jnp.fmod(x, y)


@lowering(
    "aten.pow.Tensor_Tensor",
    "aten.pow.Tensor_Scalar",
    "aten.pow.Scalar",
    why="small powers as products; integers exactly",
    promotion="default",
)
def power(x: Any, y: Any) -> Array:
    """`x ** y`; the exponents that networks use are written without a logarithm."""
    dtype = computation_dtype([x, y], "default")
    if not jnp.issubdtype(dtype, jnp.inexact):
        return _integer_power(*jnp.broadcast_arrays(*common(x, y)))
    if is_array(y):
        return _zero_power(x, y) if jnp.issubdtype(dtype, jnp.complexfloating) else jnp.power(x, y)
    if isinstance(y, complex):
        return _zero_power(x, y)
    match y:
        case 0.5:
            return jnp.sqrt(x)
        case -0.5:
            return lax.rsqrt(x)
        case _ if float(y).is_integer() and abs(y) <= _MAX_PRODUCTS:
            return lax.integer_pow(x, int(y))
        case _:
            return jnp.power(x, y)


#: A larger exponent costs more as a product than through a logarithm, and loses more digits.
_MAX_PRODUCTS = 16


def _integer_power(x: Array, y: Array) -> Array:
    """Repeated squaring, which wraps as PyTorch's does; a negative exponent leaves a unit, or zero."""

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        base, exponent, result = state
        return base * base, exponent >> 1, jnp.where(exponent & 1 == 1, result * base, result)

    start = (x, jnp.maximum(y, 0), jnp.ones_like(x))
    _, _, result = lax.while_loop(lambda state: jnp.any(state[1] > 0), step, start)
    inverse = jnp.where(x == 1, 1, jnp.where(x == -1, 1 - 2 * (y & 1), 0)).astype(x.dtype)
    return jnp.where(y < 0, inverse, result)


def _zero_power(x: Any, y: Any) -> Array:
    """The power of complex numbers; that of zero is zero, where XLA says NaN."""
    return jnp.where((jnp.asarray(x) == 0) & (jnp.real(y) > 0), 0, jnp.power(x, y))


@lowering("aten.heaviside.default", why="PyTorch says 0 for NaN", promotion="default")
def heaviside(x: Array, values: Array) -> Array:
    """0 below zero, 1 above, `values` at it."""
    return jnp.where(x == 0, values, (x > 0).astype(x.dtype))


@lowering("aten.sign.default", why="PyTorch says 0 for NaN", promotion="default")
def sign(x: Array) -> Array:
    """-1, 0 or 1."""
    if x.dtype == jnp.bool_:
        return x
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


@lowering(
    "aten.where.self",
    "aten.where.ScalarSelf",
    "aten.where.ScalarOther",
    "aten.where.Scalar",
    why="the condition is not promoted",
)
def where(condition: Array, x: Any, y: Any) -> Array:
    """`x` where the condition holds, `y` elsewhere."""
    x, y = common(x, y)
    return jnp.where(condition, x, y)


@lowering("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", why="the value takes the tensor's dtype")
def masked_fill(x: Array, mask: Array, value: Any) -> Array:
    """`value` where the mask holds."""
    return jnp.where(mask, jnp.asarray(value, x.dtype), x)


@lowering(
    "aten.clamp.default",
    "aten.clamp.Tensor",
    "aten.clip.default",
    "aten.clip.Tensor",
    why="either bound may be absent",
    promotion="default",
)
def clamp(x: Array, min: Any = None, max: Any = None) -> Array:  # noqa: A002  ATen's names
    """Limits to the bounds; where they cross, the upper one wins. NaN stays NaN."""
    if min is not None:
        x = jnp.maximum(x, min)
    if max is not None:
        x = jnp.minimum(x, max)
    return x


@lowering("aten.clamp_min.default", "aten.clamp_min.Tensor", why=_SAME, promotion="default")
def clamp_min(x: Array, bound: Any) -> Array:
    """Limits from below."""
    return jnp.maximum(x, bound)


@lowering("aten.clamp_max.default", "aten.clamp_max.Tensor", why=_SAME, promotion="default")
def clamp_max(x: Array, bound: Any) -> Array:
    """Limits from above."""
    return jnp.minimum(x, bound)
