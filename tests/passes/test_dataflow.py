"""Which operations are alike, and what depends on what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tpuc import mlir
from tpuc.passes.dataflow import Dataflow
from tpuc.passes.main import Main


@contextmanager
def _dataflow(*lines: str) -> Iterator[Dataflow]:
    body = "\n  ".join([*lines, "return"])
    arguments = '%x: tensor<4xf32> {tpuc.argument = "input:x"}, %w: tensor<4xf32> {tpuc.argument = "weight:w"}'
    with mlir.make_context() as context:
        module = mlir.parse(f"func.func public @main({arguments}) {{\n  {body}\n}}", context)
        yield Dataflow(Main(module))


REDUCE = "stablehlo.reduce(%{} init: %z) applies stablehlo.{} across dimensions = [0] "
REDUCE += ": (tensor<4xf32>, tensor<f32>) -> tensor<f32>"
ZERO = "%z = stablehlo.constant dense<0.0> : tensor<f32>"
TANH = "%t = stablehlo.tanh %x : tensor<4xf32>"


@pytest.mark.parametrize(
    ("first", "second", "are_alike"),
    [
        ("stablehlo.tanh %x : tensor<4xf32>", "stablehlo.tanh %t : tensor<4xf32>", True),
        ("stablehlo.tanh %x : tensor<4xf32>", "stablehlo.sine %t : tensor<4xf32>", False),
        ("stablehlo.slice %x [0:2] : (tensor<4xf32>) -> tensor<2xf32>",
         "stablehlo.slice %t [2:4] : (tensor<4xf32>) -> tensor<2xf32>", False),
        (REDUCE.format("x", "add"), REDUCE.format("t", "add"), True),
        (REDUCE.format("x", "add"), REDUCE.format("t", "maximum"), False),
        ("stablehlo.custom_call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>",
         "stablehlo.custom_call @f(%t) : (tensor<4xf32>) -> tensor<4xf32>", True),
        ("stablehlo.custom_call @f(%x) {has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32>",
         "stablehlo.custom_call @f(%t) {has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32>", False),
    ],
)  # fmt: skip
def test_what_is_alike(first: str, second: str, are_alike: bool) -> None:
    with _dataflow(ZERO, TANH, f"%a = {first}", f"%b = {second}") as program:
        row = (program.results[2][0], program.results[3][0])
        assert program.alike(row, (0, 0)) == ((2, 3) if are_alike else None)


def test_complex_constants_are_read() -> None:
    with _dataflow("%a = stablehlo.constant dense<(0.0, 1.0)> : tensor<2xcomplex<f64>>") as program:
        assert len(program.ops) == 1


def test_what_stands_before_the_layers_is_no_part_of_them() -> None:
    lines = [TANH, "%a = stablehlo.sine %x : tensor<4xf32>", "%b = stablehlo.sine %t : tensor<4xf32>"]
    with _dataflow(*lines) as program:
        row = (program.results[1][0], program.results[2][0])
        assert program.alike(row, (0, 0)) == (1, 2)
        assert program.alike(row, (0, 1 << 2)) is None


def test_what_is_prepared_from_weights_is_not_followed() -> None:
    with _dataflow("%a = stablehlo.tanh %w : tensor<4xf32>", "%b = stablehlo.tanh %a : tensor<4xf32>") as program:
        assert program.alike((program.results[0][0], program.results[1][0]), (0, 0)) is None


def test_what_reads_one_of_some_taken_together_depends_on_all_of_them() -> None:
    lines = [TANH, "%a = stablehlo.sine %x : tensor<4xf32>", "%b = stablehlo.cosine %t : tensor<4xf32>"]
    with _dataflow(*lines) as program:
        assert program.ancestors_of(program.results[2][0]) == 0b101
        program.take([0, 1])
        assert program.ancestors_of(program.results[2][0]) == 0b111
        assert program.is_taken(1)
        assert not program.is_taken(2)


def test_a_region_reads_what_it_captures() -> None:
    branch = """%b = "stablehlo.if"(%p) ({
      stablehlo.return %t : tensor<4xf32>
    }, {
      stablehlo.return %x : tensor<4xf32>
    }) : (tensor<i1>) -> tensor<4xf32>"""
    with _dataflow("%p = stablehlo.constant dense<true> : tensor<i1>", TANH, branch) as program:
        assert program.ancestors_of(program.results[2][0]) == 0b111
