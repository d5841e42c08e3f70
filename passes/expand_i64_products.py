"""expand-i64-products: products of matrices of 64-bit integers become elementwise products and a sum.

libtpu emulates 64-bit integers, but has no product of their matrices; XLA fuses what takes its place.

Before:

    %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
        : (tensor<2x3xi64>, tensor<3x4xi64>) -> tensor<2x4xi64>

After:

    %a = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<2x3xi64>) -> tensor<2x4x3xi64>
    %b = stablehlo.broadcast_in_dim %y, dims = [2, 1] : (tensor<3x4xi64>) -> tensor<2x4x3xi64>
    %0 = stablehlo.reduce(%a * %b init: 0) applies stablehlo.add across dimensions = [2]

Bought: these compile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.base import Pass, PassContext
from tpuc.passes.rewrite import Rules, Tensor
from tpuc.passes.tensors import broadcast, is_64_bit_integer, tensor_type, zeros

RULES = Rules()


@dataclass(frozen=True, kw_only=True)
class ExpandI64Products(Pass):
    """Takes products of matrices of 64-bit integers apart; for the CPU, which has them, it does nothing."""

    name: ClassVar[str] = "expand-i64-products"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place."""
        return RULES.apply(module) if context.target.chip else {}


@RULES.on(stablehlo.DotGeneralOp)
def product(op: stablehlo.DotGeneralOp) -> Tensor | None:
    """dot_general(x, y) => sum(x * y) over the dimensions that are contracted, which come last."""
    if not all(is_64_bit_integer(value.type.element_type) for value in (op.lhs, op.rhs, op.result)):
        return None
    numbers = stablehlo.DotDimensionNumbers(op.dot_dimension_numbers)
    kept = len(op.result.type.shape)
    contracted = [op.lhs.type.shape[dim] for dim in numbers.lhs_contracting_dimensions]
    places = list(range(kept, kept + len(contracted)))
    batch = list(numbers.lhs_batching_dimensions)
    lhs_free = len(op.lhs.type.shape) - len(batch) - len(contracted)

    def spread(value: Tensor, batching: Sequence[int], contracting: Sequence[int], first: int) -> Tensor:
        """Moves a dimension to where the product has it; those that the other operand brings are broadcast."""
        dims = dict(zip(batching, range(len(batching)), strict=True)) | dict(zip(contracting, places, strict=True))
        free = (dim for dim in range(len(value.type.shape)) if dim not in dims)
        dims |= {dim: first + index for index, dim in enumerate(free)}
        return broadcast(value, [*op.result.type.shape, *contracted], [dims[dim] for dim in sorted(dims)])

    lhs = spread(op.lhs, batch, numbers.lhs_contracting_dimensions, len(batch))
    rhs = spread(op.rhs, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions, len(batch) + lhs_free)
    return _sum(stablehlo.multiply(lhs, rhs), places)


def _sum(value: Tensor, dims: Sequence[int]) -> Tensor:
    if not dims:
        return value
    scalar = tensor_type([], value.type.element_type)
    shape = [size for dim, size in enumerate(value.type.shape) if dim not in dims]
    reduce = stablehlo.ReduceOp([tensor_type(shape, value.type.element_type)], [value], [zeros(scalar)], list(dims))
    block = reduce.body.blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        stablehlo.return_([stablehlo.add(*block.arguments)])
    result: Tensor = reduce.results[0]
    return result
