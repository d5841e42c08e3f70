"""Asking the compiler whether a rewrite of one operation pays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cmp_to_key

from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.passes.base import Estimator, PassContext
from tpuc.passes.hoist_weights import hoist_weights
from tpuc.passes.main import Main, new_function
from tpuc.passes.rewrite import Tensor
from tpuc.passes.weight_only import Weights, clone_into, slice_back

#: Builds what stands in for an operation, before it.
Rewrite = Callable[[ir.OpView], Tensor]
#: Rewrites a program of copies of operations in place; it is told what stands there for each of their values.
ProgramRewrite = Callable[[ir.Module, Mapping[Tensor, Tensor]], None]

#: A rewrite must save this part of the cycles: smaller differences are within what estimates are worth.
_LEAST_GAIN = 0.02


def rewrite_what_pays(
    module: ir.Module, context: PassContext, op: str, ways: Callable[[ir.OpView], Sequence[Rewrite]]
) -> int:
    """Rewrites operations where the compiler says that it pays; nothing where there is nobody to ask.

    Args:
        module: The module, which is rewritten in place.
        context: Says whom to ask.
        op: The operations' name: `stablehlo.dot_general`.
        ways: Gives the rewrites of one of them that are worth a trial.

    Returns:
        How many were rewritten.
    """
    if context.estimator is None:
        return 0
    trials = Trials(module, context.estimator)
    rewritten = 0
    for each in mlir.find(module, op):
        view = each.opview
        candidates = ways(view)
        best = trials.best(view, candidates) if candidates else None
        if best is None:
            continue
        with view.location, ir.InsertionPoint(view):
            result = best(view)
        view.results[0].replace_all_uses_with(result)
        view.erase()
        rewritten += 1
    return rewritten


class Trials:
    """Compares operations with what would stand in for them, each alone in a program.

    What a rewrite does to weights is not counted: it is done before the program runs.
    """

    def __init__(self, module: ir.Module, estimator: Estimator) -> None:
        """Begins trials.

        Args:
            module: The module that the operations are in.
            estimator: Who says what a program costs.
        """
        self._weights = Weights(Main(module))
        self._estimator = estimator

    def best(self, op: ir.OpView, rewrites: Sequence[Rewrite]) -> Rewrite | None:
        """Returns the rewrite of an operation that costs the least, or None if none is worth it."""
        modules = [_alone([op], self._weights)[0], *(self._rewritten(op, rewrite) for rewrite in rewrites)]
        cycles, *others = self._estimator.cycles_of(modules)
        if cycles is None:
            return None
        limit = cycles * (1 - _LEAST_GAIN)
        best = None
        for rewrite, found in zip(rewrites, others, strict=True):
            if found is not None and found < limit:
                best, limit = rewrite, found
        return best

    def _rewritten(self, op: ir.OpView, rewrite: Rewrite) -> ir.Module:
        """The program that computes only this, rewritten."""
        module, _ = _alone([op], self._weights)
        copy = Main(module).block.operations[0]
        with copy.location, ir.InsertionPoint(copy):
            copy.results[0].replace_all_uses_with(rewrite(copy))
        hoist_weights(module)
        return module

    def pays(self, ops: Sequence[ir.OpView], rewrite: Callable[[ir.Module], None]) -> bool:
        """Says whether several operations cost less together when they are rewritten.

        Args:
            ops: The operations of `@main`, in any order.
            rewrite: Rewrites, in place, a program of nothing but copies of them.
        """
        return self.pays_with_copies(ops, lambda program, _: rewrite(program))

    def pays_with_copies(self, ops: Sequence[ir.OpView], rewrite: ProgramRewrite) -> bool:
        """Says what `pays` does, for a rewrite that must know which copy is whose."""
        before, _ = _alone(ops, self._weights)
        after, copies = _alone(ops, self._weights)
        with after.context:
            rewrite(after, copies)
        hoist_weights(before)
        hoist_weights(after)
        old, new = self._estimator.cycles_of([before, after])
        return old is not None and new is not None and new < old * (1 - _LEAST_GAIN)


def _alone(ops: Sequence[ir.OpView], weights: Weights) -> tuple[ir.Module, dict[Tensor, Tensor]]:
    """Makes a program of copies of operations of one block, whose results are what the rest of the block reads.

    Returns:
        The program, and what stands in it for each value of theirs.
    """
    made = {result for op in ops for result in op.results}
    ops = sorted(ops, key=cmp_to_key(_compare_places))
    results = [result for op in ops for result in op.results if len(ops) == 1 or _is_read_outside(result, made)]
    # By what they read, not by their places: equal groups in different places make equal programs.
    ops, read = slice_back(results, lambda value: value not in made)
    kinds = ["weight" if weights.is_weight_only(each) else "input" for each in read]
    names = [f"{kind}:{number}" for number, kind in enumerate(kinds)]
    with ops[0].context, ir.Location.unknown():
        module = ir.Module.create()
        main = new_function(module, "main", [each.type for each in read], names, [each.type for each in results])
        copies = clone_into(main, ops, read, results)
    return module, copies


def _compare_places(one: ir.OpView, other: ir.OpView) -> int:
    return -1 if one.operation.is_before_in_block(other.operation) else 1


def _is_read_outside(result: Tensor, made: Collection[Tensor]) -> bool:
    return any(not len(use.owner.results) or use.owner.results[0] not in made for use in result.uses)
