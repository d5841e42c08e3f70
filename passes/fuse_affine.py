"""fuse-affine: what scales the channels of a product, or shifts them, goes into its weights and one bias.

A batch norm in inference mode, a layer's learned scale, an image's normalization: each multiplies every channel by a
number that weights alone decide, and adds another. The product's weights can be multiplied before the program runs.

Before:

    %0 = stablehlo.convolution(%x, %w) ... : (tensor<1x3x8x8xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x8x8xf32>
    %1 = stablehlo.broadcast_in_dim %scale, dims = [1] : (tensor<4xf32>) -> tensor<1x4x8x8xf32>
    %2 = stablehlo.multiply %0, %1 : tensor<1x4x8x8xf32>
    %3 = stablehlo.broadcast_in_dim %shift, dims = [1] : (tensor<4xf32>) -> tensor<1x4x8x8xf32>
    %4 = stablehlo.add %2, %3 : tensor<1x4x8x8xf32>

After:

    %0 = stablehlo.broadcast_in_dim %scale, dims = [0] : (tensor<4xf32>) -> tensor<4x3x1x1xf32>
    %1 = stablehlo.multiply %w, %0 : tensor<4x3x1x1xf32>
    %2 = stablehlo.convolution(%x, %1) ... : (tensor<1x3x8x8xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x8x8xf32>
    %3 = stablehlo.broadcast_in_dim %shift, dims = [1] : (tensor<4xf32>) -> tensor<1x4x8x8xf32>
    %4 = stablehlo.add %2, %3 : tensor<1x4x8x8xf32>

Scales and shifts are folded in any number and order, through conversions to wider types; a scale also from before the
product, where it is of the channels that are summed over. Weights that something else reads stay as they are: there
would be two of them. Each weight is rounded once more in its own type, where each result was rounded before.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.base import Pass, PassContext
from tpuc.passes.main import Main
from tpuc.passes.rewrite import Tensor, defining_op, erase_dead
from tpuc.passes.tensors import (
    broadcast,
    convert,
    converts_exactly,
    has_one_use,
    producer,
    reshape,
    slice_to,
    splat_constant,
    splat_element,
)
from tpuc.passes.weight_only import Weights

#: The range of f16 is so narrow that a scaled weight may leave it where no result did.
_TYPES = ("bf16", "f32", "f64")
_STEPS = (stablehlo.AddOp, stablehlo.SubtractOp, stablehlo.MulOp, stablehlo.DivOp)


@dataclass(frozen=True, kw_only=True)
class FuseAffine(Pass):
    """Folds what scales and shifts the channels of a product into its weights and one bias."""

    name: ClassVar[str] = "fuse-affine"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place."""
        main = Main(module)
        weights = Weights(main)
        folded = {"after": 0, "before": 0}
        for op in list(main.block.operations):
            product = _Product.of(op, weights)
            if product is None:
                continue
            with op.location:
                folded["before"] += _fold_before(product, weights)
                folded["after"] += _fold_after(product, weights)
        erase_dead(main.block)
        return {name: count for name, count in folded.items() if count}


@dataclass(frozen=True, kw_only=True)
class _Product:
    """A product of an activation and a weight.

    Attributes:
        op: The convolution or dot_general.
        weight: Which operand is the weight.
        results: The weight's dimension, by the dimension of the result that it becomes.
        summed: The weight's dimension, by the dimension of the other operand that it is multiplied with and summed.
    """

    op: ir.OpView
    weight: int
    results: Mapping[int, int]
    summed: Mapping[int, int]

    @classmethod
    def of(cls, op: ir.OpView, weights: Weights) -> _Product | None:
        """Reads an operation; None if it is not a product with a weight of its own."""
        found: _Product | None = None
        if isinstance(op, stablehlo.ConvolutionOp):
            found = _of_convolution(op)
        elif isinstance(op, stablehlo.DotGeneralOp):
            found = _of_dot(op, weights)
        if found is None or str(found.value.type.element_type) not in _TYPES:
            return None
        return found if weights.is_weight_only(found.value) and _is_only_reader(found.value) else None

    @property
    def value(self) -> Tensor:
        """The weight."""
        return cast(Tensor, self.op.operands[self.weight])

    def scale(self, vector: Tensor, dimension: int) -> None:
        """Multiplies the weight along one of its dimensions by a vector, at the current location."""
        with ir.InsertionPoint(self.op):
            narrow = self.value.type.element_type
            wide = convert(self.value, vector.type.element_type)
            scaled = stablehlo.multiply(wide, broadcast(vector, wide.type.shape, [dimension]))
            self.op.operands[self.weight] = convert(scaled, narrow)


def _of_convolution(op: stablehlo.ConvolutionOp) -> _Product | None:
    numbers = stablehlo.ConvDimensionNumbers(op.dimension_numbers)
    if op.batch_group_count.value != 1:
        return None
    summed = {numbers.input_feature_dimension: numbers.kernel_input_feature_dimension}
    return _Product(
        op=op,
        weight=1,
        results={numbers.output_feature_dimension: numbers.kernel_output_feature_dimension},
        summed=summed if op.feature_group_count.value == 1 else {},
    )


def _of_dot(op: stablehlo.DotGeneralOp, weights: Weights) -> _Product | None:
    numbers = stablehlo.DotDimensionNumbers(op.dot_dimension_numbers)
    batching = (list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions))
    contracting = (list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions))
    free = [
        [each for each in range(op.operands[side].type.rank) if each not in (*batching[side], *contracting[side])]
        for side in (0, 1)
    ]
    weight = 1 if weights.is_weight_only(op.rhs) else 0
    first = len(batching[0]) + (len(free[0]) if weight == 1 else 0)
    return _Product(
        op=op,
        weight=weight,
        results={first + number: dimension for number, dimension in enumerate(free[weight])},
        summed=dict(zip(contracting[1 - weight], contracting[weight], strict=True)),
    )


def _is_only_reader(weight: Tensor) -> bool:
    """Whether what a value is made of is read for nothing else."""
    todo = [weight]
    while todo:
        value = todo.pop()
        op = defining_op(value)
        if op is not None and not op.operands:
            continue
        if not has_one_use(value):
            return False
        if op is not None:
            todo.extend(op.operands)
    return True


def _fold_before(product: _Product, weights: Weights) -> int:
    """Folds the scales of the other operand's channels."""
    folded = 0
    side = 1 - product.weight
    while has_one_use(product.op.operands[side]):
        step = _step(defining_op(product.op.operands[side]), product.summed, weights)
        if step is None or not step.scales:
            break
        with ir.InsertionPoint(product.op):
            product.scale(step.factor(), product.summed[step.dimension])
        product.op.operands[side] = step.rest
        folded += 1
    return folded


def _fold_after(product: _Product, weights: Weights) -> int:
    """Folds what scales and shifts the channels of the result, if anything scales them."""
    steps = _steps_after(product, weights)
    if not any(step.scales for step in steps):
        return 0
    dimension, last = steps[0].dimension, steps[-1].op
    # There all vectors are known. What stands between is on the way to be dead.
    product.op.operation.move_before(last.operation)
    scale: Tensor | None = None
    shift: Tensor | None = None
    with ir.InsertionPoint(product.op):
        for step in steps:
            if step.scales:
                factor = step.factor()
                scale = factor if scale is None else stablehlo.multiply(scale, factor)
                shift = None if shift is None else stablehlo.multiply(shift, factor)
            else:
                term = step.term()
                shift = term if shift is None else stablehlo.add(shift, term)
        assert scale is not None, "one step scales"
        product.scale(scale, product.results[dimension])
    result = last.results[0]
    type_ = result.type
    with ir.InsertionPoint(last):
        value = convert(product.op.results[0], type_.element_type)
        if shift is not None:
            value = stablehlo.add(value, broadcast(convert(shift, type_.element_type), type_.shape, [dimension]))
    result.replace_all_uses_with(value)
    return 1


@dataclass(frozen=True, kw_only=True)
class _Step:
    """An operation that scales the channels of a tensor, or shifts them.

    Attributes:
        op: The operation.
        rest: The tensor.
        other: What it is combined with: the same shape, but no two numbers in one channel differ.
        dimension: The dimension that the channels are.
    """

    op: ir.OpView
    rest: Tensor
    other: Tensor
    dimension: int

    @property
    def scales(self) -> bool:
        """Whether it scales; else it shifts."""
        return isinstance(self.op, (stablehlo.MulOp, stablehlo.DivOp))

    def factor(self) -> Tensor:
        """Builds what the channels are multiplied with, [channels], in f32 or f64."""
        vector = self._vector()
        if isinstance(self.op, stablehlo.MulOp):
            return vector
        one = splat_constant(ir.FloatAttr.get(vector.type.element_type, 1.0), vector.type)
        return stablehlo.divide(one, vector)

    def term(self) -> Tensor:
        """Builds what is added to the channels, [channels], in f32 or f64."""
        return stablehlo.negate(self._vector()) if isinstance(self.op, stablehlo.SubtractOp) else self._vector()

    def _vector(self) -> Tensor:
        channels = self.other.type.shape[self.dimension]
        broadcast_ = producer(self.other, stablehlo.BroadcastInDimOp)
        size = math.prod(broadcast_.operand.type.shape) if broadcast_ else 0
        if broadcast_ and size in (1, channels):
            vector = reshape(broadcast_.operand, [size])
        else:
            limits = [size if number == self.dimension else 1 for number, size in enumerate(self.other.type.shape)]
            vector = reshape(slice_to(self.other, limits), [channels])
        if vector.type.shape != [channels]:
            vector = broadcast(reshape(vector, []), [channels], [])
        f32 = ir.F32Type.get()
        return vector if vector.type.element_type == ir.F64Type.get() else convert(vector, f32)


def _steps_after(product: _Product, weights: Weights) -> list[_Step]:
    """The operations on a product's result, as long as each is all that reads the one before, that share channels."""
    steps: list[_Step] = []
    value = product.op.results[0]
    while has_one_use(value):
        reader = next(iter(value.uses)).owner.opview
        if isinstance(reader, stablehlo.ConvertOp):
            if not converts_exactly(value.type.element_type, reader.result.type.element_type):
                break
        else:
            step = _step(reader, product.results, weights)
            if step is None or step.rest != value or (steps and step.dimension != steps[0].dimension):
                break
            steps.append(step)
        value = reader.results[0]
    return steps


def _step(op: ir.OpView | None, dimensions: Collection[int], weights: Weights) -> _Step | None:
    """Reads an operation that scales or shifts along one of these dimensions of its result."""
    if not isinstance(op, _STEPS) or str(op.results[0].type.element_type) not in _TYPES:
        return None
    ways = [(op.lhs, op.rhs)]
    if isinstance(op, (stablehlo.AddOp, stablehlo.MulOp)):
        ways.append((op.rhs, op.lhs))
    for rest, other in ways:
        dimension = _channel_dimension(other, dimensions) if _is_known(other, weights) else None
        if dimension is not None and rest != other:
            return _Step(op=op, rest=rest, other=other, dimension=dimension)
    return None


def _is_known(value: Tensor, weights: Weights) -> bool:
    return splat_element(value) is not None or weights.is_weight_only(value)


def _channel_dimension(value: Tensor, dimensions: Collection[int]) -> int | None:
    """The one of these dimensions that the elements of a tensor differ along, if they do along no other."""
    varies = {number for number, size in enumerate(value.type.shape) if size != 1}
    if splat_element(value) is not None:
        varies = set()
    elif (source := producer(value, stablehlo.BroadcastInDimOp)) is not None:
        sizes = zip(source.broadcast_dimensions, source.operand.type.shape, strict=True)
        varies = {dimension for dimension, size in sizes if size != 1}
    if len(varies) > 1 or not varies <= set(dimensions):
        return None
    return next(iter([*varies, *dimensions]), None)
