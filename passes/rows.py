"""Looking at statistics: tensors that hold one number for each row of another, whichever dimensions a row has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.rewrite import Tensor, defining_op
from tpuc.passes.tensors import kept_dimensions, producer, reduced_by, splat_number


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """A value that was, or will be, copied along dimensions of a larger tensor.

    Attributes:
        value: The value, without the copying.
        places: The dimension of the larger tensor by each dimension of the value that is not of size one.
    """

    value: Tensor
    places: Mapping[int, int]

    @classmethod
    def of(cls, value: Tensor) -> Statistic:
        """Begins at the larger tensor."""
        sizes = enumerate(value.type.shape)
        return cls(value=value, places={place: place for place, size in sizes if size != 1}).at(value)

    def at(self, value: Tensor) -> Statistic:
        """Goes on to a tensor of the same shape, and from there to what it is a copy of."""
        places = self.places
        while True:
            copied, reshaped = producer(value, stablehlo.BroadcastInDimOp), producer(value, stablehlo.ReshapeOp)
            if copied is not None:
                value = copied.operand
                sizes = zip(copied.broadcast_dimensions, value.type.shape, strict=True)
                places = {number: places[old] for number, (old, size) in enumerate(sizes) if size != 1}
                continue
            kept = kept_dimensions(reshaped.operand.type.shape, value.type.shape) if reshaped else None
            if reshaped is None or kept is None:
                return Statistic(value=value, places=places)
            value, places = reshaped.operand, {number: places[old] for number, old in kept.items()}

    def reduction(self, combine: type[ir.OpView], start: float) -> stablehlo.ReduceOp | None:
        """Returns the reduction of a tensor of the larger one's shape that this is, else None.

        Args:
            combine: What elements are combined with.
            start: What it begins with.
        """
        op = producer(self.value, stablehlo.ReduceOp)
        if op is None or reduced_by(op) is not combine or splat_number(op.operands[1]) != start:
            return None
        kept = [place for place in range(op.operands[0].type.rank) if place not in list(op.dimensions)]
        return op if all(kept[number] == place for number, place in self.places.items()) else None


def is_closed(root: ir.OpView, leaves: Collection[Tensor]) -> bool:
    """Says whether nobody else reads what is computed between some values and the result of an operation."""
    inside: dict[Tensor, ir.OpView] = {}
    todo = list(root.operands)
    while todo:
        value = todo.pop()
        op = defining_op(value)
        if op is None or value in inside or value in leaves or isinstance(op.opview, stablehlo.ConstantOp):
            continue
        inside[value] = op
        todo += op.operands
    known = {*inside, root.results[0]}
    return all(len(use.owner.results) > 0 and use.owner.results[0] in known for value in inside for use in value.uses)
