"""Rules of `pad-dynamic` for what works on the last dimensions, and on each of the others alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.axes import Layout, dense, join
from tpuc.passes.padding import Padding, Refusal
from tpuc.passes.padding_rules import on
from tpuc.passes.rewrite import op_name


@on(stablehlo.CholeskyOp, stablehlo.TriangularSolveOp, stablehlo.FftOp)
def batched(op: Any, padding: Padding) -> Sequence[Layout]:
    """The leading dimensions are batches; the others must not vary."""
    own = len(op.fft_length) if op_name(op) == "stablehlo.fft" else 2
    values = list(op.operands)
    if any(axis.is_padded for value in values for axis in padding.layouts[value][-own:]):
        raise Refusal("the dimensions that it works on vary")
    batch = [join(axes) for axes in zip(*(padding.layouts[value][:-own] for value in values), strict=True)]
    for place, value in enumerate(values):
        op.operation.operands[place] = padding.move(value, (*batch, *padding.layouts[value][-own:]))
    [dims] = padding.result_dims(op)
    shape = op.results[0].type.shape
    return [(*(axis.concrete for axis in batch), *dense(shape[-own:], dims[-own:]))]
