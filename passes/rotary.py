"""Finds rotary embeddings, which models write out.

Reference: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021); in halves, as transformers
lays it out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.rewrite import Tensor
from tpuc.passes.tensors import both_ways, producer, reshape


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """x * cos + concatenate(-x[E/2:], x[:E/2]) * sin.

    Attributes:
        x: [batch, heads, tokens, E].
        cos: The cosines, of any shape that is [batch or 1, tokens, E] but for dimensions of size one.
        sin: The sines, likewise.
    """

    x: Tensor
    cos: Tensor
    sin: Tensor

    def has_tables_of(self, other: Rotation) -> bool:
        """Whether both rotate by the same angles."""
        return _root(self.cos) == _root(other.cos) and _root(self.sin) == _root(other.sin)

    def tables(self) -> list[Tensor]:
        """Builds cosines and sines, [batch or 1, tokens, E] each."""
        batch, _, tokens, size = self.x.type.shape
        return [
            reshape(table, [batch if math.prod(table.type.shape) > tokens * size else 1, tokens, size])
            for table in (self.cos, self.sin)
        ]


def match_rotation(value: Tensor) -> Rotation | None:
    """Returns the rotation that a tensor [batch, heads, tokens, E] is the result of, if it is one."""
    added = producer(_same_shape_root(value), stablehlo.AddOp)
    if added is None:
        return None
    for straight, turned in both_ways(added):
        by_cos, by_sin = producer(straight, stablehlo.MulOp), producer(turned, stablehlo.MulOp)
        if by_cos is None or by_sin is None:
            continue
        for x, cos in both_ways(by_cos):
            for half_turn, sin in both_ways(by_sin):
                tables = _table(cos), _table(sin)
                if tables[0] is not None and tables[1] is not None and _is_half_turn(half_turn, x):
                    return Rotation(x=x, cos=tables[0], sin=tables[1])
    return None


def _table(value: Tensor) -> Tensor | None:
    """What was broadcast along the heads, if that, and batches, is all that it was broadcast along."""
    copied = producer(value, stablehlo.BroadcastInDimOp)
    if copied is None:
        return None
    sizes = copied.operand.type.shape
    places = [place for place, size in zip(copied.broadcast_dimensions, sizes, strict=True) if size != 1]
    return copied.operand if places in ([2, 3], [0, 2, 3]) else None


def _is_half_turn(value: Tensor, x: Tensor) -> bool:
    """Whether this is concatenate(-x[E/2:], x[:E/2])."""
    joined = producer(value, stablehlo.ConcatenateOp)
    if joined is None or len(joined.operands) != 2 or joined.dimension.value != 3:
        return False
    negated = producer(joined.operands[0], stablehlo.NegOp)
    second = producer(negated.operand, stablehlo.SliceOp) if negated else None
    first = producer(joined.operands[1], stablehlo.SliceOp)
    half, rest = divmod(x.type.shape[3], 2)
    return (
        rest == 0
        and first is not None
        and second is not None
        and _is_part(first, x, 0, half)
        and _is_part(second, x, half, 2 * half)
    )


def _is_part(op: stablehlo.SliceOp, x: Tensor, start: int, end: int) -> bool:
    shape = x.type.shape
    return (
        op.operand == x
        and list(op.start_indices) == [0, 0, 0, start]
        and list(op.limit_indices) == [*shape[:3], end]
        and list(op.strides) == [1, 1, 1, 1]
    )


def _root(value: Tensor) -> Tensor:
    """What a tensor was before all reshapes."""
    reshaped = producer(value, stablehlo.ReshapeOp)
    return _root(reshaped.operand) if reshaped else value


def _same_shape_root(value: Tensor) -> Tensor:
    """The furthest that a tensor goes back by reshapes to one of its own shape."""
    found, current = value, value
    while (reshaped := producer(current, stablehlo.ReshapeOp)) is not None:
        current = reshaped.operand
        if current.type.shape == value.type.shape:
            found = current
    return found
