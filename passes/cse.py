"""cse: computes only once what is computed twice.

Exports repeat themselves: every layer converts the same epsilon and slices the same table. This is MLIR's own pass;
the first of several equal operations stays, with its source location.

Before:

    %0 = stablehlo.exponential %x : tensor<4xf32>
    %1 = stablehlo.exponential %x : tensor<4xf32>
    %2 = stablehlo.add %0, %1 : tensor<4xf32>

After:

    %0 = stablehlo.exponential %x : tensor<4xf32>
    %1 = stablehlo.add %0, %0 : tensor<4xf32>
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.passes.base import Pass, PassContext


@dataclass(frozen=True, kw_only=True)
class Cse(Pass):
    """Computes only once what is computed twice (MLIR's `cse`)."""

    name: ClassVar[str] = "cse"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place; does not count."""
        mlir.run_pipeline(module, "cse")
        return {}
