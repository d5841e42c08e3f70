"""Optimized programs: `@main` and what is prepared for it, each a program of its own."""

from tpuc import mlir
from tpuc.program import take_apart
from tpuc.runtime.manifest import Argument
from tpuc.runtime.spec import TensorSpec

MODULE = """
func.func public @main(%x: tensor<2x4xf32> {tpuc.argument = "input:x"},
                       %a: tensor<4xf32> {tpuc.argument = "prepared:prepare.0"},
                       %b: tensor<4xf32> {tpuc.argument = "prepared:prepare.1"}) -> tensor<2x4xf32> {
  %0 = stablehlo.add %a, %b : tensor<4xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
  %2 = stablehlo.add %x, %1 : tensor<2x4xf32>
  return %2 : tensor<2x4xf32>
}
func.func private @prepare.0(%w: tensor<4xf32> {tpuc.argument = "weight:layers.0.w"}) -> tensor<4xf32> {
  %0 = stablehlo.tanh %w : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @prepare.1(%w: tensor<4xf32> {tpuc.argument = "weight:layers.1.w"}) -> tensor<4xf32> {
  %0 = stablehlo.tanh %w : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def test_main_and_what_is_prepared_are_programs_of_their_own() -> None:
    with mlir.make_context() as context:
        program = take_apart(mlir.parse(MODULE, context))
        assert "@prepare" not in mlir.to_text(mlir.parse(program.main, context))
        first, second = program.preparations
        text = mlir.to_text(mlir.parse(first.program, context))
    assert program.arguments == (
        Argument(kind="input", name="x"),
        Argument(kind="prepared", name="prepare.0"),
        Argument(kind="prepared", name="prepare.1"),
    )
    assert first.spec == TensorSpec(name="prepare.0", dtype="f32", dims=(4,))
    assert (first.sources, second.sources) == (("layers.0.w",), ("layers.1.w",))
    assert "public @main(%arg0: tensor<4xf32>) -> tensor<4xf32>" in text


def test_layers_of_one_form_are_prepared_by_one_program() -> None:
    with mlir.make_context() as context:
        first, second = take_apart(mlir.parse(MODULE, context)).preparations
    assert first.program == second.program


def test_kernels_are_seen() -> None:
    call = """
    func.func public @main(%x: tensor<4xf32> {tpuc.argument = "input:x"}) -> tensor<4xf32> {
      %0 = stablehlo.custom_call @NAME(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    """
    with mlir.make_context() as context:
        assert take_apart(mlir.parse(call.replace("NAME", "tpu_custom_call"), context)).has_kernels
        assert not take_apart(mlir.parse(call.replace("NAME", "lapack_sgetrf"), context)).has_kernels
