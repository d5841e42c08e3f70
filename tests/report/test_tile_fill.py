"""How much of the tiles products fill."""

from __future__ import annotations

import pytest

from tpuc import mlir
from tpuc.report.tile_fill import tile_fill


def _fill(signature: str, op: str, result: str) -> float | None:
    text = f"func.func @main({signature}) -> {result} {{\n%0 = {op}\nreturn %0 : {result}\n}}"
    with mlir.make_context() as context:
        return tile_fill(mlir.parse(text, context))


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "filled"),
    [(8, 128, 128, 1.0), (1, 128, 128, 1 / 8), (16, 64, 128, 1 / 2), (8, 128, 1000, 1000 / 1024), (9, 129, 1, 0.0022)],
)
def test_a_product_fills_what_divides(rows: int, inner: int, columns: int, filled: float) -> None:
    lhs, rhs, result = f"tensor<3x{rows}x{inner}xf32>", f"tensor<3x{inner}x{columns}xf32>", f"{rows}x{columns}xf32>"
    op = (
        f"stablehlo.dot_general %x, %w, batching_dims = [0] x [0], contracting_dims = [2] x [1] "
        f": ({lhs}, {rhs}) -> tensor<3x{result}"
    )
    assert _fill(f"%x: {lhs}, %w: {rhs}", op, f"tensor<3x{result}") == pytest.approx(filled, rel=0.02)


@pytest.mark.parametrize(("groups", "filled"), [(1, 3 / 128), (3, None)])
def test_a_convolution_is_a_product_a_position_of_its_window(groups: int, filled: float | None) -> None:
    x, w = "tensor<2x3x16x16xf32>", f"tensor<384x{3 // groups}x3x3xf32>"
    op = (
        "stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], "
        "window = {pad = [[1, 1], [1, 1]]} "
        f"{{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}} : ({x}, {w}) -> tensor<2x384x16x16xf32>"
    )
    assert _fill(f"%x: {x}, %w: {w}", op, "tensor<2x384x16x16xf32>") == (filled and pytest.approx(filled))


def test_without_products_there_are_no_tiles_to_fill() -> None:
    assert _fill("%x: tensor<4xf32>", "stablehlo.tanh %x : tensor<4xf32>", "tensor<4xf32>") is None
