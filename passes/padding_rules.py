"""The rules of `pad-dynamic`: for each operation, what keeps padding away from elements.

A rule gets an operation at the bound and says where the elements of its results are. It may change operands in place,
or build other operations and return their values as `Replaced`; where neither is exact, it raises `Refusal`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, stablehlo

from tpuc.passes.axes import Axis, Factor, Layout, dense, join, regroup
from tpuc.passes.padding import Padding, Refusal, Replaced, lowest, scalar
from tpuc.passes.rewrite import Tensor, nested_ops
from tpuc.passes.tensors import CHLO_ELEMENTWISE, ELEMENTWISE, broadcast, reshape, tensor_type
from tpuc.runtime.sizes import SizeExpr

Rule: TypeAlias = "Callable[[Any, Padding], Sequence[Layout] | Replaced]"

#: The rule for each operation, by its name.
RULES: dict[str, Rule] = {}

_ONE = SizeExpr.of(1)
_ZERO = SizeExpr.of(0)
#: Operations whose regions are blocks of a program.
_WITH_RULES_INSIDE = ("stablehlo.while", "stablehlo.case", "stablehlo.if")
#: Beyond `ELEMENTWISE`.
_OTHER_ELEMENTWISE = (
    stablehlo.ClzOp,
    stablehlo.ComplexOp,
    stablehlo.ImagOp,
    stablehlo.MapOp,
    stablehlo.OptimizationBarrierOp,
    stablehlo.PopulationCountOp,
    stablehlo.RealOp,
    stablehlo.ReducePrecisionOp,
    stablehlo.ShiftLeftOp,
    stablehlo.ShiftRightArithmeticOp,
    stablehlo.ShiftRightLogicalOp,
    chlo.BesselI1eOp,
    chlo.ConjOp,
    chlo.IsInfOp,
    chlo.IsNegInfOp,
    chlo.IsPosInfOp,
    chlo.MulhiOp,
    chlo.NextAfterOp,
    chlo.PolygammaOp,
    chlo.ZetaOp,
)


def on(*ops: type[ir.OpView] | str) -> Callable[[Rule], Rule]:
    """Registers a rule for operations: classes of the bindings, or names."""

    def register(rule: Rule) -> Rule:
        for op in ops:
            RULES[op if isinstance(op, str) else op.OPERATION_NAME] = rule  # type: ignore[attr-defined]
        return rule

    return register


def apply_rules(block: Any, padding: Padding) -> None:
    """Applies the rules to the operations of a block, in order."""
    outer, padding.scope = padding.scope, padding.new_scope()
    for op in list(block.operations):
        is_known = len(op.results) and op.results[0] in padding.layouts
        if not is_known and op.name != "stablehlo.return":
            with op.location, ir.InsertionPoint(op):
                _apply(op, padding)
    padding.scope = outer


def _apply(op: Any, padding: Padding) -> None:
    expected = padding.result_dims(op)
    rule = RULES.get(op.name) if padding.is_concerned(op) else None
    try:
        _check_inside(op)
        found = padding.unconcerned(op) if rule is None else rule(op, padding)
        padding.check(found.layouts if isinstance(found, Replaced) else found, expected)
    except Refusal as refusal:
        padding.refused.append((f"{op.name}: {refusal}", str(op.location)))
        # Go on, to find the others.
        found = [padding.dense(result, dims) for result, dims in zip(op.results, expected, strict=True)]
    if not isinstance(found, Replaced):
        padding.layouts.update(zip(op.results, found, strict=True))
        return
    for result, value in zip(list(op.results), found.values, strict=True):
        result.replace_all_uses_with(value)
    padding.layouts.update(zip(found.values, found.layouts, strict=True))
    op.operation.erase()


def _check_inside(op: Any) -> None:
    """Checks that nothing depends on sizes in what an operation applies to elements, which no rule looks at."""
    if op.name in _WITH_RULES_INSIDE:
        return
    for inner in nested_ops(op)[1:]:
        if any(name.startswith("tpuc.") for name in inner.attributes):
            raise Refusal("what it computes from elements depends on the sizes")


# What is made of nothing.


@on(stablehlo.ConstantOp)
def constant(op: Any, padding: Padding) -> Sequence[Layout] | Replaced:
    """A constant whose elements are the same, or depend on the sizes as it is annotated."""
    [dims] = padding.result_dims(op)
    layout = dense(op.result.type.shape, dims, is_free=op.value.is_splat)
    if "tpuc.affine" in op.attributes:
        first, *steps = padding.integers(op, "affine")
        layout = dense(op.result.type.shape, dims, is_free=not steps)
        return Replaced([_affine(op, first, steps, padding)], [layout])
    if "tpuc.elements" in op.attributes:
        elements = [_number(each, op.result.type.element_type, padding) for each in padding.integers(op, "elements")]
        column = stablehlo.concatenate([reshape(each, [1]) for each in elements], 0)
        return Replaced([reshape(column, op.result.type.shape)], [layout])
    if any(axis.is_padded for axis in layout) and not op.value.is_splat:
        raise Refusal("it has elements that depend on the sizes")
    return [layout]


def _affine(op: Any, first: SizeExpr, steps: Sequence[SizeExpr], padding: Padding) -> Tensor:
    type_ = op.result.type
    total = _apply_function(op, _number(first, type_.element_type, padding))
    value = broadcast(total, type_.shape, [])
    for dimension, step in enumerate(steps):
        if step != _ZERO:
            index = stablehlo.iota(type_, dimension)
            factor = broadcast(_number(step, type_.element_type, padding), type_.shape, [])
            value = stablehlo.add(value, stablehlo.multiply(index, factor))
    return value


def _apply_function(op: Any, value: Tensor) -> Tensor:
    match ir.StringAttr(op.attributes["tpuc.function"]).value:
        case "reciprocal":
            return stablehlo.divide(scalar(value.type.element_type, 1), value)
        case "sqrt":
            return stablehlo.sqrt(value)
        case "rsqrt":
            return stablehlo.divide(scalar(value.type.element_type, 1), stablehlo.sqrt(value))
        case "log":
            return stablehlo.log(value)
    return value


def _number(expression: SizeExpr, element: ir.Type, padding: Padding) -> Tensor:
    value = padding.values.number(expression)
    return value if value.type.element_type == element else stablehlo.convert(tensor_type([], element), value)


@on(stablehlo.IotaOp)
def iota(op: Any, padding: Padding) -> Sequence[Layout]:
    """Counts along one dimension; along the others all elements are the same."""
    [dims] = padding.result_dims(op)
    layout = dense(op.result.type.shape, dims)
    counted = (
        ir.IntegerAttr(op.iota_dimension).value if isinstance(op.iota_dimension, ir.Attribute) else op.iota_dimension
    )
    return [tuple(axis if at == counted else Axis(axis.factors, is_free=True) for at, axis in enumerate(layout))]


# What leaves padding where it is.


@on(*ELEMENTWISE, *CHLO_ELEMENTWISE, *_OTHER_ELEMENTWISE)
def elementwise(op: Any, padding: Padding) -> Sequence[Layout]:
    """Elements meet elements, and padding meets padding."""
    shape = list(op.results[0].type.shape)
    places = [place for place, operand in enumerate(op.operands) if list(operand.type.shape) == shape]
    if len(op.results) > 1:
        return [padding.layouts[operand] for operand in op.operands]
    values, layout = padding.meet([op.operands[place] for place in places])
    for place, value in zip(places, values, strict=True):
        op.operation.operands[place] = value
    return [layout]


@on(stablehlo.BroadcastInDimOp)
def broadcast_in_dim(op: Any, padding: Padding) -> Sequence[Layout]:
    """Copies along new dimensions, and along those of size one."""
    [dims] = padding.result_dims(op)
    axes = list(dense(op.result.type.shape, dims, is_free=True))
    for axis, place in zip(padding.layouts[op.operand], op.broadcast_dimensions, strict=True):
        if axis.size == dims[place]:
            axes[place] = axis
        elif axis.size != _ONE:
            raise Refusal(f"a dimension of {axis.size} becomes one of {dims[place]}")
    return [tuple(axes)]


@on(stablehlo.TransposeOp)
def transpose(op: Any, padding: Padding) -> Sequence[Layout]:
    """The dimensions change places, each with its padding."""
    layout = padding.layouts[op.operand]
    return [tuple(layout[place] for place in op.permutation)]


@on(stablehlo.ReshapeOp)
def reshape_op(op: Any, padding: Padding) -> Sequence[Layout] | Replaced:
    """Dimensions are merged and split at the borders of their factors, or all elements are moved."""
    [dims] = padding.result_dims(op)
    shape = op.result.type.shape
    layout = padding.layouts[op.operand]
    found = regroup(layout, shape, dims)
    if found is not None:
        return [_still_free(layout, found)]
    target = dense(shape, dims)
    return Replaced([padding.reshape(op.operand, target)], [target])


def _still_free(before: Layout, after: Layout) -> Layout:
    """Keeps the axes free that a reshape leaves alone, as it does all but dimensions of size one."""
    old = [axis for axis in before if axis.factors]
    new = [axis for axis in after if axis.factors]
    if [axis.factors for axis in old] != [axis.factors for axis in new]:
        return after
    rest = iter(old)
    return tuple(next(rest) if axis.factors else axis for axis in after)


@on(stablehlo.BitcastConvertOp)
def bitcast_convert(op: Any, padding: Padding) -> Sequence[Layout]:
    """Elements of another width make or take a last dimension, which has no padding."""
    layout = padding.layouts[op.operand]
    [dims] = padding.result_dims(op)
    shared = min(len(layout), len(dims))
    if any(axis.is_padded for axis in layout[shared:]):
        raise Refusal("the dimension that becomes part of its elements varies")
    return [(*layout[:shared], *dense(op.result.type.shape[shared:], dims[shared:]))]


# What gets a neutral element.


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
    lhs, rhs = _meet_along([*batches, *contracted], op.lhs, op.rhs, padding)
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


def _meet_along(pairs: Iterable[tuple[int, int]], lhs: Tensor, rhs: Tensor, padding: Padding) -> tuple[Tensor, Tensor]:
    """Brings dimensions of two values to one layout, pair by pair."""
    left, right = list(padding.layouts[lhs]), list(padding.layouts[rhs])
    for one, other in pairs:
        axis = join((left[one], right[other]))
        left[one] = axis if not left[one].is_free else left[one]
        right[other] = axis if not right[other].is_free else right[other]
        # A free one takes the other's factors, which needs no move.
        left[one], right[other] = Axis(axis.factors, left[one].is_free), Axis(axis.factors, right[other].is_free)
    moved = padding.move(lhs, tuple(left)), padding.move(rhs, tuple(right))
    return padding.refactored(moved[0], tuple(left)), padding.refactored(moved[1], tuple(right))


@on(stablehlo.ReduceWindowOp)
def reduce_window(op: Any, padding: Padding) -> Sequence[Layout]:
    """The padding gets the initial value, and windows must begin and end at the same elements at all sizes."""
    count = len(op.results)
    values, layout = padding.meet(list(op.operands)[:count])
    [dims, *_] = padding.result_dims(op)
    windows = _windows(op, padding, len(layout))
    changed = [at for at, window in enumerate(windows) if not window.is_trivial]
    axes = list(layout)
    for at in changed:
        values = [padding.contiguous(value, at) for value in values]
        axis = padding.layouts[values[0]][at]
        axes[at] = windows[at].result(axis, Factor(op.results[0].type.shape[at], dims[at]), padding)
    for place, (value, start) in enumerate(zip(values, list(op.operands)[count:], strict=True)):
        op.operation.operands[place] = padding.masked(value, changed, start)
    return [tuple(axes)] * count


class _Window:
    """How windows lie along one dimension; the numbers may depend on the sizes."""

    def __init__(self, length: SizeExpr, stride: SizeExpr, low: SizeExpr, high: SizeExpr, *dilations: SizeExpr) -> None:
        self.length, self.stride, self.low, self.high = length, stride, low, high
        self.base_dilation, self.dilation = dilations

    @property
    def is_trivial(self) -> bool:
        """Whether each window is one element, in its place."""
        numbers = (self.length, self.stride, self.base_dilation, self.dilation)
        return all(number == _ONE for number in numbers) and self.low == _ZERO and self.high == _ZERO

    def result(self, axis: Axis, result: Factor, padding: Padding) -> Axis:
        """Returns the axis of the windows along one that is contiguous.

        Raises:
            Refusal: Windows would see other elements at the bound than at another size.
        """
        fixed = (self.stride.constant, self.base_dilation.constant, self.dilation.constant)
        stride, base_dilation, dilation = (number or 0 for number in fixed)
        if None in fixed:
            raise Refusal("its strides or dilations vary")
        length = (self.length - 1) * dilation + 1
        extent = (axis.size - 1) * base_dilation + 1
        size = (extent + self.low + self.high - length) // stride + 1
        if size != result.size:
            raise Refusal(f"its dimension is {result.size} at the sizes tried, and {size} by its rule")
        if base_dilation != 1 and not padding.is_never_negative(axis.size - 1):
            raise Refusal("it puts holes into a dimension that may be empty")
        last = (size - 1) * stride
        # Either the first element that a window sees is in the same place, or windows begin before all elements.
        begins = self.low.constant is not None or padding.is_never_negative(self.low - last)
        ends = (length - self.low).constant is not None or padding.is_never_negative(length - self.low - extent)
        if not begins or not ends:
            raise Refusal("its windows lie in other places at other sizes")
        if self.length.constant is None and dilation != 1:
            raise Refusal("its window varies, and is dilated")
        return Axis.of(result)


def _windows(op: Any, padding: Padding, rank: int) -> list[_Window]:
    def numbers(name: str) -> list[SizeExpr]:
        return padding.integers(op, name) if name in op.attributes else [_ONE] * rank

    edges = padding.integers(op, "padding") if "padding" in op.attributes else [_ZERO] * (2 * rank)
    return [
        _Window(*each)
        for each in zip(
            numbers("window_dimensions"),
            numbers("window_strides"),
            edges[::2],
            edges[1::2],
            numbers("base_dilations"),
            numbers("window_dilations"),
            strict=True,
        )
    ]


@on(stablehlo.ConvolutionOp)
def convolution(op: Any, padding: Padding) -> Sequence[Layout]:
    """The padding of spatial and contracted dimensions is zero."""
    numbers = stablehlo.ConvDimensionNumbers(op.dimension_numbers)
    spatial = list(numbers.input_spatial_dimensions)
    groups = op.feature_group_count.value, op.batch_group_count.value
    if groups[1] != 1 and padding.layouts[op.lhs][numbers.input_batch_dimension].is_padded:
        raise Refusal("its batch varies, and is divided into groups")
    features = (numbers.input_feature_dimension, numbers.kernel_input_feature_dimension)
    if groups[0] != 1 and padding.layouts[op.lhs][features[0]].is_padded:
        raise Refusal("its channels vary, and are divided into groups")
    lhs, rhs = op.lhs, op.rhs
    for at in spatial:
        lhs = padding.contiguous(lhs, at)
    if groups == (1, 1):
        lhs, rhs = _meet_along([features], lhs, rhs, padding)
    kernel = padding.layouts[rhs]
    if any(kernel[at].is_padded for at in numbers.kernel_spatial_dimensions):
        raise Refusal("its kernel varies in height or width")
    layout = padding.layouts[lhs]
    [dims] = padding.result_dims(op)
    shape = op.result.type.shape
    axes = list(dense(shape, dims))
    axes[numbers.output_batch_dimension] = layout[numbers.input_batch_dimension].concrete
    axes[numbers.output_feature_dimension] = kernel[numbers.kernel_output_feature_dimension].concrete
    for number, (source, target) in enumerate(zip(spatial, numbers.output_spatial_dimensions, strict=True)):
        length = SizeExpr.of(rhs.type.shape[numbers.kernel_spatial_dimensions[number]])
        window = _convolution_window(op, padding, number, len(spatial), length)
        axes[target] = window.result(layout[source], Factor(shape[target], dims[target]), padding)
    op.operation.operands[0] = padding.masked(lhs, [*spatial, features[0]], padding.zero(lhs))
    op.operation.operands[1] = padding.masked(rhs, [features[1]], padding.zero(rhs))
    return [tuple(axes)]


def _convolution_window(op: Any, padding: Padding, number: int, rank: int, length: SizeExpr) -> _Window:
    def own(name: str) -> SizeExpr:
        return padding.integers(op, name)[number] if name in op.attributes else _ONE

    edges = padding.integers(op, "padding") if "padding" in op.attributes else [_ZERO] * (2 * rank)
    low, high = edges[2 * number : 2 * number + 2]
    return _Window(length, own("window_strides"), low, high, own("lhs_dilation"), own("rhs_dilation"))


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
            if each.name != "stablehlo.return":
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


# What moves padding.


@on(stablehlo.SliceOp)
def slice_op(op: Any, padding: Padding) -> Sequence[Layout] | Replaced:
    """A start that varies becomes a dynamic slice; an end that varies is the end at the bound."""
    [dims] = padding.result_dims(op)
    shape = op.result.type.shape
    starts, limits = padding.integers(op, "start_indices"), padding.integers(op, "limit_indices")
    strides = [int(stride) for stride in op.strides]
    value = op.operand
    axes = list(padding.layouts[value])
    for at, axis in enumerate(padding.layouts[value]):
        whole = starts[at] == _ZERO and limits[at] == axis.size and strides[at] == 1
        if whole:
            continue
        if not (padding.is_never_negative(starts[at]) and padding.is_never_negative(axis.size - limits[at])):
            raise Refusal(f"it takes {starts[at]}:{limits[at]} of a dimension of {axis.size}: not at all sizes allowed")
        value = padding.contiguous(value, at)
        axes[at] = Axis(dense([shape[at]], [dims[at]])[0].factors, axis.is_free)
    if all(start.constant is not None for start in starts):
        op.operation.operands[0] = value
        return [tuple(axes)]
    return Replaced([_dynamic_slice(value, starts, shape, strides, padding)], [tuple(axes)])


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
    if sum(sizes, _ZERO) != dims[dimension]:
        raise Refusal(f"its dimension is {dims[dimension]} at the sizes tried, and {sum(sizes, _ZERO)} by its rule")
    total: Tensor = stablehlo.concatenate(values, dimension)
    first = next((place for place, size in enumerate(sizes) if size.constant is None), len(sizes))
    for place in range(first + 1, len(values)):
        offset = padding.values.number(sum(sizes[:place], _ZERO))
        zero = padding.values.number(_ZERO)
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
        if low == high == interior == _ZERO:
            continue
        if low.constant is None or interior.constant is None:
            raise Refusal("where its first element goes varies")
        if interior != _ZERO and not padding.is_never_negative(axis.size - 1):
            raise Refusal("it puts holes into a dimension that may be empty")
        size = (axis.size - 1) * (interior + 1) + 1 + low + high
        if size != dims[at]:
            raise Refusal(f"its dimension is {dims[at]} at the sizes tried, and {size} by its rule")
        value = padding.contiguous(value, at)
        axes[at] = dense([op.result.type.shape[at]], [dims[at]])[0]
        if high.constant is None or high.constant > 0 or interior != _ZERO:
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
        starts = [layout[at].size * -1 + shape[at] if at in moved else _ZERO for at in range(len(shape))]
        reversed_ = _dynamic_slice(reversed_, starts, shape, [1] * len(shape), padding)
    return Replaced([reversed_], [layout])


# What goes by indices.


@on(stablehlo.GatherOp)
def gather(op: Any, padding: Padding) -> Sequence[Layout]:
    """Indices are clamped to the true dimensions."""
    numbers = stablehlo.GatherDimensionNumbers(op.dimension_numbers)
    sizes = padding.integers(op, "slice_sizes")
    value, indices = op.operand, op.start_indices
    vector = numbers.index_vector_dim
    batched = list(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    value, indices = _meet_along(batched, value, indices, padding)
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
    numbers = [reshape(_number(limit, type_.element_type, padding), [1]) for limit in limits]
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
def dynamic_update_slice(op: Any, padding: Padding) -> Sequence[Layout]:
    """The start is limited by the true dimension."""
    value, update = op.operands[0], op.operands[1]
    pairs = []
    for at, (axis, new) in enumerate(zip(padding.layouts[value], padding.layouts[update], strict=True)):
        if axis.size == new.size:
            pairs.append((at, at))
            continue
        if new.is_padded:
            raise Refusal(f"it writes {new.size} into a dimension of {axis.size}")
        value = padding.contiguous(value, at)
        op.operation.operands[2 + at] = _limited(op.operands[2 + at], axis.size - new.size, padding)
    value, update = _meet_along(pairs, value, update, padding)
    op.operation.operands[0], op.operation.operands[1] = value, update
    return [tuple(axis.concrete for axis in padding.layouts[value])]


def _limited(start: Tensor, limit: SizeExpr, padding: Padding) -> Tensor:
    if limit.constant is not None:
        return start
    limited = stablehlo.minimum(start, _number(limit, start.type.element_type, padding))
    padding.layouts[limited] = ()
    return limited


# What holds other operations.


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


# What works on the last dimensions, and on each of the others alone.


@on(stablehlo.CholeskyOp, stablehlo.TriangularSolveOp, stablehlo.FftOp)
def batched(op: Any, padding: Padding) -> Sequence[Layout]:
    """The leading dimensions are batches; the others must not vary."""
    own = len(op.fft_length) if op.name == "stablehlo.fft" else 2
    values = list(op.operands)
    if any(axis.is_padded for value in values for axis in padding.layouts[value][-own:]):
        raise Refusal("the dimensions that it works on vary")
    batch = [join(axes) for axes in zip(*(padding.layouts[value][:-own] for value in values), strict=True)]
    for place, value in enumerate(values):
        op.operation.operands[place] = padding.move(value, (*batch, *padding.layouts[value][-own:]))
    [dims] = padding.result_dims(op)
    shape = op.results[0].type.shape
    return [(*(axis.concrete for axis in batch), *dense(shape[-own:], dims[-own:]))]
