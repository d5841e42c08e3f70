"""How much of the hardware's tiles the products of a program fill.

A TPU keeps the last two dimensions of an array in tiles of 8 x 128 numbers, and multiplies tiles whole. Where the rows
of a product do not divide by 8, or its columns or what is summed over by 128, the rest is multiplied too, for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.pad_to_tiles import LANES, ROWS
from tpuc.passes.rewrite import nested_ops


def tile_fill(module: ir.Module) -> float | None:
    """Returns which part of the multiplications in the tiles of all products is of the products' own numbers.

    Convolutions in groups, which are no products of matrices, do not count, and neither does what a kernel multiplies.
    None where there is no product.
    """
    own = whole = 0
    for op in nested_ops(module.operation):
        view = op.opview
        if isinstance(view, stablehlo.DotGeneralOp):
            times, sizes = _of_product(view)
        elif isinstance(view, stablehlo.ConvolutionOp) and ir.IntegerAttr(view.feature_group_count).value == 1:
            times, sizes = _of_convolution(view)
        else:
            continue
        own += times * math.prod(sizes)
        tiles = zip(sizes, (ROWS, LANES, LANES), strict=True)
        whole += times * math.prod(-(-size // tile) * tile for size, tile in tiles)
    return own / whole if whole else None


def _of_product(op: stablehlo.DotGeneralOp) -> tuple[int, tuple[int, int, int]]:
    """How many products of matrices it is, and their rows, their columns and what they sum over."""
    numbers = stablehlo.DotDimensionNumbers(op.dot_dimension_numbers)
    times = _size(op.lhs.type.shape, numbers.lhs_batching_dimensions)
    inner = _size(op.lhs.type.shape, numbers.lhs_contracting_dimensions)
    rows, columns = (math.prod(each.type.shape) // max(times * inner, 1) for each in (op.lhs, op.rhs))
    return times, (rows, columns, inner)


def _of_convolution(op: stablehlo.ConvolutionOp) -> tuple[int, tuple[int, int, int]]:
    """The same, with a product for each position of the window."""
    numbers = stablehlo.ConvDimensionNumbers(op.dimension_numbers)
    kernel, result = op.rhs.type.shape, op.result.type.shape
    columns = result[numbers.output_feature_dimension]
    rows = math.prod(result) // max(columns, 1)
    return _size(kernel, numbers.kernel_spatial_dimensions), (
        rows,
        columns,
        kernel[numbers.kernel_input_feature_dimension],
    )


def _size(shape: Sequence[int], dimensions: Sequence[int]) -> int:
    return math.prod(shape[each] for each in dimensions)
