"""Rules of `pad-dynamic` for what holds other operations, and for the end of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.axes import Layout
from tpuc.passes.padding import Padding
from tpuc.passes.padding_rules import apply_rules, on
from tpuc.passes.rewrite import Tensor


@on(stablehlo.WhileOp)
def while_op(op: Any, padding: Padding) -> Sequence[Layout]:
    """What is carried from turn to turn has its padding last in every dimension."""
    layouts = []
    for place, value in enumerate(op.operands):
        op.operation.operands[place] = value = _settled(value, padding)
        layouts.append(tuple(axis.concrete for axis in padding.layouts[value]))
    for region in op.regions:
        block = region.blocks[0]
        padding.layouts.update(zip(block.arguments, layouts, strict=True))
        apply_rules(block, padding)
    _settle_results(op.regions[1].blocks[0], padding)
    return layouts


@on(stablehlo.CaseOp, stablehlo.IfOp)
def case(op: Any, padding: Padding) -> Sequence[Layout]:
    """All branches return their results with the padding last in every dimension."""
    for region in op.regions:
        apply_rules(region.blocks[0], padding)
        _settle_results(region.blocks[0], padding)
    return [padding.dense(result, dims) for result, dims in zip(op.results, padding.result_dims(op), strict=True)]


def _settle_results(block: Any, padding: Padding) -> None:
    terminator = block.operations[len(block.operations) - 1]
    with terminator.location, ir.InsertionPoint(terminator):
        for place, value in enumerate(terminator.operands):
            terminator.operation.operands[place] = _settled(value, padding)


def _settled(value: Tensor, padding: Padding) -> Tensor:
    """Returns a value with its padding last in every dimension."""
    for at in range(len(padding.layouts[value])):
        value = padding.contiguous(value, at)
    return value


@on("func.return")
def return_op(op: Any, padding: Padding) -> Sequence[Layout]:
    """Who called cuts off the ends."""
    for place, value in enumerate(op.operands):
        op.operation.operands[place] = _settled(value, padding)
    return []
