"""Padded products compute what the products do, whichever of their dimensions is padded."""

import re

import pytest
from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.passes.base import PassContext
from tpuc.passes.pad_to_tiles import PadToTiles
from tpuc.targets import Target

from .estimators import NothingPays, OneByOne, PaysWhenChanged, Refuses
from .evaluation import evaluate, make_inputs

V5E = Target.parse("v5e")


class Pays(OneByOne):
    """Takes one way to pad a product for the cheapest."""

    def __init__(self, lhs: str, rhs: str) -> None:
        self._wanted = f"(tensor<{lhs}xf32>, tensor<{rhs}xf32>)"

    def cycles(self, module: ir.Module) -> int:
        return 1 if self._wanted in mlir.to_text(module) else 100


def _product(rows: int, inner: int, columns: int, lhs_dimension: int, rhs_dimension: int) -> str:
    lhs = (inner, rows) if lhs_dimension == 0 else (rows, inner)
    rhs = (inner, columns) if rhs_dimension == 0 else (columns, inner)
    types = [f"tensor<{a}x{b}xf32>" for a, b in (lhs, rhs, (rows, columns))]
    return f"""
    func.func public @main(%x: {types[0]} {{tpuc.argument = "input:x"}}, %w: {types[1]} {{tpuc.argument = "weight:w"}})
        -> {types[2]} {{
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [{lhs_dimension}] x [{rhs_dimension}]
          : ({types[0]}, {types[1]}) -> {types[2]}
      return %0 : {types[2]}
    }}
    """


@pytest.mark.parametrize(
    ("lhs", "rhs"), [("8x70", "70x100"), ("3x128", "128x100"), ("3x70", "70x128"), ("8x128", "128x128")]
)
@pytest.mark.parametrize("lhs_dimension", [0, 1])
@pytest.mark.parametrize("rhs_dimension", [0, 1])
def test_every_way_gives_the_same(lhs: str, rhs: str, lhs_dimension: int, rhs_dimension: int) -> None:
    lhs = lhs if lhs_dimension == 1 else "x".join(lhs.split("x")[::-1])
    rhs = rhs if rhs_dimension == 0 else "x".join(rhs.split("x")[::-1])
    with mlir.make_context() as context:
        module = mlir.parse(_product(3, 70, 100, lhs_dimension, rhs_dimension), context)
        inputs = make_inputs(module, 0)
        (before,) = evaluate(module, inputs)
        assert PadToTiles().run(module, PassContext(target=V5E, estimator=Pays(lhs, rhs))) == {"padded": 1}
        module.operation.verify()
        (after,) = evaluate(module, inputs)
    assert re.search(rf"\(tensor<{lhs}xf32>, tensor<{rhs}xf32>\)", mlir.to_text(module))
    assert after == pytest.approx(before, rel=1e-5, abs=1e-5)


def _layer(batch: int, rows: int, inner: int, columns: int) -> str:
    """A layer's product: batches of rows with a matrix."""
    types = [f"tensor<{batch}x{rows}x{inner}xf32>", f"tensor<{inner}x{columns}xf32>"]
    result = f"tensor<{batch}x{rows}x{columns}xf32>"
    return f"""
    func.func public @main(%x: {types[0]} {{tpuc.argument = "input:x"}}, %w: {types[1]} {{tpuc.argument = "weight:w"}})
        -> {result} {{
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0] : ({types[0]}, {types[1]}) -> {result}
      return %0 : {result}
    }}
    """


@pytest.mark.parametrize(
    ("batch", "lhs", "rhs"), [(2, "2x3x128", "128x128"), (2, "2x3x70", "70x128"), (1, "1x8x70", "70x100")]
)
def test_a_layer_of_batches_is_padded_too(batch: int, lhs: str, rhs: str) -> None:
    with mlir.make_context() as context:
        module = mlir.parse(_layer(batch, 3, 70, 100), context)
        inputs = make_inputs(module, 0)
        (before,) = evaluate(module, inputs)
        assert PadToTiles().run(module, PassContext(target=V5E, estimator=Pays(lhs, rhs))) == {"padded": 1}
        module.operation.verify()
        (after,) = evaluate(module, inputs)
    assert f"(tensor<{lhs}xf32>, tensor<{rhs}xf32>)" in mlir.to_text(module)
    assert after == pytest.approx(before, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        _layer(2, 3, 128, 128),  # Six rows in all: to pad three to eight would be more for nothing.
        """
        func.func public @main(%x: tensor<4x70xf32>, %y: tensor<4x70xf32>) -> tensor<4xf32> {
          %0 = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [1] x [1]
              : (tensor<4x70xf32>, tensor<4x70xf32>) -> tensor<4xf32>
          return %0 : tensor<4xf32>
        }
        """,
    ],
)
def test_what_it_has_no_way_for(text: str) -> None:
    with mlir.make_context() as context:
        module = mlir.parse(text, context)
        assert PadToTiles().run(module, PassContext(target=V5E, estimator=PaysWhenChanged("no such text"))) == {}


@pytest.mark.parametrize("estimator", [None, NothingPays(), Refuses()])
def test_what_does_not_pay_stays(estimator: NothingPays | Refuses | None) -> None:
    with mlir.make_context() as context:
        module = mlir.parse(_product(3, 70, 100, 1, 0), context)
        assert PadToTiles().run(module, PassContext(target=V5E, estimator=estimator)) == {}  # type: ignore[arg-type]


def test_there_is_nothing_to_pad_in_an_empty_product() -> None:
    with mlir.make_context() as context:
        module = mlir.parse(_product(3, 0, 100, 1, 0), context)
        assert PadToTiles().run(module, PassContext(target=V5E, estimator=PaysWhenChanged("no such text"))) == {}
