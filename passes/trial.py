"""Asking the compiler whether a rewrite of one operation pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from tpuc import mlir
from tpuc.passes.base import Estimator, PassContext
from tpuc.passes.hoist_weights import hoist_weights
from tpuc.passes.main import Main, new_function
from tpuc.passes.rewrite import Tensor
from tpuc.passes.weight_only import Weights

#: Builds what stands in for an operation, before it.
Rewrite = Callable[[ir.OpView], Tensor]

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
        cycles = self._cycles(op, lambda copy: copy.results[0])
        if cycles is None:
            return None
        limit = cycles * (1 - _LEAST_GAIN)
        best = None
        for rewrite in rewrites:
            found = self._cycles(op, rewrite)
            if found is not None and found < limit:
                best, limit = rewrite, found
        return best

    def _cycles(self, op: ir.OpView, rewrite: Rewrite) -> int | None:
        """What the program that computes only this costs."""
        with op.context, ir.Location.unknown():
            module = ir.Module.create()
            operands = list(dict.fromkeys(op.operands))
            kinds = ["weight" if self._weights.is_weight_only(each) else "input" for each in operands]
            names = [f"{kind}:{number}" for number, kind in enumerate(kinds)]
            main = new_function(module, "main", [each.type for each in operands], names, [op.results[0].type])
            with ir.InsertionPoint(main.block):
                copy = op.operation.clone().opview
                for number, operand in enumerate(op.operands):
                    copy.operands[number] = main.block.arguments[operands.index(operand)]
                func.ReturnOp([rewrite(copy)])
        hoist_weights(module)
        return self._estimator.cycles(module)
