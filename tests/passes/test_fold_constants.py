"""What the reference interpreter is asked to evaluate: it ends the process over what it does not know."""

from __future__ import annotations

import pytest
from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.passes.fold_constants import FoldConstants
from tpuc.passes.rewrite import nested_ops
from tpuc.passes.tensors import ELEMENTWISE
from tpuc.targets import CPU

#: Element types with two values of each.
TYPES = {
    "i1": "[true, false]",
    "i4": "[1, -3]",
    "i8": "[1, -3]",
    "i64": "[1, -3]",
    "ui8": "[1, 250]",
    "ui64": "[1, 250]",
    "f8E4M3FN": "[1.5, -0.0]",
    "f8E5M2": "[1.5, 0x7C]",
    "f16": "[1.5, -0.0]",
    "bf16": "[1.5, 0x7F80]",
    "f32": "[0x7FC00000, -0.0]",
    "f64": "[1.5, 0x7FF0000000000000]",
}


def test_max_elements() -> None:
    text = """
    func.func @main() -> (tensor<2x4xi32>, tensor<2x2xi32>) {
      %0 = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
      %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<4xi32>) -> tensor<2x4xi32>
      %2 = stablehlo.slice %0 [0:2] : (tensor<4xi32>) -> tensor<2xi32>
      %3 = stablehlo.broadcast_in_dim %2, dims = [1] : (tensor<2xi32>) -> tensor<2x2xi32>
      return %1, %3 : tensor<2x4xi32>, tensor<2x2xi32>
    }
    """
    with mlir.make_context() as context:
        module = mlir.parse(text, context)
        assert FoldConstants(max_elements=4).run(module, CPU) == {"fold_elements": 2}
        assert [op.name for op in nested_ops(module.operation)].count("stablehlo.broadcast_in_dim") == 1
        assert FoldConstants(max_elements=8).run(module, CPU) == {"fold_elements": 1}


@pytest.mark.parametrize("element_type", TYPES)
def test_every_elementwise_operation_can_be_evaluated(element_type: str) -> None:
    folded = 0
    with mlir.make_context() as context:
        for op in ELEMENTWISE:
            for text in _uses(op.OPERATION_NAME, element_type):
                try:
                    module = mlir.parse(text, context)
                except ir.MLIRError:
                    continue  # not an operation of that type, or not with so many operands
                assert FoldConstants().run(module, CPU).keys() <= {"fold_elements", "fold_elementwise_splat"}, text
                names = {each.name for each in nested_ops(module.operation)}
                divides = op.OPERATION_NAME in ("stablehlo.divide", "stablehlo.remainder") and "i" in element_type
                assert (op.OPERATION_NAME in names) == divides, text
                folded += not divides
    assert folded >= 8


def _uses(name: str, element_type: str) -> list[str]:
    """Lists modules that use an operation on constants, as it would take one, two or three operands."""
    kind = f"tensor<2x{element_type}>"
    result = "tensor<2xi1>" if name in ("stablehlo.compare", "stablehlo.is_finite") else kind
    attributes = " {comparison_direction = #stablehlo<comparison_direction LT>}" if name == "stablehlo.compare" else ""
    operands = [["%a"], ["%a", "%b"], ["%p", "%a", "%b"], ["%a", "%b", "%a"]]
    types = {"%a": kind, "%b": kind, "%p": "tensor<2xi1>"}
    return [
        f"""
        func.func @main() -> {result} {{
          %p = stablehlo.constant dense<[true, false]> : tensor<2xi1>
          %a = stablehlo.constant dense<{TYPES[element_type]}> : {kind}
          %b = stablehlo.constant dense<{TYPES[element_type]}> : {kind}
          %r = "{name}"({", ".join(names)}){attributes} : ({", ".join(types[each] for each in names)}) -> {result}
          return %r : {result}
        }}
        """
        for names in operands
    ]
