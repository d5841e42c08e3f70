"""Estimators whose answers are known, for tests of passes that ask whether a rewrite pays."""

from jaxlib.mlir import ir

from tpuc import mlir


class PaysWhenChanged:
    """Takes any program for cheaper than one with an operation that a pass looks for, as it came."""

    def __init__(self, original: str) -> None:
        self._original = original

    def cycles(self, module: ir.Module) -> int:
        return 100 if self._original in mlir.to_text(module) else 1


class NothingPays:
    def cycles(self, module: ir.Module) -> int:
        return 100


class Refuses:
    def cycles(self, module: ir.Module) -> None:
        return None
