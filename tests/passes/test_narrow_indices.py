"""Indices beyond 32 bits, which no golden test makes, and ranges against all numbers within them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tpuc import mlir
from tpuc.passes import PASSES, run_passes
from tpuc.passes.integer_ranges import Range, range_of
from tpuc.targets import CPU

from .evaluation import evaluate

GATHER = """
func.func @main(%t: tensor<9x2xf32>, %ids: tensor<8x1xi64>) -> tensor<8x2xf32> {
  %0 = "stablehlo.gather"(%t, %ids) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
      collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false,
      slice_sizes = array<i64: 1, 2>}> : (tensor<9x2xf32>, tensor<8x1xi64>) -> tensor<8x2xf32>
  return %0 : tensor<8x2xf32>
}
"""
SCATTER = """
func.func @main(%t: tensor<9x2xf32>, %ids: tensor<8x1xi64>) -> tensor<9x2xf32> {
  %updates = stablehlo.constant dense<1.0> : tensor<8x2xf32>
  %0 = "stablehlo.scatter"(%t, %ids, %updates) <{scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>,
      indices_are_sorted = false, unique_indices = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<9x2xf32>, tensor<8x1xi64>, tensor<8x2xf32>) -> tensor<9x2xf32>
  return %0 : tensor<9x2xf32>
}
"""


@pytest.mark.parametrize("text", [GATHER, SCATTER])
def test_indices_out_of_bounds_do_what_they_did(text: str) -> None:
    # Cut to 32 bits, all of these would be within bounds.
    ids = np.array([2**32 + 3, -(2**32) + 1, 2**40, -(2**63), 2**63 - 1, -1, 9, 4], np.int64)[:, None]
    table = np.arange(18, dtype=np.float32).reshape(9, 2)
    with mlir.make_context() as context:
        module = mlir.parse(text, context)
        (before,) = evaluate(module, [table, ids])
        run_passes(module, [PASSES["narrow-indices"]()], CPU)
        assert "xi32>" in mlir.to_text(module)
        (after,) = evaluate(module, [table, ids])
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum", "minimum", "remainder"])
def test_ranges_are_those_of_all_numbers(name: str) -> None:
    meaning = {
        "add": lambda x, y: x + y,
        "subtract": lambda x, y: x - y,
        "multiply": lambda x, y: x * y,
        "maximum": max,
        "minimum": min,
        "remainder": lambda x, y: int(np.fmod(x, y)),
    }[name]
    text = f"""func.func @main(%a: tensor<i64>, %b: tensor<i64>) -> tensor<i64> {{
      %0 = stablehlo.{name} %a, %b : tensor<i64>
      return %0 : tensor<i64>
    }}"""
    with mlir.make_context() as context:
        module = mlir.parse(text, context)
        op = mlir.functions(module)["main"].regions[0].blocks[0].operations[0]
        for a, b in itertools.product([(-5, 7), (2, 3), (-8, -4), (0, 0)], [(-3, 4), (2, 6), (-7, -2)]):
            if name == "remainder" and b[0] <= 0:
                continue
            found = range_of(op, dict(zip(op.operands, (Range(*a), Range(*b)), strict=True)))
            numbers = [meaning(x, y) for x in range(a[0], a[1] + 1) for y in range(b[0], b[1] + 1)]
            assert found is not None
            assert Range(min(numbers), max(numbers)).fits(found)
            if name != "remainder":
                assert found == Range(min(numbers), max(numbers))
        # A number that leaves 64 bits comes back at the other end.
        huge = dict(zip(op.operands, (Range(0, 2**62), Range(2, 2**62)), strict=True))
        assert (range_of(op, huge) is None) == (name in ("add", "multiply"))
