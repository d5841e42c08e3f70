"""by_blocks computes what the convolution does, for every stride, window and padding."""

import pytest

from tpuc import mlir
from tpuc.passes.base import PassContext
from tpuc.passes.space_to_depth import SpaceToDepth
from tpuc.targets import Target

from .estimators import NothingPays, PaysWhenChanged, Refuses
from .evaluation import evaluate, make_inputs


def _convolution(height: int, width: int, kernel: int, strides: tuple[int, int], pads: tuple[int, int]) -> str:
    out = [(size + sum(pads) - kernel) // stride + 1 for size, stride in zip((height, width), strides, strict=True)]
    return f"""
    func.func public @main(%x: tensor<2x3x{height}x{width}xf32> {{tpuc.argument = "input:x"}},
                           %w: tensor<5x3x{kernel}x{kernel}xf32> {{tpuc.argument = "weight:w"}})
        -> tensor<2x5x{out[0]}x{out[1]}xf32> {{
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
          window = {{stride = {list(strides)}, pad = [{list(pads)}, {list(pads)}]}}
          {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
          : (tensor<2x3x{height}x{width}xf32>, tensor<5x3x{kernel}x{kernel}xf32>) -> tensor<2x5x{out[0]}x{out[1]}xf32>
      return %0 : tensor<2x5x{out[0]}x{out[1]}xf32>
    }}
    """


@pytest.mark.parametrize("sizes", [(9, 12), (8, 7)])
@pytest.mark.parametrize("kernel", [1, 3, 4])
@pytest.mark.parametrize("strides", [(2, 2), (3, 1), (2, 4)])
@pytest.mark.parametrize("pads", [(0, 0), (1, 2), (2, 0)])
def test_equal(sizes: tuple[int, int], kernel: int, strides: tuple[int, int], pads: tuple[int, int]) -> None:
    with mlir.make_context() as context:
        module = mlir.parse(_convolution(*sizes, kernel, strides, pads), context)
        inputs = make_inputs(module, 0)
        (before,) = evaluate(module, inputs)
        stride = f"stride = {list(strides)}"
        passed = PassContext(target=Target.parse("v5e"), estimator=PaysWhenChanged(stride))
        assert SpaceToDepth().run(module, passed) == {"rewritten": 1}
        module.operation.verify()
        (after,) = evaluate(module, inputs)
    assert after == pytest.approx(before, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("estimator", [None, NothingPays(), Refuses()])
def test_what_does_not_pay_stays(estimator: NothingPays | Refuses | None) -> None:
    with mlir.make_context() as context:
        module = mlir.parse(_convolution(9, 9, 3, (2, 2), (1, 1)), context)
        passed = PassContext(target=Target.parse("v5e"), estimator=estimator)  # type: ignore[arg-type]
        assert SpaceToDepth().run(module, passed) == {}
