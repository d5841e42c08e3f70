"""recompose-attention: for a TPU, attention that a model writes out becomes the composite that it is.

Models compute attention in their own code, as products with a softmax between. This pass finds it wherever it comes
from, so that attention-kernel sees it as it sees `scaled_dot_product_attention`.

Before:

    %0 = stablehlo.dot_general %q, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]
           : (tensor<1x32x512x64xf32>, tensor<1x32x512x64xf32>) -> tensor<1x32x512x512xf32>
    %1 = stablehlo.multiply %0, %scale : tensor<1x32x512x512xf32>
    %2 = stablehlo.add %1, %mask : tensor<1x32x512x512xf32>
    %3 = stablehlo.composite "tpuc.softmax" %2 {composite_attributes = {dimensions = [3]}, ...}
           : (tensor<1x32x512x512xf32>) -> tensor<1x32x512x512xf32>
    %4 = stablehlo.dot_general %3, %v, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]
           : (tensor<1x32x512x512xf32>, tensor<1x32x512x64xf32>) -> tensor<1x32x512x64xf32>

After:

    %4 = stablehlo.composite "tpuc.attention" %q, %k, %v, %mask
           {composite_attributes = {is_causal = false, scale = 1.250000e-01 : f64}, decomposition = @attention}
           : (tensor<1x32x512x64xf32>, tensor<1x32x512x64xf32>, tensor<1x32x512x64xf32>, tensor<1x32x512x512xf32>)
           -> tensor<1x32x512x64xf32>

The scale and the mask may be missing; the mask may be added, or select between the scores and a number that hides
them, `masked_fill` in whichever order. Conversions between f32 and bf16 on the way, and reshapes that merge batches,
are looked through: the composite keeps its scores in f32. Where a mask of -infinity hides a whole row, the composite
gives zeros, and the model NaN; where a finite number does, all keys count the same, in both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, cast

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.lowerings.attention import ATTENTION
from tpuc.lowerings.composites import SOFTMAX
from tpuc.passes.attention_kernel import MASKED
from tpuc.passes.base import Pass, PassContext
from tpuc.passes.composites import Composites, dimensions_of, made_by
from tpuc.passes.main import is_in_main
from tpuc.passes.rewrite import Rules, Tensor
from tpuc.passes.tensors import (
    both_ways,
    broadcast,
    has_one_use,
    producer,
    reshape,
    splat_constant,
    splat_number,
    tensor_type,
    transpose,
    zeros,
)

_FLOATS = ("bf16", "f32")


@dataclass(frozen=True, kw_only=True)
class RecomposeAttention(Pass):
    """Turns products with a softmax between them into composites of attention."""

    name: ClassVar[str] = "recompose-attention"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place."""
        if context.target.chip is None:
            return {}  # Without a kernel, what the model wrote is as good.
        composites = Composites(module)
        rules = Rules()

        @rules.on(stablehlo.DotGeneralOp)
        def recompose_attention(op: stablehlo.DotGeneralOp) -> Tensor | None:
            found = _match(op) if is_in_main(op) else None
            return _build(found, composites) if found is not None else None

        return rules.apply(module)


@dataclass(frozen=True, kw_only=True)
class _Scores:
    """Scores of attention.

    Attributes:
        product: The product of queries and keys, [batches..., L, S].
        scale: What it is multiplied with.
        mask: What is added after that, or says by bools which scores stay; of the scores' shape, or None.
        hides: Whether a mask of bools says instead which scores do not stay.
        hidden: What a mask of bools puts in the place of a score.
    """

    product: stablehlo.DotGeneralOp
    scale: float = 1.0
    mask: Tensor | None = None
    hides: bool = False
    hidden: float = -math.inf


@dataclass(frozen=True, kw_only=True)
class _Found:
    """Attention that a model writes out.

    Attributes:
        op: Its last product.
        scores: What goes into the softmax.
        batches: The dimensions of the softmax before the last two.
    """

    op: stablehlo.DotGeneralOp
    scores: _Scores
    batches: tuple[int, ...]


def _match(op: stablehlo.DotGeneralOp) -> _Found | None:
    if not _is_rows_by_columns(op):
        return None
    softmax = made_by(_same_rows(op.lhs), SOFTMAX)
    if softmax is None or not has_one_use(softmax.results[0]):
        return None
    x = cast(Tensor, softmax.operands[0])
    scores = _match_scores(x)
    batches = tuple(x.type.shape[:-2])
    if scores is None or len(batches) > 2 or dimensions_of(softmax) != [x.type.rank - 1]:
        return None
    types = {str(value.type.element_type) for value in (scores.product.lhs, scores.product.rhs, op.rhs, op.result)}
    return _Found(op=op, scores=scores, batches=batches) if len(types) == 1 and types <= set(_FLOATS) else None


def _match_scores(value: Tensor) -> _Scores | None:
    """Looks for (query @ key) * scale + mask."""
    added = producer(_same_rows(value), stablehlo.AddOp)
    if added is not None:
        for scaled, mask in both_ways(added):
            found = _match_scaled(scaled)
            if found is not None and mask.type.shape == value.type.shape:
                return replace(found, mask=mask)
        return None
    selected = producer(_same_rows(value), stablehlo.SelectOp)
    if selected is not None:
        if selected.pred.type.shape != selected.result.type.shape:
            return None
        ways = ((selected.on_true, selected.on_false, False), (selected.on_false, selected.on_true, True))
        for scaled, fill, hides in ways:
            hidden, found = splat_number(fill), _match_scaled(scaled)
            if hidden is not None and hidden < MASKED and found is not None:
                return replace(found, mask=selected.pred, hides=hides, hidden=hidden)
        return None
    return _match_scaled(value)


def _match_scaled(value: Tensor) -> _Scores | None:
    """Looks for (query @ key) * scale."""
    value, scale = _same_rows(value), 1.0
    multiplied = producer(value, stablehlo.MulOp) or producer(value, stablehlo.DivOp)
    if multiplied is not None:
        factor = splat_number(multiplied.rhs)
        if not factor:
            return None
        scale = factor if isinstance(multiplied, stablehlo.MulOp) else 1 / factor
        value = _same_rows(multiplied.lhs)
    product = producer(value, stablehlo.DotGeneralOp)
    return _Scores(product=product, scale=scale) if product is not None and _has_one_of_each(product) else None


def _same_rows(value: Tensor) -> Tensor:
    """Looks through conversions between floats, and reshapes that leave the last two dimensions as they are."""
    while True:
        converted = producer(value, stablehlo.ConvertOp)
        reshaped = producer(value, stablehlo.ReshapeOp)
        if converted is not None and str(converted.operand.type.element_type) in _FLOATS:
            value = converted.operand
        elif reshaped is not None and reshaped.operand.type.shape[-2:] == value.type.shape[-2:]:
            value = reshaped.operand
        else:
            return value


def _has_one_of_each(op: stablehlo.DotGeneralOp) -> bool:
    """Whether each operand has one free and one contracting dimension, beside batches."""
    numbers = stablehlo.DotDimensionNumbers(op.dot_dimension_numbers)
    batches = len(numbers.lhs_batching_dimensions)
    return len(numbers.lhs_contracting_dimensions) == 1 and op.lhs.type.rank == op.rhs.type.rank == batches + 2


def _is_rows_by_columns(op: stablehlo.DotGeneralOp) -> bool:
    """Whether the first operand is [batches..., rows, columns], and its columns are contracted."""
    numbers = stablehlo.DotDimensionNumbers(op.dot_dimension_numbers)
    batches = list(numbers.lhs_batching_dimensions)
    rank: int = op.lhs.type.rank
    return (
        _has_one_of_each(op)
        and batches == list(range(rank - 2))
        and list(numbers.lhs_contracting_dimensions) == [rank - 1]
    )


def _build(found: _Found, composites: Composites) -> Tensor:
    """Builds the composite in the place of the last product."""
    batches = (1,) * (2 - len(found.batches)) + found.batches
    product = stablehlo.DotDimensionNumbers(found.scores.product.dot_dimension_numbers)
    last = stablehlo.DotDimensionNumbers(found.op.dot_dimension_numbers)
    query, key = (
        _arrange(operand, [*batching, *_free(operand, [*batching, *contracting]), *contracting], batches)
        for operand, batching, contracting in (
            (found.scores.product.lhs, product.lhs_batching_dimensions, product.lhs_contracting_dimensions),
            (found.scores.product.rhs, product.rhs_batching_dimensions, product.rhs_contracting_dimensions),
        )
    )
    batching, contracting = last.rhs_batching_dimensions, last.rhs_contracting_dimensions
    order = [*batching, *contracting, *_free(found.op.rhs, [*batching, *contracting])]
    operands = [query, key, _arrange(found.op.rhs, order, batches)]
    mask = _mask_of(found.scores)
    if mask is not None:
        operands.append(reshape(mask, [*batches, *mask.type.shape[-2:]]))
    composite = composites.build(ATTENTION, operands, is_causal=False, scale=found.scores.scale)
    return reshape(composite, found.op.result.type.shape)


def _mask_of(scores: _Scores) -> Tensor | None:
    """Builds the mask as the composite takes it: added, or bools that say which scores stay."""
    mask = scores.mask
    if mask is None or not isinstance(mask.type.element_type, ir.IntegerType):
        return mask
    copied = producer(mask, stablehlo.BroadcastInDimOp)
    stays = mask if copied is None else copied.operand
    if scores.hides:
        stays = stablehlo.not_(stays)
    if math.isfinite(scores.hidden):
        # Next to this number a score is nothing, so that adding it is to put it there.
        type_ = tensor_type(stays.type.shape, ir.F32Type.get())
        hidden = splat_constant(ir.FloatAttr.get(type_.element_type, scores.hidden), type_)
        stays = stablehlo.select(stays, zeros(type_), hidden)
    return stays if copied is None else broadcast(stays, mask.type.shape, list(copied.broadcast_dimensions))


def _free(operand: Tensor, taken: list[int]) -> list[int]:
    return [dimension for dimension in range(operand.type.rank) if dimension not in taken]


def _arrange(operand: Tensor, order: list[int], batches: tuple[int, ...]) -> Tensor:
    """The operand with its dimensions in this order, and two of batches before the last two."""
    ordered = transpose(operand, order)
    return reshape(ordered, [*batches, *ordered.type.shape[-2:]])
