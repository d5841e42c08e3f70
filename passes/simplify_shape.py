"""simplify-shape: removes and merges operations that only move elements.

torch-mlir reshapes around every matrix product, and keeps reduced dimensions by a reshape before each broadcast.
The compiler drops such operations itself, so this buys nothing alone. It lets other passes see what computes next to
what computes: without it, scale-before-reduce finds none of a BERT's means when JAX has lowered them.

Before:

    %0 = stablehlo.reshape %x : (tensor<128xf32>) -> tensor<1x128xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x128xf32>) -> tensor<1x128x1xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1, 2] : (tensor<1x128x1xf32>) -> tensor<1x128x768xf32>

After:

    %0 = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<128xf32>) -> tensor<1x128x768xf32>
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.base import Pass, PassContext
from tpuc.passes.rewrite import Rules, Tensor
from tpuc.passes.tensors import broadcast, is_identity, kept_dimensions, producer, reshape, squeeze

RULES = Rules()


@dataclass(frozen=True, kw_only=True)
class SimplifyShape(Pass):
    """Removes and merges reshapes, broadcasts, slices, concatenations and paddings."""

    name: ClassVar[str] = "simplify-shape"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place."""
        return RULES.apply(module)


@RULES.on(stablehlo.ReshapeOp, stablehlo.SliceOp, stablehlo.PadOp, stablehlo.ReverseOp, stablehlo.BroadcastInDimOp)
def drop_no_move(op: ir.OpView) -> Tensor | None:
    """An operation that moves no element: a slice of everything, a padding by nothing, ... => its operand."""
    operand: Tensor = op.operands[0]
    if operand.type != op.results[0].type:
        return None
    if isinstance(op, stablehlo.BroadcastInDimOp) and not is_identity(op.broadcast_dimensions):
        return None
    if isinstance(op, stablehlo.PadOp) and any((*op.edge_padding_low, *op.edge_padding_high)):
        return None
    if isinstance(op, stablehlo.ReverseOp) and any(operand.type.shape[dimension] != 1 for dimension in op.dimensions):
        return None
    return operand


@RULES.on(stablehlo.ConcatenateOp)
def drop_concatenate_of_one(op: stablehlo.ConcatenateOp) -> Tensor | None:
    """concatenate(x) => x."""
    return op.operands[0] if len(op.operands) == 1 else None


@RULES.on(stablehlo.ReshapeOp)
def merge_reshapes(op: stablehlo.ReshapeOp) -> Tensor | None:
    """reshape(reshape(x)) => reshape(x)."""
    inner = producer(op.operand, stablehlo.ReshapeOp)
    return reshape(inner.operand, op.result.type.shape) if inner else None


@RULES.on(stablehlo.BroadcastInDimOp)
def broadcast_to_reshape(op: stablehlo.BroadcastInDimOp) -> Tensor | None:
    """A broadcast_in_dim that only adds dimensions of size one => reshape."""
    operand, result = op.operand.type, op.result.type
    same_size = math.prod(operand.shape) == math.prod(result.shape)
    if not same_size or list(op.broadcast_dimensions) != sorted(op.broadcast_dimensions):
        return None
    return reshape(op.operand, result.shape)


@RULES.on(stablehlo.BroadcastInDimOp)
def merge_broadcasts(op: stablehlo.BroadcastInDimOp) -> Tensor | None:
    """broadcast_in_dim(broadcast_in_dim(x)) => broadcast_in_dim(x)."""
    inner = producer(op.operand, stablehlo.BroadcastInDimOp)
    if inner is None:
        return None
    outer_dims = op.broadcast_dimensions
    return broadcast(inner.operand, op.result.type.shape, [outer_dims[dim] for dim in inner.broadcast_dimensions])


@RULES.on(stablehlo.BroadcastInDimOp)
def broadcast_of_reshape(op: stablehlo.BroadcastInDimOp) -> Tensor | None:
    """broadcast_in_dim of a reshape that adds dimensions of size one => broadcast_in_dim of what was reshaped."""
    inner = producer(op.operand, stablehlo.ReshapeOp)
    if inner is None or 1 not in inner.result.type.shape:
        return None
    source = inner.operand
    kept = kept_dimensions(source.type.shape, inner.result.type.shape)
    if kept is None:
        return None
    dimensions = [op.broadcast_dimensions[dimension] for dimension in kept.values()]
    return broadcast(squeeze(source), op.result.type.shape, dimensions)


@RULES.on(stablehlo.ReshapeOp)
def reshape_of_broadcast(op: stablehlo.ReshapeOp) -> Tensor | None:
    """A reshape that adds or drops dimensions of size one, of a broadcast_in_dim => one broadcast_in_dim."""
    inner = producer(op.operand, stablehlo.BroadcastInDimOp)
    kept = kept_dimensions(op.operand.type.shape, op.result.type.shape)
    if inner is None or kept is None:
        return None
    sizes = inner.operand.type.shape
    dimensions = [kept[dim] for dim, size in zip(inner.broadcast_dimensions, sizes, strict=True) if size != 1]
    return broadcast(squeeze(inner.operand), op.result.type.shape, dimensions)
