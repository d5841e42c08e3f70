"""Rules of `pad-dynamic` for what combines elements of a dimension: padding gets a neutral element, or comes last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, stablehlo

from tpuc.passes.axes import Layout, dense, join
from tpuc.passes.padding import Padding, Replaced, lowest
from tpuc.passes.padding_rules import on
from tpuc.passes.rewrite import op_name
from tpuc.passes.tensors import broadcast, tensor_type


@on(stablehlo.ReduceOp)
def reduce(op: Any, padding: Padding) -> Sequence[Layout]:
    """The padding of the dimensions that are reduced gets the initial value, which is neutral."""
    count = len(op.results)
    values, layout = padding.meet(list(op.operands)[:count])
    reduced = list(op.dimensions)
    for place, (value, start) in enumerate(zip(values, list(op.operands)[count:], strict=True)):
        op.operation.operands[place] = padding.masked(value, reduced, start)
    return [tuple(axis for at, axis in enumerate(layout) if at not in reduced)] * count


@on(stablehlo.DotGeneralOp)
def dot_general(op: Any, padding: Padding) -> Sequence[Layout]:
    """The padding of contracted dimensions is zero on both sides: zero times NaN is NaN."""
    numbers = stablehlo.DotDimensionNumbers(op.dot_dimension_numbers)
    batches = list(zip(numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions, strict=True))
    contracted = list(zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True))
    lhs, rhs = padding.meet_along([*batches, *contracted], op.lhs, op.rhs)
    left, right = padding.layouts[lhs], padding.layouts[rhs]
    op.operation.operands[0] = padding.masked(lhs, [place for place, _ in contracted], padding.zero(lhs))
    op.operation.operands[1] = padding.masked(rhs, [place for _, place in contracted], padding.zero(rhs))
    gone = {place for place, _ in (*batches, *contracted)}, {place for _, place in (*batches, *contracted)}
    return [
        (
            *(join((left[one], right[other])) for one, other in batches),
            *(axis for at, axis in enumerate(left) if at not in gone[0]),
            *(axis for at, axis in enumerate(right) if at not in gone[1]),
        )
    ]


@on(stablehlo.SortOp)
def sort(op: Any, padding: Padding) -> Sequence[Layout] | Replaced:
    """Padding sorts after all elements: what is padding is the first thing that is compared."""
    dimension = op.dimension.value
    values, layout = padding.meet(list(op.operands))
    values = [padding.contiguous(value, dimension) for value in values]
    layout = tuple(axis.contiguous if at == dimension else axis for at, axis in enumerate(layout))
    if not layout[dimension].is_padded:
        for place, value in enumerate(values):
            op.operation.operands[place] = value
        return [layout] * len(values)
    shape = list(values[0].type.shape)
    i32 = ir.IntegerType.get_signless(32)
    is_padding = stablehlo.not_(padding.values.mask(layout[dimension]))
    rank = broadcast(stablehlo.convert(tensor_type([shape[dimension]], i32), is_padding), shape, [dimension])
    padding.counts["masks"] += 1
    sorted_ = stablehlo.SortOp(
        [value.type for value in (rank, *values)], [rank, *values], dimension=dimension, is_stable=op.is_stable
    )
    _compare_first(op, sorted_, i32)
    return Replaced(list(sorted_.results)[1:], [layout] * len(values))


def _compare_first(op: Any, sorted_: Any, key: ir.Type) -> None:
    """Gives a sort the comparison of another, after one of a first operand that the other lacks."""
    source = op.regions[0].blocks[0]
    types = [tensor_type([], key)] * 2 + [argument.type for argument in source.arguments]
    block = sorted_.regions[0].blocks.append(*types, arg_locs=[op.location] * len(types))
    values = dict(zip(source.arguments, list(block.arguments)[2:], strict=True))
    with ir.InsertionPoint(block):
        for each in source.operations:
            if op_name(each) != "stablehlo.return":
                copy = each.operation.clone()
                for place, operand in enumerate(each.operands):
                    copy.operands[place] = values.get(operand, operand)
                values.update(zip(each.results, copy.results, strict=True))
                continue
            own = values.get(each.operands[0], each.operands[0])
            lhs, rhs = list(block.arguments)[:2]
            before = stablehlo.compare(lhs, rhs, _direction("LT"), compare_type=_SIGNED())
            same = stablehlo.compare(lhs, rhs, _direction("EQ"), compare_type=_SIGNED())
            stablehlo.return_([stablehlo.or_(before, stablehlo.and_(same, own))])


def _direction(name: str) -> ir.Attribute:
    return ir.Attribute.parse(f"#stablehlo<comparison_direction {name}>")


def _SIGNED() -> ir.Attribute:  # noqa: N802
    return ir.Attribute.parse("#stablehlo<comparison_type SIGNED>")


@on(chlo.TopKOp)
def top_k(op: Any, padding: Padding) -> Sequence[Layout]:
    """Padding is the least value, and comes after elements that are equal to it."""
    last = len(padding.layouts[op.operand]) - 1
    value = padding.contiguous(op.operand, last)
    op.operation.operands[0] = padding.masked(value, [last], lowest(value.type.element_type))
    dims = padding.result_dims(op)[0]
    kept = tuple(axis.concrete for axis in padding.layouts[value][:last])
    return [(*kept, *dense(op.results[0].type.shape[last:], dims[last:]))] * 2
