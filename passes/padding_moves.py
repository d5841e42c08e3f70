"""Rules of `pad-dynamic` for what moves elements along a dimension: slices, concatenations, flips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.axes import Axis, Layout, dense, join
from tpuc.passes.padding import ONE, ZERO, Padding, Refusal, Replaced, scalar, take_along
from tpuc.passes.padding_rules import on
from tpuc.passes.rewrite import Tensor
from tpuc.passes.tensors import broadcast, tensor_type
from tpuc.runtime.sizes import SizeExpr


@on(stablehlo.SliceOp)
def slice_op(op: Any, padding: Padding) -> Sequence[Layout] | Replaced:
    """A start that varies becomes a dynamic slice, a stride a gather; an end that varies is the end at the bound."""
    [dims] = padding.result_dims(op)
    shape = op.result.type.shape
    starts, limits = padding.integers(op, "start_indices"), padding.integers(op, "limit_indices")
    strides = padding.integers(op, "strides")
    value = op.operand
    axes = list(padding.layouts[value])
    for at, axis in enumerate(padding.layouts[value]):
        whole = starts[at] == ZERO and limits[at] == axis.size and strides[at] == ONE
        if whole:
            continue
        if not (padding.is_never_negative(starts[at]) and padding.is_never_negative(axis.size - limits[at])):
            raise Refusal(f"it takes {starts[at]}:{limits[at]} of a dimension of {axis.size}: not at all sizes allowed")
        value = padding.contiguous(value, at)
        axes[at] = Axis(dense([shape[at]], [dims[at]])[0].factors, axis.is_free)
    if all(number.constant is not None for number in (*starts, *strides)):
        op.operation.operands[0] = value
        return [tuple(axes)]
    for at, stride in enumerate(strides):
        if stride.constant is None:
            value = take_along(value, padding.values.progression(starts[at], stride, shape[at]), at)
    rest = [start if stride.constant is not None else ZERO for start, stride in zip(starts, strides, strict=True)]
    fixed = [stride.constant or 1 for stride in strides]
    return Replaced([_dynamic_slice(value, rest, shape, fixed, padding)], [tuple(axes)])


def _dynamic_slice(
    value: Tensor, starts: Sequence[SizeExpr], shape: Sequence[int], strides: Sequence[int], padding: Padding
) -> Tensor:
    """Builds a slice that starts at sizes; the value is made longer where the start would be moved to fit."""
    extents = [(count - 1) * stride + 1 if count else 0 for count, stride in zip(shape, strides, strict=True)]
    missing = [
        max(0, padding.extremes(start)[1] + extent - bound)
        for start, extent, bound in zip(starts, extents, value.type.shape, strict=True)
    ]
    value = _extend(value, missing, padding)
    indices = [padding.values.number(start) for start in starts]
    taken = stablehlo.dynamic_slice(value, indices, extents)
    if all(stride == 1 for stride in strides):
        return taken
    return stablehlo.slice(taken, [0] * len(extents), extents, list(strides))


def _extend(value: Tensor, missing: Sequence[int], padding: Padding) -> Tensor:
    """Builds a value with more places at the ends of its dimensions."""
    if not any(missing):
        return value
    none = [0] * len(missing)
    return stablehlo.pad(value, padding.zero(value), none, list(missing), none)


@on(stablehlo.ConcatenateOp)
def concatenate(op: Any, padding: Padding) -> Sequence[Layout] | Replaced:
    """Each operand is written over the padding of those before it."""
    dimension = op.dimension.value
    values = [padding.contiguous(value, dimension) for value in op.operands]
    layouts = [padding.layouts[value] for value in values]
    axes = [join(layout[at] for layout in layouts) for at in range(len(layouts[0]))]
    values = [
        padding.move(value, tuple(own if at == dimension else axes[at] for at, own in enumerate(layout)))
        for value, layout in zip(values, layouts, strict=True)
    ]
    [dims] = padding.result_dims(op)
    axes[dimension] = dense([op.result.type.shape[dimension]], [dims[dimension]])[0]
    sizes = [layout[dimension].size for layout in layouts]
    if sum(sizes, ZERO) != dims[dimension]:
        raise Refusal(f"its dimension is {dims[dimension]} at the sizes tried, and {sum(sizes, ZERO)} by its rule")
    total: Tensor = stablehlo.concatenate(values, dimension)
    first = next((place for place, size in enumerate(sizes) if size.constant is None), len(sizes))
    for place in range(first + 1, len(values)):
        offset = padding.values.number(sum(sizes[:place], ZERO))
        zero = padding.values.number(ZERO)
        starts = [offset if at == dimension else zero for at in range(len(axes))]
        total = stablehlo.dynamic_update_slice(total, values[place], starts)
    return Replaced([total], [tuple(axes)])


@on(stablehlo.PadOp)
def pad(op: Any, padding: Padding) -> Sequence[Layout]:
    """What it puts after the last element goes where padding is; the first element stays in its place."""
    lows, highs, interiors = (
        padding.integers(op, name) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    [dims] = padding.result_dims(op)
    value = op.operand
    axes = list(padding.layouts[value])
    masked = []
    for at, (low, high, interior) in enumerate(zip(lows, highs, interiors, strict=True)):
        axis = axes[at]
        if low == high == interior == ZERO:
            continue
        if low.constant is None or interior.constant is None:
            raise Refusal("where its first element goes varies")
        if interior != ZERO and not padding.is_never_negative(axis.size - 1):
            raise Refusal("it puts holes into a dimension that may be empty")
        size = (axis.size - 1) * (interior + 1) + 1 + low + high
        if size != dims[at]:
            raise Refusal(f"its dimension is {dims[at]} at the sizes tried, and {size} by its rule")
        value = padding.contiguous(value, at)
        axes[at] = dense([op.result.type.shape[at]], [dims[at]])[0]
        if high.constant is None or high.constant > 0 or interior != ZERO:
            masked.append(at)
    op.operation.operands[0] = padding.masked(value, masked, op.padding_value)
    return [tuple(axes)]


@on(stablehlo.ReverseOp)
def reverse(op: Any, padding: Padding) -> Sequence[Layout] | Replaced:
    """The padding, which comes first then, is cut off."""
    value = op.operand
    dimensions = list(op.dimensions)
    for at in dimensions:
        value = padding.contiguous(value, at)
    layout = padding.layouts[value]
    reversed_: Tensor = stablehlo.reverse(value, dimensions)
    moved = [at for at in dimensions if layout[at].is_padded and not layout[at].is_free]
    if moved:
        shape = reversed_.type.shape
        starts = [layout[at].size * -1 + shape[at] if at in moved else ZERO for at in range(len(shape))]
        reversed_ = _dynamic_slice(reversed_, starts, shape, [1] * len(shape), padding)
    return Replaced([reversed_], [layout])


@on(stablehlo.DynamicSliceOp)
def dynamic_slice(op: Any, padding: Padding) -> Sequence[Layout]:
    """The start is limited by the true dimension."""
    sizes = padding.integers(op, "slice_sizes")
    [dims] = padding.result_dims(op)
    value = op.operand
    axes = []
    for at, size in enumerate(sizes):
        axis = padding.layouts[value][at]
        if size == axis.size:
            axes.append(axis)
            continue
        if size.constant is None:
            raise Refusal(f"it takes slices of {size}")
        value = padding.contiguous(value, at)
        axes.append(dense([op.result.type.shape[at]], [dims[at]])[0])
        op.operation.operands[1 + at] = _limited(op.operands[1 + at], axis.size - size, padding)
    op.operation.operands[0] = value
    return [tuple(axes)]


@on(stablehlo.DynamicUpdateSliceOp)
def dynamic_update_slice(op: Any, padding: Padding) -> Sequence[Layout] | Replaced:
    """The start is limited by the true dimension; what has padding is written without it, through a mask."""
    value, update, *starts = op.operands
    pairs = []
    padded = []
    for at, (axis, new) in enumerate(zip(padding.layouts[value], padding.layouts[update], strict=True)):
        if axis.size == new.size:
            pairs.append((at, at))
            continue
        value = padding.contiguous(value, at)
        if new.is_padded:
            update = padding.contiguous(update, at)
            padded.append(at)
        starts[at] = _limited(starts[at], axis.size - new.size, padding)
    value, update = padding.meet_along(pairs, value, update)
    layout = tuple(axis.concrete for axis in padding.layouts[value])
    if padded:
        return Replaced([_write(value, update, starts, padded, padding)], [layout])
    for place, operand in enumerate((value, update, *starts)):
        op.operation.operands[place] = operand
    return [layout]


def _write(value: Tensor, update: Tensor, starts: Sequence[Tensor], padded: Sequence[int], padding: Padding) -> Tensor:
    """Builds an update of which only the elements are written, in the dimensions that are padded."""
    shape = value.type.shape
    # The padding of what is written may reach beyond the end: there must be room, or the start would be moved.
    room = [update.type.shape[at] if at in padded else 0 for at in range(len(shape))]
    none = [0] * len(shape)
    longer = stablehlo.dynamic_update_slice(_extend(value, room, padding), update, starts)
    written: Tensor = stablehlo.slice(longer, none, shape, [1] * len(shape))
    padding.counts["masks"] += 1
    for at in padded:
        type_ = tensor_type([shape[at]], starts[at].type.element_type)
        # Of an unsigned number, places before the start are great ones.
        place = stablehlo.subtract(stablehlo.iota(type_, 0), broadcast(starts[at], [shape[at]], []))
        size = padding.number(padding.layouts[update][at].size, type_.element_type)
        inside = stablehlo.and_(_compare(place, "GE", scalar(type_.element_type, 0)), _compare(place, "LT", size))
        written = stablehlo.select(broadcast(inside, shape, [at]), written, value)
    return written


def _compare(lhs: Tensor, direction: str, number: Tensor) -> Tensor:
    """Compares each element with a number, which is signed unless its type says otherwise."""
    element = number.type.element_type
    kind = "UNSIGNED" if isinstance(element, ir.IntegerType) and element.is_unsigned else "SIGNED"
    return stablehlo.compare(
        lhs,
        broadcast(number, lhs.type.shape, []),
        ir.Attribute.parse(f"#stablehlo<comparison_direction {direction}>"),
        compare_type=ir.Attribute.parse(f"#stablehlo<comparison_type {kind}>"),
    )


def _limited(start: Tensor, limit: SizeExpr, padding: Padding) -> Tensor:
    if limit.constant is not None:
        return start
    limited = stablehlo.minimum(start, padding.number(limit, start.type.element_type))
    padding.layouts[limited] = ()
    return limited
