"""pad-to-tiles: a matrix product whose dimensions waste the hardware's tiles is computed on padded operands.

A TPU computes in tiles of 8 x 128 numbers, and multiplies matrices of 128 x 128 or more. For a product of one row, the
compiler leaves the matrix unit and multiplies and sums on the vector unit, which takes several times as long.

Before:

    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1]
           : (tensor<1x2048xf32>, tensor<1000x2048xf32>) -> tensor<1x1000xf32>

After:

    %0 = stablehlo.pad %x, %zero, low = [0, 0], high = [7, 0], interior = [0, 0]
           : (tensor<1x2048xf32>, tensor<f32>) -> tensor<8x2048xf32>
    %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [1]
           : (tensor<8x2048xf32>, tensor<1000x2048xf32>) -> tensor<8x1000xf32>
    %2 = stablehlo.slice %1 [0:1, 0:1000] : (tensor<8x1000xf32>) -> tensor<1x1000xf32>

Each product is compiled alone for the target, as it is and padded in each way, and takes the way that costs the least.
Zeros add nothing to a sum, and what the padding computes is cut away: the result is the same.

The second operand is a matrix. The first may have more dimensions, as a layer's input of batches of tokens; of those
the last is padded, and that only if the others are one: many rows that are not padded waste little.

Measured on v5e in f32, products alone: one token of 4096 with a matrix of 4096 x 4096 takes 13,447 cycles in place of
303,248; one of 768 with a vocabulary of 50257 takes 387,640 in place of 761,888, and 128 of them 949,765 in place of
992,435. 1024 tokens gain nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.base import Pass, PassContext
from tpuc.passes.rewrite import Tensor
from tpuc.passes.tensors import pad_high, rebuild, slice_to, tensor_type
from tpuc.passes.trial import Rewrite, rewrite_what_pays

#: A tile: rows, and numbers in a row.
ROWS = 8
LANES = 128


@dataclass(frozen=True, kw_only=True)
class PadToTiles(Pass):
    """Pads the operands of matrix products to the hardware's tiles where the compiler says that it pays."""

    name: ClassVar[str] = "pad-to-tiles"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place."""
        padded = rewrite_what_pays(module, context, "stablehlo.dot_general", _candidates)
        return {"padded": padded} if padded else {}


def _candidates(dot: ir.OpView) -> list[Rewrite]:
    """The ways to pad a product with a matrix; none where all dimensions fill tiles."""
    assert isinstance(dot, stablehlo.DotGeneralOp)
    numbers = stablehlo.DotDimensionNumbers(dot.dot_dimension_numbers)
    shape = dot.lhs.type.shape
    if len(shape) < 2 or dot.rhs.type.rank != 2 or len(numbers.lhs_contracting_dimensions) != 1:
        return []
    if len(numbers.lhs_batching_dimensions) > 0 or 0 in (*shape, *dot.rhs.type.shape):
        return []
    (lhs_inner,), (rhs_inner,) = numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions
    *others, rows, columns = dot.result.type.shape
    inner = shape[lhs_inner]
    row_sizes = {rows, _padded(rows, ROWS)} if math.prod(others) == 1 else {rows}
    ways = product(row_sizes, *({size, _padded(size, LANES)} for size in (columns, inner)))
    return [
        _Padding(rows=way[0], columns=way[1], inner=way[2], lhs_inner=lhs_inner, rhs_inner=rhs_inner)
        for way in sorted(ways)
        if way != (rows, columns, inner)
    ]


def _padded(size: int, tile: int) -> int:
    """The next multiple of a tile, for a size that is worth one: of less than half a tile there are too many zeros."""
    return -(-size // tile) * tile if size > tile // 2 or tile == ROWS else size


@dataclass(frozen=True, kw_only=True)
class _Padding:
    """Computes a product with padded rows, columns and inner dimension.

    Attributes:
        rows: The rows of the padded product, the last of the first operand's own dimensions.
        columns: Its columns.
        inner: What is summed over.
        lhs_inner: The dimension of the first operand that is summed over.
        rhs_inner: The same of the second.
    """

    rows: int
    columns: int
    inner: int
    lhs_inner: int
    rhs_inner: int

    def __call__(self, op: ir.OpView) -> Tensor:
        """Builds the padded product, and cuts its result."""
        assert isinstance(op, stablehlo.DotGeneralOp)
        lhs, rhs, shape = list(op.lhs.type.shape), [self.columns, self.columns], list(op.result.type.shape)
        last = max(number for number in range(len(lhs)) if number != self.lhs_inner)
        lhs[last], shape[-2:] = self.rows, [self.rows, self.columns]
        lhs[self.lhs_inner] = rhs[self.rhs_inner] = self.inner
        operands = [pad_high(op.lhs, lhs), pad_high(op.rhs, rhs)]
        result = rebuild(op, operands, tensor_type(shape, op.result.type.element_type))
        return slice_to(result, op.result.type.shape)
