"""Rules of `pad-dynamic` for what goes by indices: those of elements stay inside, those of padding write nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.axes import Layout, dense, join
from tpuc.passes.padding import Padding, Refusal, scalar
from tpuc.passes.padding_rules import on
from tpuc.passes.rewrite import Tensor
from tpuc.passes.tensors import broadcast, reshape
from tpuc.runtime.sizes import SizeExpr


@on(stablehlo.GatherOp)
def gather(op: Any, padding: Padding) -> Sequence[Layout]:
    """Indices are clamped to the true dimensions."""
    numbers = stablehlo.GatherDimensionNumbers(op.dimension_numbers)
    sizes = padding.integers(op, "slice_sizes")
    value, indices = op.operand, op.start_indices
    vector = numbers.index_vector_dim
    batched = list(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    value, indices = padding.meet_along(batched, value, indices)
    whole = [size == axis.size for size, axis in zip(sizes, padding.layouts[value], strict=True)]
    for at, size in enumerate(sizes):
        if whole[at] or at in numbers.operand_batching_dims:
            continue
        if size.constant is None:
            raise Refusal(f"it takes slices of {size}")
        value = padding.contiguous(value, at)
    layout, index_layout = padding.layouts[value], padding.layouts[indices]
    limits = [axis.size - size for axis, size in zip(layout, sizes, strict=True)]
    indices = _clamped(indices, [limits[at] for at in numbers.start_index_map], vector, padding)
    op.operation.operands[0], op.operation.operands[1] = value, indices
    batch = iter([axis.concrete for at, axis in enumerate(index_layout) if at != vector])
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    [dims] = padding.result_dims(op)
    offsets = iter([at for at in range(len(sizes)) if at not in gone])
    axes = []
    for at, (bound, dim) in enumerate(zip(op.result.type.shape, dims, strict=True)):
        if at not in numbers.offset_dims:
            axes.append(next(batch))
            continue
        source = next(offsets)
        axes.append(layout[source] if whole[source] else dense([bound], [dim])[0])
    return [tuple(axes)]


def _clamped(indices: Tensor, limits: Sequence[SizeExpr], vector: int, padding: Padding) -> Tensor:
    """Limits the numbers of index vectors, if some of the limits vary."""
    if all(limit.constant is not None for limit in limits):
        return indices
    type_ = indices.type
    numbers = [reshape(padding.number(limit, type_.element_type), [1]) for limit in limits]
    upper = stablehlo.concatenate(numbers, 0) if len(numbers) > 1 else numbers[0]
    dimensions = [vector]
    if vector == type_.rank:
        upper, dimensions = reshape(upper, []), []
    clamped = stablehlo.minimum(indices, broadcast(upper, type_.shape, dimensions))
    padding.layouts[clamped] = padding.layouts[indices]
    return clamped


@on(stablehlo.ScatterOp)
def scatter(op: Any, padding: Padding) -> Sequence[Layout]:
    """The indices of padding point outside, where nothing is written."""
    numbers = stablehlo.ScatterDimensionNumbers(op.scatter_dimension_numbers)
    count = len(op.results)
    inputs, layout = padding.meet(list(op.operands)[:count])
    indices = op.operands[count]
    updates, update_layout = padding.meet(list(op.operands)[count + 1 :])
    if len(numbers.input_batching_dims):
        raise Refusal("it has batches")
    window = list(numbers.update_window_dims)
    kept = [at for at in range(len(layout)) if at not in numbers.inserted_window_dims]
    target = [axis.contiguous if at in numbers.inserted_window_dims else axis for at, axis in enumerate(layout)]
    for at, place in zip(kept, window, strict=True):
        axis = update_layout[place]
        if axis.size == layout[at].size:
            target[at] = join((layout[at], axis))
        elif axis.is_padded or layout[at].is_padded:
            raise Refusal(f"it writes windows of {axis.size} into a dimension of {layout[at].size}")
    goal = tuple(axis.concrete for axis in target)
    inputs = [padding.refactored(padding.move(value, goal), goal) for value in inputs]
    places = {place: target[at] for at, place in zip(kept, window, strict=True) if update_layout[place].is_padded}
    batch = [at for at in range(len(update_layout)) if at not in window]
    vector = numbers.index_vector_dim
    index_places = [at for at in range(len(padding.layouts[indices])) if at != vector]
    pairs = [(place, at) for place, at in zip(batch, index_places, strict=True)]
    wanted = [join((update_layout[place], padding.layouts[indices][at])) for place, at in pairs]
    places.update({place: axis for (place, _), axis in zip(pairs, wanted, strict=True)})
    update_goal = tuple(places.get(at, axis) for at, axis in enumerate(update_layout))
    updates = [padding.move(value, update_goal) for value in updates]
    index_goal = list(padding.layouts[indices])
    for (_, at), axis in zip(pairs, wanted, strict=True):
        index_goal[at] = axis
    indices = padding.refactored(padding.move(indices, tuple(index_goal)), tuple(index_goal))
    # Not -1: only elements that are outside are left out, and those behind the first of a window would be inside.
    width = ir.IntegerType(indices.type.element_type).width
    outside = scalar(indices.type.element_type, 1 << (min(width, 32) - 2))
    indices = padding.masked(indices, index_places, outside)
    for place, value in enumerate((*inputs, indices, *updates)):
        op.operation.operands[place] = value
    op.attributes["indices_are_sorted"] = ir.BoolAttr.get(False)
    return [goal] * count
