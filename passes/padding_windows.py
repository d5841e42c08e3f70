"""Rules of `pad-dynamic` for pooling and convolutions: padding gets a neutral element, and windows must not move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.axes import Axis, Factor, Layout, dense
from tpuc.passes.padding import ONE, ZERO, Padding, Refusal
from tpuc.passes.padding_rules import on
from tpuc.runtime.sizes import SizeExpr


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
        return all(number == ONE for number in numbers) and self.low == ZERO and self.high == ZERO

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
        return padding.integers(op, name) if name in op.attributes else [ONE] * rank

    edges = padding.integers(op, "padding") if "padding" in op.attributes else [ZERO] * (2 * rank)
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
        lhs, rhs = padding.meet_along([features], lhs, rhs)
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
        return padding.integers(op, name)[number] if name in op.attributes else ONE

    edges = padding.integers(op, "padding") if "padding" in op.attributes else [ZERO] * (2 * rank)
    low, high = edges[2 * number : 2 * number + 2]
    return _Window(length, own("window_strides"), low, high, own("lhs_dilation"), own("rhs_dilation"))
