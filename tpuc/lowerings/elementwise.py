"""Elementwise operators: arithmetic, comparison, logic, selection.

The tables pair an ATen name with JAX's function where the two agree; a function follows where they do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tpuc.lowerings.dtypes import computation_dtype, is_array
from tpuc.lowerings.registry import lowering

Array = jax.Array

_SAME = "JAX has the same function"

#: Results in the input's dtype.
_UNARY: dict[str, Callable[[Array], Array]] = {
    "abs": jnp.abs,
    "bitwise_not": jnp.bitwise_not,
    "ceil": jnp.ceil,
    "floor": jnp.floor,
    "neg": jnp.negative,
    "relu": lambda x: jnp.maximum(x, 0),
    "round": jnp.round,
    "square": jnp.square,
    "trunc": jnp.trunc,
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
    "erf": lax.erf,
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
    "sinh": jnp.sinh,
    "sqrt": jnp.sqrt,
    "tan": jnp.tan,
    "tanh": jnp.tanh,
}
#: Two tensors, or a tensor and a number.
_BINARY: dict[str, tuple[tuple[str, ...], Callable[[Any, Any], Array]]] = {
    "bitwise_and": (("Tensor", "Scalar", "Scalar_Tensor"), jnp.bitwise_and),
    "bitwise_or": (("Tensor", "Scalar", "Scalar_Tensor"), jnp.bitwise_or),
    "bitwise_xor": (("Tensor", "Scalar", "Scalar_Tensor"), jnp.bitwise_xor),
    "__and__": (("Tensor", "Scalar"), jnp.bitwise_and),
    "__or__": (("Tensor", "Scalar"), jnp.bitwise_or),
    "__xor__": (("Tensor", "Scalar"), jnp.bitwise_xor),
    "maximum": (("default",), jnp.maximum),
    "minimum": (("default",), jnp.minimum),
    "mul": (("Tensor", "Scalar"), jnp.multiply),
}
_BINARY_FLOAT: dict[str, tuple[tuple[str, ...], Callable[[Any, Any], Array]]] = {
    "atan2": (("default",), jnp.arctan2),
}
_COMPARISON: dict[str, Callable[[Any, Any], Array]] = {
    "eq": jnp.equal,
    "ge": jnp.greater_equal,
    "gt": jnp.greater,
    "le": jnp.less_equal,
    "lt": jnp.less,
    "ne": jnp.not_equal,
}
_LOGICAL: dict[str, Callable[[Any, Any], Array]] = {
    "logical_and": jnp.logical_and,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
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
for _name, _binary in _LOGICAL.items():
    lowering(f"aten.{_name}.default", why=_SAME)(_binary)


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


@lowering("aten.div.Tensor", "aten.div.Scalar", why=_SAME, promotion="int_to_float")
def div(x: Array, y: Any) -> Array:
    """True division."""
    return jnp.true_divide(x, y)


@lowering("aten.div.Tensor_mode", "aten.div.Scalar_mode", why="rounding as PyTorch rounds")
def div_mode(x: Array, y: Any, rounding_mode: str | None = None) -> Array:
    """Division, then rounding to zero (`trunc`) or down (`floor`)."""
    if rounding_mode is None:
        return jnp.true_divide(x, y)
    x, y = jnp.broadcast_arrays(*_common(x, y))
    if rounding_mode == "floor":
        return floor_divide(x, y)
    return lax.div(x, y) if jnp.issubdtype(x.dtype, jnp.integer) else jnp.trunc(x / y)


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
    why="small powers as products",
    promotion="default",
)
def power(x: Any, y: Any) -> Array:
    """`x ** y`; the exponents that networks use are written without a logarithm."""
    if is_array(y):
        return jnp.power(x, y)
    match y:
        case 0.5:
            return jnp.sqrt(x)
        case -0.5:
            return lax.rsqrt(x)
        case _ if float(y).is_integer() and abs(y) < 2**31:
            return lax.integer_pow(x, int(y))
        case _:
            return jnp.power(x, y)


@lowering("aten.logical_not.default", why=_SAME)
def logical_not(x: Array) -> Array:
    """Whether an element is zero."""
    return jnp.logical_not(x)


@lowering(
    "aten.where.self",
    "aten.where.ScalarSelf",
    "aten.where.ScalarOther",
    "aten.where.Scalar",
    why="the condition is not promoted",
)
def where(condition: Array, x: Any, y: Any) -> Array:
    """`x` where the condition holds, `y` elsewhere."""
    x, y = _common(x, y)
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


@lowering("aten.sign.default", why="PyTorch says 0 for NaN", promotion="default")
def sign(x: Array) -> Array:
    """-1, 0 or 1."""
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


@lowering("aten.isnan.default", why=_SAME)
def isnan(x: Array) -> Array:
    """Whether an element is NaN."""
    return jnp.isnan(x)


@lowering("aten.isinf.default", why=_SAME)
def isinf(x: Array) -> Array:
    """Whether an element is infinite."""
    return jnp.isinf(x)


def _common(x: Any, y: Any) -> tuple[Array, Array]:
    dtype = computation_dtype([x, y], "default")
    return jnp.asarray(x, dtype), jnp.asarray(y, dtype)
