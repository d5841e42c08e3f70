"""simplify-arithmetic: removes operations that compute nothing.

Decompositions carry their general case along: `addmm` multiplies its bias by one, a cast casts to the type that is
there, a mask is and-ed with true. The compiler drops most of this itself; other passes should not have to look through
it.

Before:

    %one = stablehlo.constant dense<1.000000e+00> : tensor<768xf32>
    %0 = stablehlo.multiply %bias, %one : tensor<768xf32>
    %1 = stablehlo.convert %0 : (tensor<768xf32>) -> tensor<768xf64>
    %2 = stablehlo.convert %1 : (tensor<768xf64>) -> tensor<768xf32>

After:

    %bias

Every rule gives the same bits: NaN, infinities and the sign of zero included. So x + 0.0 stays (it turns -0.0 into
0.0), and x * 0.0 stays (it may be NaN).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.base import Pass, PassContext
from tpuc.passes.rewrite import Rules, Tensor
from tpuc.passes.tensors import converts_exactly, producer, rebuild, splat_number

RULES = Rules()


def _is_all_ones(number: bool | int | float, type_: ir.Type) -> bool:
    # The bindings give an i1 as a bool, and a signless integer as a signed one.
    if isinstance(type_, ir.IntegerType) and type_.is_unsigned:
        return bool(number == 2**type_.width - 1)
    return bool(number is True or number == -1)


def _is_nothing(number: bool | int | float, type_: ir.Type) -> bool:
    """Whether x + number is x: only -0.0 leaves both zeros as they are."""
    return number == 0 and (isinstance(type_, ir.IntegerType) or math.copysign(1, number) < 0)


def _is_nothing_less(number: bool | int | float, type_: ir.Type) -> bool:
    """Whether x - number is x: only 0.0 leaves both zeros as they are."""
    return number == 0 and (isinstance(type_, ir.IntegerType) or math.copysign(1, number) > 0)


#: Says of a second operand whether the operation then returns its first one.
NEUTRAL: Mapping[type[ir.OpView], Callable[[bool | int | float, ir.Type], bool]] = {
    stablehlo.AddOp: _is_nothing,
    stablehlo.AndOp: _is_all_ones,
    stablehlo.DivOp: lambda number, _: number == 1,
    stablehlo.MaxOp: lambda number, _: number == -math.inf,
    stablehlo.MinOp: lambda number, _: number == math.inf,
    stablehlo.MulOp: lambda number, _: number == 1,
    stablehlo.OrOp: lambda number, _: number == 0,
    stablehlo.PowOp: lambda number, _: number == 1,
    stablehlo.SubtractOp: _is_nothing_less,
    stablehlo.XorOp: lambda number, _: number == 0,
}
NOT_COMMUTATIVE = (stablehlo.DivOp, stablehlo.PowOp, stablehlo.SubtractOp)


@dataclass(frozen=True, kw_only=True)
class SimplifyArithmetic(Pass):
    """Removes operations that compute nothing: x * 1, casts back and forth, selects that always choose the same."""

    name: ClassVar[str] = "simplify-arithmetic"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place."""
        return RULES.apply(module)


@RULES.on(*NEUTRAL)
def drop_neutral(op: ir.OpView) -> Tensor | None:
    """Operations with a neutral element: x * 1, x + -0.0, x & true, ... => x."""
    lhs, rhs = op.operands
    for kept, other in [(lhs, rhs)] if isinstance(op, NOT_COMMUTATIVE) else [(lhs, rhs), (rhs, lhs)]:
        number = splat_number(other)
        if number is not None and NEUTRAL[type(op)](number, other.type.element_type):
            return kept
    return None


@RULES.on(stablehlo.SelectOp)
def drop_select(op: stablehlo.SelectOp) -> Tensor | None:
    """A select that always chooses the same, or between equals => what it chooses."""
    if op.on_true == op.on_false:
        return op.on_true
    chosen = splat_number(op.pred)
    return None if chosen is None else op.on_true if chosen else op.on_false


@RULES.on(stablehlo.ConvertOp)
def drop_convert(op: stablehlo.ConvertOp) -> Tensor | None:
    """A convert to the type that the tensor has => the tensor."""
    return op.operand if op.operand.type == op.result.type else None


@RULES.on(stablehlo.ConvertOp)
def merge_converts(op: stablehlo.ConvertOp) -> Tensor | None:
    """convert(convert(x)), where the inner one loses nothing => convert(x), or x."""
    inner = producer(op.operand, stablehlo.ConvertOp)
    if inner is None or not converts_exactly(inner.operand.type.element_type, op.operand.type.element_type):
        return None
    if inner.operand.type == op.result.type:
        return inner.operand
    return stablehlo.convert(op.result.type, inner.operand)


@RULES.on(stablehlo.NotOp)
def fold_not(op: stablehlo.NotOp) -> Tensor | None:
    """not(not(x)) => x; not(a == b) => a != b, which holds for NaN too."""
    inner = producer(op.operand, stablehlo.NotOp)
    if inner is not None:
        return inner.operand
    compare = producer(op.operand, stablehlo.CompareOp)
    if compare is None:
        return None
    opposite = _OPPOSITE.get(str(compare.comparison_direction))
    if opposite is None:
        return None
    direction = ir.Attribute.parse(opposite)
    return rebuild(compare, [compare.lhs, compare.rhs], op.result.type, comparison_direction=direction)


_OPPOSITE = {
    "#stablehlo<comparison_direction EQ>": "#stablehlo<comparison_direction NE>",
    "#stablehlo<comparison_direction NE>": "#stablehlo<comparison_direction EQ>",
}
