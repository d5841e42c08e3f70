"""space-to-depth: a strided convolution of few channels becomes a smaller one of many.

The matrix unit multiplies channels: of an image's three it uses three lanes of 128. A convolution with stride s reads
every position once for s x s outputs; taking blocks of s x s positions as channels gives the same sums from s x s times
as many channels, with a kernel that is s times smaller in each dimension.

Before:

    %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
           window = {stride = [2, 2], pad = [[3, 3], [3, 3]]}
           : (tensor<1x3x224x224xf32>, tensor<64x3x7x7xf32>) -> tensor<1x64x112x112xf32>

After:

    (the transposes and reshapes that move blocks are left out)
    %0 = stablehlo.pad %x, low = [0, 3, 3, 0], high = [0, 3, 3, 0] : ... -> tensor<1x230x230x3xf32>
    %1 = ... : tensor<1x115x115x12xf32>
    %2 = ... : tensor<4x4x12x64xf32>
    %3 = stablehlo.convolution(%1, %2) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
           : (tensor<1x115x115x12xf32>, tensor<4x4x12x64xf32>) -> tensor<1x112x112x64xf32>
    %4 = stablehlo.transpose %3, dims = [0, 3, 1, 2] : ... -> tensor<1x64x112x112xf32>

The kernel, padded with zeros to a multiple of the stride, is prepared once. Each convolution is compiled alone for the
target, before and after, and is rewritten where that costs less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.base import Pass, PassContext
from tpuc.passes.rewrite import Tensor
from tpuc.passes.tensors import (
    inverse,
    pad,
    rebuild,
    reshape,
    tensor_type,
    transpose,
    window_padding,
    window_strides,
)
from tpuc.passes.trial import rewrite_what_pays

#: Channels from which blocks would only make the matrix unit's work longer.
_FEW = 8


@dataclass(frozen=True, kw_only=True)
class SpaceToDepth(Pass):
    """Takes blocks of positions as channels in strided convolutions of few channels, where that pays."""

    name: ClassVar[str] = "space-to-depth"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place."""
        rewritten = rewrite_what_pays(
            module, context, "stablehlo.convolution", lambda op: [by_blocks] if _applies(op) else []
        )
        return {"rewritten": rewritten} if rewritten else {}


def _applies(op: ir.OpView) -> bool:
    """Whether a convolution has few channels and strides, and nothing that blocks cannot express."""
    assert isinstance(op, stablehlo.ConvolutionOp)
    numbers = stablehlo.ConvDimensionNumbers(op.dimension_numbers)
    strides = _strides(op)
    dilations = [*(op.lhs_dilation or []), *(op.rhs_dilation or [])]
    return (
        op.feature_group_count.value == op.batch_group_count.value == 1
        and op.lhs.type.shape[numbers.input_feature_dimension] <= _FEW
        and max(strides, default=1) > 1
        and all(dilation == 1 for dilation in dilations)
        and not any(op.window_reversal or [])
    )


def _strides(op: stablehlo.ConvolutionOp) -> list[int]:
    return window_strides(op, len(stablehlo.ConvDimensionNumbers(op.dimension_numbers).input_spatial_dimensions))


def by_blocks(op: ir.OpView) -> Tensor:
    """Builds the convolution of blocks: x[b, s i + k] is block i + k // s, channel k % s, of every dimension."""
    assert isinstance(op, stablehlo.ConvolutionOp)
    numbers = stablehlo.ConvDimensionNumbers(op.dimension_numbers)
    strides = _strides(op)
    spatial = len(strides)
    image = transpose(
        op.lhs, [numbers.input_batch_dimension, *numbers.input_spatial_dimensions, numbers.input_feature_dimension]
    )
    kernel = transpose(
        op.rhs,
        [
            *numbers.kernel_spatial_dimensions,
            numbers.kernel_input_feature_dimension,
            numbers.kernel_output_feature_dimension,
        ],
    )
    places = [numbers.output_batch_dimension, *numbers.output_spatial_dimensions, numbers.output_feature_dimension]
    result_shape = [op.result.type.shape[place] for place in places]
    window = [-(-size // stride) for size, stride in zip(kernel.type.shape, strides, strict=False)]
    blocks = [out + width - 1 for out, width in zip(result_shape[1:-1], window, strict=True)]

    low = [0, *map(int, window_padding(op, spatial)[:, 0]), 0]
    sizes = [image.type.shape[0], *_times(blocks, strides), image.type.shape[-1]]
    high = [size - old - before for size, old, before in zip(sizes, image.type.shape, low, strict=True)]
    image = _to_channels(pad(image, low, high), blocks, strides, leading=1)
    kernel_high = [size - old for size, old in zip(_times(window, strides), kernel.type.shape, strict=False)]
    kernel = _to_channels(pad(kernel, [0] * (spatial + 2), [*kernel_high, 0, 0]), window, strides, leading=0)

    inner = list(range(1, spatial + 1))
    result = rebuild(
        op,
        [image, kernel],
        tensor_type(result_shape, op.result.type.element_type),
        dimension_numbers=stablehlo.ConvDimensionNumbers.get(
            0, spatial + 1, inner, spatial, spatial + 1, list(range(spatial)), 0, spatial + 1, inner
        ),
        window_strides=ir.DenseI64ArrayAttr.get([1] * spatial),
        padding=_no_padding(spatial),
    )
    return transpose(result, inverse(places))


def _times(counts: Sequence[int], factors: Sequence[int]) -> list[int]:
    return [count * factor for count, factor in zip(counts, factors, strict=True)]


def _to_channels(value: Tensor, blocks: Sequence[int], strides: Sequence[int], *, leading: int) -> Tensor:
    """Moves the positions within blocks next to the channels: [.., n s, .., C, ..] to [.., n, .., s C, ..]."""
    shape = list(value.type.shape)
    spatial = len(blocks)
    before, after = shape[:leading], shape[leading + spatial :]
    split = [size for pair in zip(blocks, strides, strict=True) for size in pair]
    outer = [leading + 2 * dimension for dimension in range(spatial)]
    within = [dimension + 1 for dimension in outer]
    rest = range(leading + 2 * spatial, len(shape) + spatial)
    moved = transpose(reshape(value, [*before, *split, *after]), [*range(leading), *outer, *within, *rest])
    channels = after[0]
    for stride in strides:
        channels *= stride
    return reshape(moved, [*before, *blocks, channels, *after[1:]])


def _no_padding(spatial: int) -> ir.DenseElementsAttr:
    type_ = ir.RankedTensorType.get([spatial, 2], ir.IntegerType.get_signless(64))
    return ir.DenseElementsAttr.get_splat(type_, ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0))
