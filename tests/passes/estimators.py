"""Estimators whose answers are known, for tests of passes that ask whether a rewrite pays."""

import abc
from collections.abc import Sequence
from concurrent.futures import Future

from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.passes.base import LoopCosts


class OneByOne(abc.ABC):
    """Answers for each module by itself."""

    @abc.abstractmethod
    def cycles(self, module: ir.Module) -> int | None:
        """Says what a module costs."""

    def cycles_of(self, modules: Sequence[ir.Module]) -> list[int | None]:
        return [self.cycles(module) for module in modules]

    def loops_of(self, module: ir.Module) -> Future[LoopCosts | None]:
        return answered(None)


def answered(costs: LoopCosts | None) -> Future[LoopCosts | None]:
    """Gives an answer that is there already."""
    future: Future[LoopCosts | None] = Future()
    future.set_result(costs)
    return future


class PaysWhenChanged(OneByOne):
    """Takes any program for cheaper than one with an operation that a pass looks for, as it came."""

    def __init__(self, original: str) -> None:
        self._original = original

    def cycles(self, module: ir.Module) -> int:
        return 100 if self._original in mlir.to_text(module) else 1


class NothingPays(OneByOne):
    def cycles(self, module: ir.Module) -> int:
        return 100


class Refuses(OneByOne):
    def cycles(self, module: ir.Module) -> None:
        return None
