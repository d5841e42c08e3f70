"""What operations of `@main` read, what depends on what, and which operations are alike.

Two operations are alike if their names, attributes, result types and regions are the same, whatever they read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.hoist_weights import is_worth_preparing
from tpuc.passes.main import Main
from tpuc.passes.rewrite import EFFECTS, Tensor, attributes_of, captured_values, nested_ops, op_name
from tpuc.passes.tensors import converts_exactly
from tpuc.passes.weight_only import weights_and_constants

#: Values or operations, by their numbers.
Numbers: TypeAlias = tuple[int, ...]

#: What the compiler makes part of what reads it, where a loop would keep the result in memory: a layer repeats these,
#: rather than to read their results. So it does with conversions to a wider type.
_FREE = (stablehlo.BroadcastInDimOp, stablehlo.ConstantOp, stablehlo.IotaOp, stablehlo.ReshapeOp)


class Dataflow:
    """What the operations of `@main` read, and what is alike.

    Operations and values go by number: each value that an operation gives or reads has one, and so has each operation.
    Sets of operations are bits of an int.

    Attributes:
        ops: The operations.
        values: The values.
        results: The values that each operation gives.
        reads: The values that each operation reads: its operands, then those that its regions capture.
        owners: The operation of each value; None for an argument.
    """

    def __init__(self, main: Main) -> None:
        self.ops = list(main.block.operations)[:-1]
        self.values: list[Tensor] = []
        self.owners: list[int | None] = []
        numbers: dict[Tensor, int] = {}

        def number(value: Tensor, owner: int | None) -> int:
            if value not in numbers:
                numbers[value] = len(self.values)
                self.values.append(value)
                self.owners.append(owner)
            return numbers[value]

        self.reads: list[Numbers] = []
        self.results: list[Numbers] = []
        for op_number, op in enumerate(self.ops):
            self.reads.append(tuple(number(value, None) for value in (*op.operands, *captured_values(op))))
            self.results.append(tuple(number(value, op_number) for value in op.results))
        self._sources = [
            {owner for owner in map(self.owners.__getitem__, reads) if owner is not None} for reads in self.reads
        ]
        self._ancestors: list[int] = []
        self._groups: dict[int, int] = {}  # the number of the layers, for each operation of layers that were found
        self._update_ancestors()
        ids: dict[Hashable, int] = {}
        self._tokens = [ids.setdefault(_token(op), len(ids)) for op in self.ops]
        #: For each value what its operation is, and which of the results it is.
        self._forms = [
            None if owner is None else (self._tokens[owner], self.results[owner].index(value))
            for value, owner in enumerate(self.owners)
        ]
        self._is_free = [is_free(op) for op in self.ops]
        self._has_effect = [_has_effect(op) for op in self.ops]
        weight_only, _ = weights_and_constants(main)
        self._weight_only = [value in weight_only for value in self.values]
        self._worth: dict[int, bool] = {}

    def ancestors_of(self, value: int) -> int:
        """Returns the operations that a value depends on, its own included."""
        owner = self.owners[value]
        return 0 if owner is None else self._ancestors[owner]

    def is_weight_only(self, value: int) -> bool:
        """Says whether an operation computes a value from weights and constants alone."""
        return self._weight_only[value]

    def is_taken(self, op: int) -> bool:
        """Says whether an operation belongs to layers that were found."""
        return op in self._groups

    def take(self, ops: Iterable[int]) -> None:
        """Takes operations as one from now on, which they will be: what reads one waits for all."""
        self._groups |= dict.fromkeys(ops, len(set(self._groups.values())))
        self._update_ancestors()

    def alike(self, row: Numbers, before: Sequence[int]) -> Numbers | None:
        """Returns the operations that give alike values of each layer, if following back goes on through them.

        Args:
            row: The values.
            before: For each layer the operations before it, where following back ends.
        """
        first = self._forms[row[0]]
        # Most differ, and this is asked more often than anything else.
        if first is None or any(self._forms[value] != first for value in row):
            return None
        ops = tuple(owner for value in row if (owner := self.owners[value]) is not None)
        if self._has_effect[ops[0]] or not (self._is_free[ops[0]] or are_own(ops, before)):
            return None
        if all(map(self.is_weight_only, row)) and any(map(self._is_worth_preparing, row)):
            return None
        return ops

    def classes_alone(self) -> list[Numbers]:
        """Returns the classes of operations that are alike, whatever their surroundings."""
        return _classes_of(self._tokens)

    def classes(self, depth: int) -> Iterator[list[Numbers]]:
        """Yields, for 1, 2, ... steps back, the classes of operations whose surroundings are alike so far."""
        labels = self._tokens
        for _ in range(depth):
            ids: dict[Hashable, int] = {}
            seen = (
                (self._tokens[op], *(self._label(read, labels) for read in self.reads[op]))
                for op in range(len(self.ops))
            )
            labels = [ids.setdefault(each, len(ids)) for each in seen]
            yield _classes_of(labels)

    def _label(self, value: int, labels: Sequence[int]) -> Hashable:
        owner = self.owners[value]
        # All weights look the same, however they are prepared.
        if owner is None or self._weight_only[value]:
            return self.values[value].type
        return labels[owner], self.results[owner].index(value)

    def _is_worth_preparing(self, value: int) -> bool:
        if value not in self._worth:
            self._worth[value] = is_worth_preparing(self.values[value])
        return self._worth[value]

    def _update_ancestors(self) -> None:
        """Computes what each operation depends on; again, until those that count as one agree."""
        of_group: dict[int, int] = defaultdict(int)
        before: list[int] | None = None
        while self._ancestors != before:
            before, self._ancestors = self._ancestors, []
            for op, sources in enumerate(self._sources):
                bits = 1 << op
                for source in sources:
                    bits |= self._ancestors[source]
                if (group := self._groups.get(op)) is not None:
                    of_group[group] |= bits
                    bits = of_group[group]
                self._ancestors.append(bits)


def _classes_of(labels: Sequence[int]) -> list[Numbers]:
    """The operations of each label."""
    members: dict[int, list[int]] = defaultdict(list)
    for op, label in enumerate(labels):
        members[label].append(op)
    return list(map(tuple, members.values()))


def are_own(ops: Numbers, before: Sequence[int]) -> bool:
    """Says whether operations belong to layers, each to its own, after what comes before it."""
    return len(set(ops)) > 1 and not any(bits >> op & 1 for op, bits in zip(ops, before, strict=True))


def is_free(op: ir.OpView) -> bool:
    """Says whether an operation costs less than to keep its result in memory."""
    if isinstance(op, stablehlo.ConvertOp):
        return converts_exactly(op.operand.type.element_type, op.result.type.element_type)
    return isinstance(op, _FREE)


def _token(op: ir.OpView | ir.Operation) -> Hashable:
    """What must be equal for two operations to be alike, but for what they read."""
    return _own_token(op), len(op.operands), _region_token(op)


def _own_token(op: ir.OpView | ir.Operation) -> Hashable:
    return op_name(op), tuple(result.type for result in op.results), attributes_of(op)


def _region_token(op: ir.OpView | ir.Operation) -> Hashable:
    """The regions of an operation, with numbers for the values in them, and one for all from outside."""
    numbers: dict[ir.Value[Any], int] = {}
    parts: list[Hashable] = []
    for each in nested_ops(op)[1:]:
        arguments = each.operation.block.arguments
        for argument in arguments:
            numbers.setdefault(argument, len(numbers))
        reads = tuple(numbers.get(operand, -1) for operand in each.operands)
        for result in each.results:
            numbers[result] = len(numbers)
        parts.append((_own_token(each), tuple(argument.type for argument in arguments), reads, len(each.regions)))
    return tuple(parts)


def _has_effect(op: ir.OpView) -> bool:
    return any(map(_has_own_effect, nested_ops(op)))


def _has_own_effect(op: ir.OpView | ir.Operation) -> bool:
    if op_name(op) == "stablehlo.custom_call":
        return "has_side_effect" in op.attributes and ir.BoolAttr(op.attributes["has_side_effect"]).value
    return op_name(op) in EFFECTS or not op_name(op).startswith(("stablehlo.", "chlo."))
