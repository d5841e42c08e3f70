"""Asking the compiler whether a rewrite of one operation pays."""

from __future__ import annotations

from collections.abc import Callable

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from tpuc.passes.base import Estimator
from tpuc.passes.hoist_weights import hoist_weights
from tpuc.passes.main import Main, new_function
from tpuc.passes.rewrite import Tensor
from tpuc.passes.weight_only import Weights

#: Builds what stands in for an operation, before it.
Rewrite = Callable[[ir.OpView], Tensor]

#: A rewrite must save this part of the cycles: smaller differences are within what estimates are worth.
_LEAST_GAIN = 0.02


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

    def best(self, op: ir.OpView, rewrites: list[Rewrite]) -> Rewrite | None:
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
            main = new_function(module, "main", [each.type for each in operands], names, op.results[0].type)
            with ir.InsertionPoint(main.block):
                copy = op.operation.clone().opview
                for number, operand in enumerate(op.operands):
                    copy.operands[number] = main.block.arguments[operands.index(operand)]
                func.ReturnOp([rewrite(copy)])
        hoist_weights(module)
        return self._estimator.cycles(module)
