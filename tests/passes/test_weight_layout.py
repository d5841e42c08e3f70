"""Weights are stored in other shapes only where that pays, and with nothing stored twice or made larger."""

from typing import NoReturn

import pytest
from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.passes.base import Estimator, PassContext
from tpuc.passes.main import Main
from tpuc.passes.weight_layout import WeightLayout
from tpuc.targets import Target

from .estimators import NothingPays, OneByOne, PaysWhenChanged, Refuses

V5E = Target.parse("v5e")
KERNEL = "tensor<32x16x1x1xf32>"


class Unasked(OneByOne):
    def cycles(self, module: ir.Module) -> NoReturn:
        pytest.fail(f"tried:\n{mlir.to_text(module)}")


def _convolution(
    *,
    image: str = "1x16x2x2",
    kernel: str = "32x16x1x1",
    result: str = "1x32x2x2",
    of_weights: str = "",
    reads: str = "%w",
) -> str:
    return f"""
    func.func public @main(%x: tensor<{image}xf32> {{tpuc.argument = "input:x"}},
                           %w: tensor<{kernel}xf32> {{tpuc.argument = "weight:w"}},
                           %q: tensor<{kernel}xi8> {{tpuc.argument = "weight:q"}}) -> tensor<{result}xf32> {{
      {of_weights}
      %y = stablehlo.convolution(%x, {reads}) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {{}}
          {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
          : (tensor<{image}xf32>, tensor<{kernel}xf32>) -> tensor<{result}xf32>
      return %y : tensor<{result}xf32>
    }}
    """


def _bias(*, result: str = "%0") -> str:
    return f"""
    func.func public @main(%x: tensor<1x4xf32> {{tpuc.argument = "input:x"}},
                           %b: tensor<4xf32> {{tpuc.argument = "weight:b"}}) -> tensor<1x4xf32> {{
      %0 = stablehlo.reshape %b : (tensor<4xf32>) -> tensor<1x4xf32>
      %1 = stablehlo.tanh %0 : tensor<1x4xf32>
      %2 = stablehlo.add %x, %1 : tensor<1x4xf32>
      return {result} : tensor<1x4xf32>
    }}
    """


def _run(text: str, estimator: Estimator | None) -> tuple[dict[str, int], list[str]]:
    """What the pass counts, and what the program takes then."""
    with mlir.make_context() as context:
        module = mlir.parse(text, context)
        counts = WeightLayout().run(module, PassContext(target=V5E, estimator=estimator))
        module.operation.verify()
        return dict(counts), Main(module).argument_names


def test_a_kernel_is_stored_as_it_is_computed_and_as_a_matrix() -> None:
    text = _convolution(of_weights=f"%k = stablehlo.tanh %w : {KERNEL}", reads="%k")
    counts, arguments = _run(text, PaysWhenChanged(f"%arg1: {KERNEL}"))
    assert counts == {"pointwise": 1}
    assert arguments == ["input:x", "prepared:prepare.0"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(_convolution(image="1x16x20x20", result="1x32x20x20"), id="a kernel smaller than the image"),
        pytest.param(_convolution(kernel="32x16x2x2", result="1x32x1x1"), id="a kernel of several positions"),
        pytest.param(_convolution(kernel="32x1x1x1", image="1x1x2x2"), id="a kernel that is no matrix"),
        pytest.param(
            _convolution(of_weights=f"%k = stablehlo.convert %q : (tensor<32x16x1x1xi8>) -> {KERNEL}", reads="%k"),
            id="a kernel that is stored in a narrower type",
        ),
        pytest.param(
            _convolution(of_weights=f"%k = stablehlo.negate %w : {KERNEL}"), id="a kernel that others read too"
        ),
        pytest.param(_bias(result="%0"), id="a weight that is a result"),
        pytest.param(_bias(result="%2"), id="a weight of which more is computed"),
    ],
)
def test_not_tried(text: str) -> None:
    assert _run(text, Unasked())[0] == {}


@pytest.mark.parametrize("estimator", [None, NothingPays(), Refuses()])
def test_what_does_not_pay_stays(estimator: Estimator | None) -> None:
    counts, arguments = _run(_convolution(), estimator)
    assert counts == {}
    assert arguments == ["input:x", "weight:w", "weight:q"]
