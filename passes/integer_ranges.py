"""Between which numbers the elements of integer tensors lie: proved, not hoped for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.rewrite import Tensor
from tpuc.passes.tensors import MOVES, constant_elements, is_static, splat_number


@dataclass(frozen=True, order=True)
class Range:
    """All elements are at least `low` and at most `high`."""

    low: int
    high: int

    def fits(self, other: Range) -> bool:
        """Says whether all of this lies within another range."""
        return other.low <= self.low and self.high <= other.high


INT32 = Range(-(2**31), 2**31 - 1)
INT64 = Range(-(2**63), 2**63 - 1)


def union(ranges: Iterable[Range]) -> Range:
    """Returns the smallest range that holds all of these."""
    known = list(ranges)
    return Range(min(each.low for each in known), max(each.high for each in known))


def range_of(op: ir.OpView, known: Mapping[Tensor, Range]) -> Range | None:
    """Returns the range of the result of an operation, or None where nothing is known beyond its type.

    Args:
        op: An operation with one result of integers.
        known: The ranges of its operands, where there are any.
    """
    if isinstance(op, stablehlo.ConstantOp):
        return _range_of_constant(op.result)
    if isinstance(op, stablehlo.IotaOp):
        size = op.result.type.shape[ir.IntegerAttr(op.iota_dimension).value]
        return Range(0, max(size - 1, 0))
    if isinstance(op, stablehlo.ConvertOp):
        return known.get(op.operand) or _range_of_type(op.operand)
    rule = _RULES.get(type(op))
    operands = [known.get(operand) for operand in (op.operands[1:] if type(op) in _WITH_TRUTH else op.operands)]
    if rule is None or any(operand is None for operand in operands):
        return None
    found = rule(*cast("list[Range]", operands))
    # What leaves the type's range comes back at its other end.
    limits = _range_of_type(op.results[0])
    return found if found is not None and limits is not None and found.fits(limits) else None


def _range_of_constant(value: Tensor) -> Range | None:
    number = splat_number(value)
    if number is not None:
        return Range(int(number), int(number))
    elements = constant_elements(value)
    if elements is None or not isinstance(elements, ir.DenseIntElementsAttr):
        return None
    numbers = np.array(elements)
    return Range(int(numbers.min()), int(numbers.max())) if numbers.size else None


def _range_of_type(value: Tensor) -> Range | None:
    element = value.type.element_type
    if not is_static(value) or not isinstance(element, ir.IntegerType):
        return None
    if element.is_unsigned or element.width == 1:
        return Range(0, 2**element.width - 1)
    return Range(-(2 ** (element.width - 1)), 2 ** (element.width - 1) - 1)


def _all(*operands: Range) -> Range:
    return union(operands)


def _corners(combine: Callable[[int, int], int]) -> Callable[[Range, Range], Range]:
    """The range of a function of two numbers whose extremes are at the ends of their ranges."""

    def combined(a: Range, b: Range) -> Range:
        numbers = [combine(x, y) for x, y in product((a.low, a.high), (b.low, b.high))]
        return Range(min(numbers), max(numbers))

    return combined


def _absolute(a: Range) -> Range:
    low = 0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high))
    return Range(low, max(abs(a.low), abs(a.high)))


def _remainder(a: Range, b: Range) -> Range | None:
    """The remainder has the sign of the dividend."""
    if b.low <= 0:
        return None
    return Range(max(a.low, 1 - b.high) if a.low < 0 else 0, min(a.high, b.high - 1) if a.high > 0 else 0)


def _clamped(low: Range, a: Range, high: Range) -> Range:
    """StableHLO's clamp is min(max(low, x), high)."""
    return _corners(min)(_corners(max)(low, a), high)


_RULES: Mapping[Any, Callable[..., Range | None]] = {
    **dict.fromkeys(MOVES, _all),
    stablehlo.AbsOp: _absolute,
    stablehlo.AddOp: _corners(lambda x, y: x + y),
    stablehlo.ClampOp: _clamped,
    stablehlo.MaxOp: _corners(max),
    stablehlo.MinOp: _corners(min),
    stablehlo.MulOp: _corners(lambda x, y: x * y),
    stablehlo.NegOp: lambda a: Range(-a.high, -a.low),
    stablehlo.RemOp: _remainder,
    stablehlo.SelectOp: _all,
    stablehlo.SubtractOp: _corners(lambda x, y: x - y),
}
#: Their first operand is no number.
_WITH_TRUTH = (stablehlo.SelectOp,)
