"""What convert-arith says when it cannot convert everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuc import mlir
from tpuc.errors import PassError
from tpuc.passes import parse_pipeline, run_passes
from tpuc.targets import CPU


def test_what_cannot_be_converted_is_named_with_its_place(tmp_path: Path) -> None:
    text = """
    func.func @main(%x: tensor<4xf32>, %start: tensor<1xi32>) -> (tensor<2xf32>, tensor<?xf32>) {
      %one = arith.constant dense<1> : tensor<1xi32>
      %limit = stablehlo.add %start, %one : tensor<1xi32>
      %0 = stablehlo.real_dynamic_slice %x, %start, %limit, %one
        : (tensor<4xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<2xf32>
        loc("head/slice"("model.py":7:0))
      %1 = tensor.cast %x : tensor<4xf32> to tensor<?xf32> loc("head/view"("model.py":9:0))
      return %0, %1 : tensor<2xf32>, tensor<?xf32>
    }
    """
    with mlir.make_context() as context:
        module = mlir.parse(text, context)
        with pytest.raises(PassError) as caught:
            run_passes(module, parse_pipeline("convert-arith"), CPU, dump=tmp_path)
    assert caught.value.what == (
        "pass convert-arith failed: 2 operations cannot be made static StableHLO:\n"
        '  stablehlo.real_dynamic_slice at "head/slice"("model.py":7:0)\n'
        '  tensor.cast at "head/view"("model.py":9:0)'
    )


def test_a_dynamic_shape_stays_and_is_named(tmp_path: Path) -> None:
    text = """
    func.func @main(%x: tensor<?xf32>, %shape: tensor<2xi32>) -> tensor<?x2xf32> {
      %0 = stablehlo.dynamic_reshape %x, %shape : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x2xf32>
      return %0 : tensor<?x2xf32>
    }
    """
    with mlir.make_context() as context:
        module = mlir.parse(text, context)
        with pytest.raises(
            PassError, match=r"1 operation cannot be made static StableHLO:\n  stablehlo.dynamic_reshape"
        ):
            run_passes(module, parse_pipeline("convert-arith"), CPU, dump=tmp_path)
