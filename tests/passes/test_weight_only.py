"""What may run before the program does."""

from tpuc import mlir
from tpuc.passes.main import Main
from tpuc.passes.weight_only import can_prepare

MODULE = """
func.func public @main(%w: tensor<4xf32>, %p: tensor<i1>) -> tensor<4xf32> {
  %0 = stablehlo.tanh %w : tensor<4xf32>
  %1 = stablehlo.composite "tests.named" %0 {decomposition = @tanh} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = stablehlo.custom_call @somebody(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "stablehlo.if"(%p) ({
    stablehlo.return %2 : tensor<4xf32>
  }, {
    stablehlo.return %1 : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}
func.func private @tanh(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.tanh %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def test_composites_calls_and_regions_that_capture_stay_in_the_program() -> None:
    with mlir.make_context() as context:
        module = mlir.parse(MODULE, context)
        tanh, composite, call, branch, _ = Main(module).block.operations
        assert can_prepare(tanh)
        assert not any(map(can_prepare, (composite, call, branch)))
