"""Rewrite rules: plain functions from an operation to what replaces it, and the driver that applies them.

A pass gathers its rules in a `Rules`:

    RULES = Rules()

    @RULES.on(stablehlo.TransposeOp)
    def drop_identity(op: stablehlo.TransposeOp) -> Tensor | None:
        return op.operand if list(op.permutation) == sorted(op.permutation) else None

    RULES.apply(module)

A rule looks before it builds: it returns None without having made any operation, or the values that stand in for
the operation's results, of the very same types. The operations it makes go before the replaced one and take its
source location, without the rule doing anything for it.

Why a driver of our own and not MLIR's greedy one, which the bindings offer: that one is as fast, but it does not see
the operations that a Python rule makes before its next sweep over the module, gives up after ten sweeps, never ends
when two rules undo each other, and does not say which rule fired how often.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

Tensor: TypeAlias = "ir.Value[ir.RankedTensorType]"
Replacement: TypeAlias = "Tensor | Sequence[Tensor] | None"
OpT = TypeVar("OpT", bound=ir.OpView)

#: A rule set that has not come to an end after this many rewrites for each operation of the module never will.
_REWRITES_PER_OPERATION = 50

#: Operations of these dialects can go when nobody reads their results, but for `EFFECTS`.
_PURE_DIALECTS = ("stablehlo.", "chlo.", "arith.", "tensor.")
#: What does, or may do, more than compute results.
EFFECTS = frozenset(
    f"stablehlo.{name}"
    for name in (
        "all_gather",
        "all_reduce",
        "all_to_all",
        "collective_broadcast",
        "collective_permute",
        "custom_call",
        "infeed",
        "outfeed",
        "recv",
        "reduce_scatter",
        "send",
    )
)


class Rules:
    """A set of rewrite rules, each registered for the operations that it looks at."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[Callable[[Any], Replacement]]] = defaultdict(list)

    def on(self, *ops: type[OpT] | str) -> Callable[[Callable[[OpT], Replacement]], Callable[[OpT], Replacement]]:
        """Registers the decorated rule for these operations; rules are tried in the order of registration.

        Args:
            ops: Classes of the bindings, or names where the bindings have no class: `tensor.cast`.
        """

        def register(rule: Callable[[OpT], Replacement]) -> Callable[[OpT], Replacement]:
            for op in ops:
                self._by_name[op if isinstance(op, str) else cast(Any, op).OPERATION_NAME].append(rule)
            return rule

        return register

    def apply(self, module: ir.Module) -> Counter[str]:
        """Rewrites a module in place until no rule fires any more; operations that nobody reads go.

        Returns:
            How often each rule fired, by the rule's name.

        Raises:
            RuntimeError: The rules do not come to an end.
            TypeError: A rule returned values of other types than the results that they replace.
        """
        with module.context:
            return _Driver(self._by_name, module).run()


class _Driver:
    """One application of rules to a module.

    An operation is known by its first result: in these bindings a value hashes by identity, where an operation
    hashes by content and so changes its hash as it is rewritten. Operations without results are never looked at.
    A handle of an erased operation must not be touched again: it leaves the queue and the known ones before.
    """

    def __init__(self, rules: Mapping[str, Sequence[Callable[[Any], Replacement]]], module: ir.Module) -> None:
        self._rules = rules
        self._module = module
        self._queue: dict[ir.Value[Any], None] = {}  # a set in order; the last one in is the first one out
        self._known: set[ir.Value[Any]] = set()
        self._fired: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        """Applies the rules until a whole sweep changes nothing.

        Only the neighbours of a change are queued again, and a rule may look further than that: the last sweep is
        the proof that nothing was missed.
        """
        self._queue_all()
        limit = _REWRITES_PER_OPERATION * len(self._queue)
        before = -1
        while self._fired.total() > before:
            before = self._fired.total()
            self._queue_all()
            while self._queue:
                result, _ = self._queue.popitem()
                self._visit(cast(ir.OpView, result.owner))
                if self._fired.total() > limit:
                    often = ", ".join(f"{rule} ({count}x)" for rule, count in self._fired.most_common(3))
                    raise RuntimeError(f"the rules do not come to an end; they fired most: {often}")
        return self._fired

    def _queue_all(self) -> None:
        results = [op.results[0] for op in nested_ops(self._module.operation) if len(op.results)]
        self._known = set(results)
        self._queue = dict.fromkeys(reversed(results))

    def _visit(self, op: ir.OpView) -> None:
        if is_dead(op):
            self._erase(op)
            return
        rules = self._rules.get(op_name(op))
        if not rules:
            return
        with op.location, ir.InsertionPoint(op):
            for rule in rules:
                found = rule(op)
                if found is not None:
                    self._replace(op, [found] if isinstance(found, ir.Value) else found, rule.__name__)
                    return

    def _replace(self, op: ir.OpView, values: Sequence[Tensor], rule: str) -> None:
        results = list(op.results)
        if [result.type for result in results] != [value.type for value in values]:
            raise TypeError(
                f"rule {rule} replaces {op_name(op)}'s ({', '.join(str(result.type) for result in results)}) "
                f"by ({', '.join(str(value.type) for value in values)})"
            )
        self._fired[rule] += 1
        for result, value in zip(results, values, strict=True):
            for use in result.uses:
                self._queue_op(use.owner)
            result.replace_all_uses_with(value)
        self._erase(op)
        self._queue_new(values)

    def _queue_op(self, op: ir.OpView | ir.Operation) -> None:
        if len(op.results):
            self._queue[op.results[0]] = None

    def _queue_new(self, values: Sequence[Tensor]) -> None:
        """Queues the operations that a rule has just made: all that lead to its values and are not known yet."""
        todo = list(values)
        while todo:
            op = defining_op(todo.pop())
            if op is None or op.results[0] in self._known:
                continue
            self._known.update(each.results[0] for each in nested_ops(op) if len(each.results))
            self._queue_op(op)
            todo.extend(op.operands)

    def _erase(self, op: ir.OpView) -> None:
        inside = nested_ops(op)
        own = {result for each in inside for result in each.results}
        read = {value for each in inside for value in each.operands} - own
        producers = [producer for producer in map(defining_op, read) if producer is not None]
        self._known -= own
        for result in own:
            self._queue.pop(result, None)
        op.erase()
        for producer in producers:
            self._queue_op(producer)


def defining_op(value: ir.Value[Any]) -> ir.OpView | None:
    """Returns the operation that a value is a result of, or None for a block's argument."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner


def op_name(op: ir.OpView | ir.Operation) -> str:
    """Returns an operation's name: `stablehlo.add`.

    The bindings' class of a composite has a `name` that is the composite's own.
    """
    return op.operation.name


def attributes_of(op: ir.OpView | ir.Operation) -> Hashable:
    """Returns an operation's attributes by name, to be compared with those of another."""
    named = map(op.attributes.__getitem__, range(len(op.attributes)))
    if op_name(op) == "stablehlo.constant" and isinstance(op.results[0].type.element_type, ir.ComplexType):
        # The bindings have no class for an attribute of complex elements, and abort where one is asked for.
        return tuple(map(str, named))
    return tuple((each.name, each.attr) for each in named)


def nested_ops(op: ir.OpView | ir.Operation) -> list[ir.OpView | ir.Operation]:
    """Returns an operation and all that are inside it, outermost first."""
    if not len(op.regions):
        return [op]
    ops: list[ir.OpView | ir.Operation] = []

    def collect(each: ir.Operation) -> ir.WalkResult:
        ops.append(each)
        return ir.WalkResult.ADVANCE

    op.walk(collect, ir.WalkOrder.PRE_ORDER)
    return ops


def captured_values(op: ir.OpView | ir.Operation) -> list[ir.Value[Any]]:
    """Returns the values from outside of an operation that its regions read, each as often as they do."""
    if not len(op.regions):
        return []
    inside = nested_ops(op)[1:]
    own: set[ir.Value[Any]] = {result for each in inside for result in each.results}
    own |= {argument for each in (op, *inside) for region in each.regions for argument in region.blocks[0].arguments}
    return [operand for each in inside for operand in each.operands if operand not in own]


def copy_with(op: ir.OpView, reads: Sequence[ir.Value[Any]]) -> ir.OpView:
    """Builds an operation again, with the same location.

    Args:
        op: The operation, which stays as it is.
        reads: What the copy reads: its operands, then what takes the place of each of `captured_values(op)`.
    """
    captured = set(captured_values(op))
    copy = op.operation.clone()
    values = iter(reads)
    for number in range(len(copy.operands)):
        copy.operands[number] = next(values)
    for each in nested_ops(copy)[1:]:
        for number, operand in enumerate(each.operands):
            if operand in captured:
                each.operands[number] = next(values)
    return copy.opview


def is_pure(op: ir.OpView) -> bool:
    """Says whether an operation, with all that is inside it, does nothing but compute its results."""
    return op_name(op).startswith(_PURE_DIALECTS) and not any(op_name(each) in EFFECTS for each in nested_ops(op))


def is_dead(op: ir.OpView) -> bool:
    """Says whether an operation can go: it has results that nobody reads, and does nothing else.

    What ends a block has none, and stays.
    """
    return len(op.results) > 0 and not any(True for result in op.results for _ in result.uses) and is_pure(op)


def erase_dead(block: ir.Block) -> None:
    """Erases the operations of a block that can go, and those that only they read."""
    for op in reversed(list(block.operations)):
        if is_dead(op):
            op.erase()


def blocks_of(block: ir.Block) -> Iterator[ir.Block]:
    """Gives a block, and the blocks of the loops and branches in it."""
    yield block
    for op in block.operations:
        if isinstance(op, stablehlo.WhileOp | stablehlo.IfOp | stablehlo.CaseOp):
            for region in op.regions:
                for inner in region.blocks:
                    yield from blocks_of(inner)
