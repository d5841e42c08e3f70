"""Statistics of rows: what they are of, however they were copied, and what else reads their parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc import mlir
from tpuc.passes.rows import Statistic, is_closed

SQUARE = "tensor<4x4xf32>"


@contextmanager
def _copied(dims: str, *, through: str = "") -> Iterator[list[ir.OpView]]:
    """The operations of a program that copies the sums of a square's rows."""
    copied = f"%0 = stablehlo.broadcast_in_dim %sum, dims = {dims} : (tensor<4xf32>) -> {SQUARE}"
    if through:
        copied = f"""%kept = stablehlo.reshape %sum : (tensor<4xf32>) -> {through}
          %0 = stablehlo.broadcast_in_dim %kept, dims = {dims} : ({through}) -> {SQUARE}"""
    with mlir.make_context() as context:
        module = mlir.parse(
            f"""func.func @main(%x: {SQUARE}) -> {SQUARE} {{
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
              : ({SQUARE}, tensor<f32>) -> tensor<4xf32>
          {copied}
          %1 = stablehlo.multiply %x, %0 : {SQUARE}
          return %1 : {SQUARE}
        }}""",
            context,
        )
        yield list(mlir.functions(module)["main"].regions[0].blocks[0].operations)


@pytest.mark.parametrize(("dims", "through"), [("[0]", ""), ("[0, 1]", "tensor<4x1xf32>")])
def test_a_sum_is_found_behind_its_copies(dims: str, through: str) -> None:
    with _copied(dims, through=through) as operations:
        found = Statistic.of(operations[-2].operands[1]).reduction(stablehlo.AddOp, 0)
        assert found == operations[1]


@pytest.mark.parametrize(("dims", "through"), [("[1]", ""), ("[0, 1]", "tensor<1x4xf32>")])
def test_rows_that_are_put_back_as_columns_are_none(dims: str, through: str) -> None:
    with _copied(dims, through=through) as operations:
        assert Statistic.of(operations[-2].operands[1]).reduction(stablehlo.AddOp, 0) is None


@pytest.mark.parametrize(("combine", "start"), [(stablehlo.MaxOp, 0), (stablehlo.AddOp, 1)])
def test_another_reduction_is_none(combine: type[ir.OpView], start: float) -> None:
    with _copied("[0]") as operations:
        assert Statistic.of(operations[-2].operands[1]).reduction(combine, start) is None


def test_what_others_read_is_not_closed() -> None:
    with _copied("[0]") as operations:
        x = operations[1].operands[0]
        assert is_closed(operations[-2], [x])
        with operations[-1].location, ir.InsertionPoint(operations[-1]):
            stablehlo.negate(operations[1].results[0])
        assert not is_closed(operations[-2], [x])
