"""What is said of 64-bit arithmetic that is left for a TPU."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tpuc
from tpuc import mlir
from tpuc.report.wide_arithmetic import WidePlace, wide_note, wide_places

_PROGRAM = """
func.func public @main(%x: tensor<8x4xf64>, %i: tensor<8xi64>, %n: tensor<i64>) -> (tensor<8x4xf64>, tensor<8xi1>) {
  %0 = stablehlo.add %x, %x : tensor<8x4xf64> loc("a.py":1:0)
  %1 = stablehlo.slice %0 [0:4, 0:4] : (tensor<8x4xf64>) -> tensor<4x4xf64> loc("a.py":2:0)
  %2 = stablehlo.exponential %1 : tensor<4x4xf64> loc("a.py":1:0)
  %3 = stablehlo.add %n, %n : tensor<i64> loc("a.py":3:0)
  %4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<i64>) -> tensor<8xi64> loc("a.py":3:0)
  %5 = stablehlo.compare LT, %i, %4 : (tensor<8xi64>, tensor<8xi64>) -> tensor<8xi1> loc("layer/lt"("a.py":4:0))
  return %0, %5 : tensor<8x4xf64>, tensor<8xi1>
}
"""


def test_each_line_is_there_once_with_its_largest_array() -> None:
    with mlir.make_context() as context:
        places = wide_places(mlir.parse(_PROGRAM, context))
    assert places == (
        WidePlace(elements=32, array="f64[8,4]", place="a.py:1"),
        WidePlace(elements=8, array="i64[8]", place="a.py:4"),
    )


def test_only_the_largest_are_listed() -> None:
    assert wide_note([]) == ""
    places = [WidePlace(elements=n, array=f"i64[{n}]", place=f"a.py:{n}") for n in range(2, 8)]
    assert wide_note(places) == (
        "a TPU emulates 64-bit arithmetic, and this much is left of it: "
        "i64[7] at a.py:7, i64[6] at a.py:6, i64[5] at a.py:5, i64[4] at a.py:4, and 2 places more"
    )


class _Wide(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        return y.double().exp()  # in f64


@pytest.mark.parametrize(("target", "is_told"), [("v5e", True), ("cpu", False)])
def test_a_compile_for_a_tpu_tells_the_line(tmp_path: Path, target: str, is_told: bool) -> None:
    compiled = tpuc.compile(_Wide(), (torch.ones(4, 4),), targets=[target], output=tmp_path / "a.bin")
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# in f64"))
    notes = [note for note in compiled.progress.notes if "64-bit" in note]
    assert bool(notes) == is_told
    assert all(f"f64[4,4] at {__file__}:{line}" in note for note in notes)
