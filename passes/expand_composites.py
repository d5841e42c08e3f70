"""expand-composites: composites become what they stand for, but for those that a kernel may be made of.

Behind this pass a norm, a softmax or an activation is written in one way, whatever way the model took: the one that
costs least. The passes that follow look at plain operations.

Before:

    %0 = stablehlo.composite "tpuc.silu" %x {decomposition = @tpuc.silu.0} : (tensor<8x64xf32>) -> tensor<8x64xf32>

After:

    %0 = stablehlo.negate %x : tensor<8x64xf32>
    %1 = stablehlo.exponential %0 : tensor<8x64xf32>
    %2 = stablehlo.add %one, %1 : tensor<8x64xf32>
    %3 = stablehlo.divide %one, %2 : tensor<8x64xf32>
    %4 = stablehlo.multiply %x, %3 : tensor<8x64xf32>

`tpuc.attention` stays for attention-kernel, and what is none of tpuc's composites for XLA. `tpuc.lowerings.composites`
says what each stands for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.lowerings.attention import ATTENTION
from tpuc.lowerings.composites import COMPOSITES
from tpuc.passes.base import Pass, PassContext

_EXPANDED = COMPOSITES.keys() - {ATTENTION}


@dataclass(frozen=True, kw_only=True)
class ExpandComposites(Pass):
    """Replaces composites of norms, softmax and activations by what they stand for."""

    name: ClassVar[str] = "expand-composites"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place; counts by the composites' names."""
        expanded: Counter[str] = Counter()
        functions = mlir.functions(module)
        with module.context:
            for composite in mlir.find(module, "stablehlo.composite"):
                name = ir.StringAttr(composite.attributes["name"]).value
                if name in _EXPANDED:
                    mlir.inline(composite, functions[mlir.symbol(composite, "decomposition")])
                    expanded[name.removeprefix("tpuc.")] += 1
        if expanded:
            mlir.run_pipeline(module, "symbol-dce")
        return expanded
