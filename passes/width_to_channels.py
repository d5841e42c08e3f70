"""width-to-channels: where channels are few, neighbouring columns become channels of one column.

The chip keeps channels in lanes, 128 at a time, and multiplies as many: 64 channels leave half of both unused, in
every operation between two convolutions. With f columns as one, in a tensor that is f times narrower and has f times
as many channels, the lanes are full. The kernels grow by f x f and are mostly zeros, which the matrix unit multiplied
anyway.

Before:

    %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
           window = {pad = [[1, 1], [1, 1]]}
           : (tensor<8x64x56x56xf32>, tensor<64x64x3x3xf32>) -> tensor<8x64x56x56xf32>
    %1 = stablehlo.tanh %0 : tensor<8x64x56x56xf32>
    %2 = stablehlo.convolution(%1, %v) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
           window = {stride = [2, 2]} : (tensor<8x64x56x56xf32>, tensor<128x64x1x1xf32>) -> tensor<8x128x28x28xf32>

After:

    (the reshapes and transposes that move columns, of %x and of the kernels, are left out)
    %0 = stablehlo.convolution(%x2, %w2) ..., window = {pad = [[1, 1], [1, 1]]}
           : (tensor<8x128x56x28xf32>, tensor<128x128x3x3xf32>) -> tensor<8x128x56x28xf32>
    %1 = stablehlo.tanh %0 : tensor<8x128x56x28xf32>
    %2 = stablehlo.convolution(%1, %v2) ..., window = {stride = [2, 1]}
           : (tensor<8x128x56x28xf32>, tensor<128x128x1x1xf32>) -> tensor<8x128x28x28xf32>

What is taken together is a stage: tensors of one width, with the convolutions and elementwise operations that lead
from one to another. A convolution that leads into it or out of it, with a stride, packs or unpacks for nothing. A
maximum over windows of a convolution that leads into it is taken between channels: the convolution computes the
columns of each window's place as channels of their own.

A stage is compiled alone for the target, before and after, and is rewritten where that costs less. A zero of a kernel
meets a neighbour's infinity or NaN as NaN; programs of any size, whose padding may hold either, are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.base import Pass, PassContext
from tpuc.passes.main import Main
from tpuc.passes.rewrite import Tensor, defining_op, erase_dead
from tpuc.passes.tensors import (
    ELEMENTWISE,
    broadcast,
    has_one_use,
    pad,
    producer,
    rebuild,
    reduced_by,
    reshape,
    splat_constant,
    splat_element,
    tensor_type,
    transpose,
    window_padding,
    window_strides,
)
from tpuc.passes.trial import Trials
from tpuc.passes.weight_only import Weights

#: The lanes of the vector unit, and the rows and columns of the smallest matrix unit.
_LANES = 128


@dataclass(frozen=True, kw_only=True)
class WidthToChannels(Pass):
    """Takes neighbouring columns as channels in stages of few channels, where that pays.

    Attributes:
        always: Whether to take it for granted that it pays, and to ask nobody.
    """

    always: bool = False
    name: ClassVar[str] = "width-to-channels"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place."""
        main = Main(module)
        if main.arguments_of("size") or not (self.always or context.estimator):
            return {}
        trials = Trials(module, context.estimator) if context.estimator else None
        packed = 0
        for stage in find_stages(main):
            if self.always or (trials is not None and trials.pays(stage.ops(), pack_stages)):
                stage.pack()
                packed += 1
        erase_dead(main.block)
        return {"packed": packed} if packed else {}


def pack_stages(module: ir.Module) -> None:
    """Rewrites every stage of a module."""
    main = Main(module)
    for stage in find_stages(main):
        stage.pack()
    erase_dead(main.block)


def find_stages(main: Main) -> list[Stage]:
    """Finds the stages of a program whose channels are few."""
    known = _Known(main)
    stages: list[Stage] = []
    seen: set[Tensor] = set()
    for op in main.block.operations:
        convolution = known.convolution(op)
        if convolution is None or not convolution.keeps_width or op.results[0] in seen:
            continue
        values = _grow(op.results[0], known, convolution.axes)
        seen.update(values)
        columns = _columns(values, known, convolution.axes)
        if columns is not None:
            stages.append(Stage(known, convolution.axes, values, columns))
    return stages


@dataclass(frozen=True, kw_only=True)
class Axes:
    """Where the channels and the columns of tensors are.

    Attributes:
        feature: The dimension of the channels.
        width: The dimension of the columns, the last spatial one.
    """

    feature: int
    width: int

    def packed(self, shape: Sequence[int], columns: int) -> list[int]:
        """Returns the shape of a tensor that takes columns together."""
        packed = list(shape)
        packed[self.feature] *= columns
        packed[self.width] //= columns
        return packed


@dataclass(frozen=True, kw_only=True)
class _Convolution:
    """A convolution whose columns can be taken together.

    Attributes:
        op: The operation.
        axes: Of its operand and its result.
        kernel: Of its kernel; the channels are those that are summed over.
        stride: Of its window, along the width.
        low: The padding before the first column.
    """

    op: stablehlo.ConvolutionOp
    axes: Axes
    kernel: Axes
    stride: int
    low: int

    @classmethod
    def of(cls, op: stablehlo.ConvolutionOp) -> _Convolution | None:
        """Reads an operation; None if it has groups or dilations, or moves dimensions."""
        numbers = stablehlo.ConvDimensionNumbers(op.dimension_numbers)
        spatial = len(numbers.input_spatial_dimensions)
        if (
            spatial == 0
            or list(numbers.input_spatial_dimensions) != list(numbers.output_spatial_dimensions)
            or numbers.input_feature_dimension != numbers.output_feature_dimension
            or op.feature_group_count.value * op.batch_group_count.value != 1
            or any(dilation != 1 for dilation in (*(op.lhs_dilation or []), *(op.rhs_dilation or [])))
            or any(op.window_reversal or [])
        ):
            return None
        return cls(
            op=op,
            axes=Axes(feature=numbers.input_feature_dimension, width=numbers.input_spatial_dimensions[-1]),
            kernel=Axes(feature=numbers.kernel_input_feature_dimension, width=numbers.kernel_spatial_dimensions[-1]),
            stride=window_strides(op, spatial)[-1],
            low=int(window_padding(op, spatial)[-1, 0]),
        )

    @property
    def keeps_width(self) -> bool:
        """Whether the operand and the result can take the same number of columns together."""
        before, after = self.op.lhs.type.shape, self.op.result.type.shape
        channels = (before[self.axes.feature], after[self.axes.feature])
        fills = all(_LANES % each == 0 or each % _LANES == 0 for each in channels)
        return fills and self.stride == 1 and before[self.axes.width] == after[self.axes.width]

    def packed(self, lhs: Tensor, columns: int, places: Sequence[int], step: int, width: int) -> Tensor:
        """Builds the convolution between tensors that take columns together.

        Args:
            lhs: The operand, packed.
            columns: How many of its columns are one.
            places: Which columns of the result are one: `step * j + place`, for the j-th.
            step: How many columns of the result there are for one of the packed.
            width: How many packed columns the result has.
        """
        # The result's column p reads the operand's s p + k - low, which is column (s p + k - low) // columns of the
        # packed one, and among its channels the (s p + k - low) % columns-th part.
        size = self.op.rhs.type.shape[self.kernel.width]
        starts = [self.stride * place - self.low for place in places]
        first = min(starts) // columns
        window = (max(starts) + size - 1) // columns - first + 1
        kernels = []
        for start in starts:
            before = start - first * columns
            low, high = [0] * self.op.rhs.type.rank, [0] * self.op.rhs.type.rank
            low[self.kernel.width], high[self.kernel.width] = before, window * columns - before - size
            kernels.append(_take_columns(pad(self.op.rhs, low, high), self.kernel, columns))
        numbers = stablehlo.ConvDimensionNumbers(self.op.dimension_numbers)
        kernel = _concatenate(kernels, numbers.kernel_output_feature_dimension)
        stride = self.stride * step // columns
        shape = list(self.op.result.type.shape)
        shape[self.axes.feature] *= len(places)
        shape[self.axes.width] = width
        spatial = len(numbers.input_spatial_dimensions)
        strides, padding = window_strides(self.op, spatial), window_padding(self.op, spatial)
        strides[-1] = stride
        padding[-1] = -first, (width - 1) * stride + window + first - lhs.type.shape[self.axes.width]
        return rebuild(
            self.op,
            [lhs, kernel],
            tensor_type(shape, self.op.result.type.element_type),
            window_strides=ir.DenseI64ArrayAttr.get(strides),
            padding=ir.DenseIntElementsAttr.get(padding),
        )


@dataclass(frozen=True, kw_only=True)
class _Pool:
    """A maximum over windows of a convolution, scaled, shifted and the like in between.

    Attributes:
        op: The reduce_window.
        chain: The elementwise operations in between, in order.
        convolution: The convolution.
        size: Of the window, along the width.
        stride: Of the window, along the width.
        low: The padding before the first column.
    """

    op: stablehlo.ReduceWindowOp
    chain: tuple[ir.OpView, ...]
    convolution: _Convolution
    size: int
    stride: int
    low: int


class _Known:
    """What the operations of a program are to this pass."""

    def __init__(self, main: Main) -> None:
        weights = Weights(main)
        self.main = main
        self._own = {op.results[0] for op in main.block.operations if len(op.results)}
        self._convolutions = {
            op.result: convolution
            for op in main.block.operations
            if isinstance(op, stablehlo.ConvolutionOp)
            and weights.is_weight_only(op.rhs)
            and (convolution := _Convolution.of(op))
        }

    def convolution(self, op: ir.OpView | None) -> _Convolution | None:
        """Returns what is known of a convolution with a weight; None for all else."""
        return self._convolutions.get(op.result) if isinstance(op, stablehlo.ConvolutionOp) else None

    def is_elementwise(self, op: ir.OpView | None) -> bool:
        """Whether an operation of the program itself, not of a loop in it, is elementwise."""
        return isinstance(op, ELEMENTWISE) and op.results[0] in self._own

    def pool(self, op: ir.OpView | None, axes: Axes) -> _Pool | None:
        """Reads a maximum over windows of nothing but a convolution."""
        if not isinstance(op, stablehlo.ReduceWindowOp) or reduced_by(op) is not stablehlo.MaxOp:
            return None
        rank = op.operands[0].type.rank
        sizes, strides = list(op.window_dimensions), window_strides(op, rank)
        dilations = [*(op.base_dilations or []), *(op.window_dilations or [])]
        if sizes[axes.feature] != 1 or sizes[axes.width] == 1 or any(dilation != 1 for dilation in dilations):
            return None
        if splat_element(op.operands[1]) is None:
            return None
        chain: list[ir.OpView] = []
        value = op.operands[0]
        while has_one_use(value):
            owner = defining_op(value)
            convolution = self.convolution(owner)
            if convolution is not None:
                low = int(window_padding(op, rank)[axes.width, 0])
                return (
                    _Pool(
                        op=op,
                        chain=tuple(reversed(chain)),
                        convolution=convolution,
                        size=sizes[axes.width],
                        stride=strides[axes.width],
                        low=low,
                    )
                    if convolution.axes == axes
                    else None
                )
            if owner is None or not self.is_elementwise(owner):
                return None
            operands = [each for each in owner.operands if is_packed(each, axes)]
            if len(operands) != 1:
                return None
            chain.append(owner)
            value = operands[0]
        return None


def is_packed(operand: Tensor, axes: Axes) -> bool:
    """Whether an operand of an elementwise operation has columns that differ, and so would have to be packed."""
    if operand.type.rank == 0 or splat_element(operand) is not None:
        return False
    source = producer(operand, stablehlo.BroadcastInDimOp)
    return source is None or any(
        dimension == axes.width and size != 1
        for dimension, size in zip(source.broadcast_dimensions, source.operand.type.shape, strict=True)
    )


def _grow(seed: Tensor, known: _Known, axes: Axes) -> dict[Tensor, None]:
    """Finds all tensors that take columns together if this one does."""
    values: dict[Tensor, None] = {}
    todo = [seed]
    while todo:
        value = todo.pop()
        if value in values:
            continue
        values[value] = None
        owner = defining_op(value)
        if known.is_elementwise(owner):
            assert owner is not None
            todo.extend(each for each in owner.operands if is_packed(each, axes))
        elif (convolution := known.convolution(owner)) and convolution.keeps_width and convolution.axes == axes:
            todo.append(convolution.op.lhs)
        for use in value.uses:
            reader = use.owner.opview
            if known.is_elementwise(reader):
                todo.extend((reader.results[0], *(each for each in reader.operands if is_packed(each, axes))))
            elif (convolution := known.convolution(reader)) and convolution.keeps_width and convolution.axes == axes:
                todo.append(convolution.op.result)
    return values


def _columns(values: Mapping[Tensor, None], known: _Known, axes: Axes) -> int | None:
    """How many columns fill the lanes with the fewest channels of a convolution; None if that is not to be had."""
    shapes = [
        tensor.type.shape
        for value in values
        if (convolution := known.convolution(defining_op(value)))
        for tensor in (convolution.op.lhs, value)
        if tensor in values
    ]
    fewest = min(shape[axes.feature] for shape in shapes)
    columns = _LANES // fewest
    fits = columns > 1 and columns * fewest == _LANES and shapes[0][axes.width] % columns == 0
    return columns if fits and len(shapes) > 2 else None


class Stage:
    """Tensors of one width, whose columns are to be taken together.

    Attributes:
        columns: How many columns become one.
    """

    def __init__(self, known: _Known, axes: Axes, values: Mapping[Tensor, None], columns: int) -> None:
        self.columns = columns
        self._known = known
        self._axes = axes
        self._values = values
        self._packed: dict[Tensor, Tensor] = {}

    def ops(self) -> list[ir.OpView]:
        """Returns the operations that the rewrite changes."""
        found: dict[Tensor, ir.OpView] = {}
        for value in self._values:
            owner = defining_op(value)
            pool = self._known.pool(owner, self._axes)
            inside = [*pool.chain, pool.convolution.op, pool.op] if pool else []
            if owner is not None and (self._known.is_elementwise(owner) or self._known.convolution(owner)):
                inside.append(owner)
            inside.extend(use.owner.opview for use in value.uses if self._leads_out(use.owner.opview, value))
            found.update((op.results[0], op) for op in inside)
        # What is broadcast belongs to what reads it: as an argument it would be as large as the rest.
        for op in list(found.values()):
            for operand in op.operands:
                source = producer(operand, stablehlo.BroadcastInDimOp) or producer(operand, stablehlo.ConstantOp)
                if source is not None:
                    found[operand] = source
        return list(found.values())

    def pack(self) -> None:
        """Rewrites the stage; the operations that it replaces are left behind, dead."""
        block = self._known.main.block
        with self._known.main.op.location, ir.InsertionPoint.at_block_begin(block):
            for argument in block.arguments:
                if argument in self._values:
                    self._packed[argument] = _take_columns(argument, self._axes, self.columns)
        for op in list(block.operations):
            with op.location:
                if len(op.results) and op.results[0] in self._values:
                    self._pack_value(op)
                elif any(self._leads_out(op, operand) for operand in op.operands if operand in self._values):
                    self._unpack(op)

    def _pack_value(self, op: ir.OpView) -> None:
        value = op.results[0]
        outside = [use for use in value.uses if not self._is_inside(use.owner.opview, value)]
        with ir.InsertionPoint(op):
            packed = self._rewrite(op)
            if packed is not None and outside:
                unpacked = _give_columns(packed, self._axes, self.columns)
                for use in outside:
                    use.owner.operands[use.operand_number] = unpacked
        if packed is None:
            with ir.InsertionPoint.after(op):
                packed = _take_columns(value, self._axes, self.columns)
        self._packed[value] = packed

    def _unpack(self, op: ir.OpView) -> None:
        convolution = self._known.convolution(op)
        assert convolution is not None, "nothing else leads out"
        with ir.InsertionPoint(op):
            lhs, width = self._packed[convolution.op.lhs], op.results[0].type.shape[self._axes.width]
            op.results[0].replace_all_uses_with(convolution.packed(lhs, self.columns, [0], 1, width))

    def _leads_out(self, op: ir.OpView, value: Tensor) -> bool:
        """Whether an operation is a convolution of a tensor of the stage that unpacks its columns by its stride."""
        convolution = self._known.convolution(op)
        return (
            convolution is not None
            and convolution.axes == self._axes
            and convolution.op.lhs == value
            and convolution.op.result not in self._values
            and convolution.stride % self.columns == 0
        )

    def _is_inside(self, op: ir.OpView, value: Tensor) -> bool:
        return self._leads_out(op, value) or (len(op.results) == 1 and op.results[0] in self._values)

    def _rewrite(self, op: ir.OpView) -> Tensor | None:
        """Builds the packed form of an operation's result; None if it is to be packed as it is."""
        shape = self._axes.packed(op.results[0].type.shape, self.columns)
        if self._known.is_elementwise(op):
            return self._elementwise(op, shape, self.columns, self._packed)
        convolution = self._known.convolution(op)
        if convolution is not None and convolution.axes == self._axes:
            is_inside = convolution.op.lhs in self._values
            lhs = self._packed[convolution.op.lhs] if is_inside else convolution.op.lhs
            columns = self.columns if is_inside else 1
            places = range(self.columns)
            return convolution.packed(lhs, columns, places, self.columns, shape[self._axes.width])
        pool = self._known.pool(op, self._axes)
        return self._pool(pool, shape) if pool is not None else None

    def _elementwise(self, op: ir.OpView, shape: Sequence[int], copies: int, packed: Mapping[Tensor, Tensor]) -> Tensor:
        """Builds an elementwise operation on packed tensors; `copies` says how often each channel is there."""
        operands = [
            packed[operand] if operand in packed else _repeat_channels(operand, self._axes, shape, copies)
            for operand in op.operands
        ]
        return rebuild(op, operands, tensor_type(shape, op.results[0].type.element_type))

    def _pool(self, pool: _Pool, shape: Sequence[int]) -> Tensor:
        """Builds a maximum over windows; over the width it is one of groups of channels, one for a place in windows."""
        axes, convolution = self._axes, pool.convolution
        columns, width = self.columns, shape[axes.width]
        places = [pool.stride * column + k - pool.low for k in range(pool.size) for column in range(columns)]
        value = convolution.packed(convolution.op.lhs, 1, places, pool.stride * columns, width)
        packed: dict[Tensor, Tensor] = {convolution.op.result: value}
        for op in pool.chain:
            chain_shape = list(value.type.shape)
            value = self._elementwise(op, chain_shape, len(places), packed)
            packed = {op.results[0]: value}
        lowest = splat_element(pool.op.operands[1])
        assert lowest is not None
        result: Tensor | None = None
        for k in range(pool.size):
            start, limit = [0] * value.type.rank, list(value.type.shape)
            start[axes.feature] = k * shape[axes.feature]
            limit[axes.feature] = (k + 1) * shape[axes.feature]
            group = stablehlo.slice(value, start, limit, [1] * value.type.rank)
            inside = self._is_inside_window(group, places[k * columns : (k + 1) * columns], pool)
            if inside is not None:
                group = stablehlo.select(inside, group, splat_constant(lowest, group.type))
            result = group if result is None else stablehlo.maximum(result, group)
        assert result is not None
        rank = result.type.rank
        sizes, strides = list(pool.op.window_dimensions), window_strides(pool.op, rank)
        padding = window_padding(pool.op, rank)
        sizes[axes.width] = strides[axes.width] = 1
        padding[axes.width] = 0
        return rebuild(
            pool.op,
            [result, pool.op.operands[1]],
            tensor_type(shape, pool.op.results[0].type.element_type),
            window_dimensions=ir.DenseI64ArrayAttr.get(sizes),
            window_strides=ir.DenseI64ArrayAttr.get(strides),
            padding=ir.DenseIntElementsAttr.get(padding),
        )

    def _is_inside_window(self, group: Tensor, places: Sequence[int], pool: _Pool) -> Tensor | None:
        """Builds which elements of a group are columns of the convolution, not padding; None if all are."""
        axes = self._axes
        step, width = pool.stride * self.columns, group.type.shape[axes.width]
        there = pool.convolution.op.result.type.shape[axes.width]
        if min(places) >= 0 and max(places) + step * (width - 1) < there:
            return None
        i32 = ir.IntegerType.get_signless(32)
        channels = group.type.shape[axes.feature]
        type_ = tensor_type([channels, width], i32)
        own: Any = np.repeat(np.array(places, dtype=np.int32), channels // len(places))
        starts = stablehlo.constant(ir.DenseIntElementsAttr.get(own))
        column = stablehlo.multiply(stablehlo.iota(type_, 1), splat_constant(ir.IntegerAttr.get(i32, step), type_))
        column = stablehlo.add(column, broadcast(starts, type_.shape, [0]))
        checks = [
            stablehlo.compare(
                column,
                splat_constant(ir.IntegerAttr.get(i32, bound), type_),
                stablehlo.ComparisonDirectionAttr.get(direction),
            )
            for bound, direction in ((0, "GE"), (there, "LT"))
        ]
        return broadcast(stablehlo.and_(*checks), group.type.shape, [axes.feature, axes.width])


def _take_columns(value: Tensor, axes: Axes, columns: int) -> Tensor:
    """Builds [.., C, .., W, ..] to [.., f C, .., W / f, ..]: column f j + i is part i of the channels of column j."""
    if columns == 1:
        return value
    shape = list(value.type.shape)
    split = [*shape[: axes.width], shape[axes.width] // columns, columns, *shape[axes.width + 1 :]]
    within = axes.width + 1
    order = [number for number in range(len(split)) if number != within]
    feature = axes.feature if axes.feature < axes.width else axes.feature + 1
    order.insert(order.index(feature), within)
    return reshape(transpose(reshape(value, split), order), axes.packed(shape, columns))


def _give_columns(value: Tensor, axes: Axes, columns: int) -> Tensor:
    """Undoes `_take_columns`."""
    shape = list(value.type.shape)
    split = [*shape[: axes.feature], columns, shape[axes.feature] // columns, *shape[axes.feature + 1 :]]
    order = [number for number in range(len(split)) if number != axes.feature]
    width = axes.width + 1 if axes.width > axes.feature else axes.width
    order.insert(order.index(width) + 1, axes.feature)
    result = list(shape)
    result[axes.feature] //= columns
    result[axes.width] *= columns
    return reshape(transpose(reshape(value, split), order), result)


def _repeat_channels(operand: Tensor, axes: Axes, shape: Sequence[int], copies: int) -> Tensor:
    """Builds an operand whose columns do not differ anew, with each channel `copies` times."""
    if operand.type.rank == 0:
        return operand
    element = splat_element(operand)
    if element is not None:
        return splat_constant(element, tensor_type(shape, operand.type.element_type))
    source = producer(operand, stablehlo.BroadcastInDimOp)
    assert source is not None, "is_packed says which operands these are"
    dimensions = list(source.broadcast_dimensions)
    vector = source.operand
    if axes.feature in dimensions and vector.type.shape[dimensions.index(axes.feature)] != 1:
        vector = _concatenate([vector] * copies, dimensions.index(axes.feature))
    return broadcast(vector, shape, dimensions)


def _concatenate(values: Sequence[Tensor], dimension: int) -> Tensor:
    return values[0] if len(values) == 1 else stablehlo.concatenate(list(values), dimension)
