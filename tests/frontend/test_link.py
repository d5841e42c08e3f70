"""Linking bodies into a module."""

from tpuc import mlir
from tpuc.frontend.link import link

_CALLER = """
func.func private @square(tensor<4xf32>) -> tensor<4xf32>
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @square(%x) : (tensor<4xf32>) -> tensor<4xf32> loc("layer.0"("model.py":3:0))
  %1 = call @square(%0) : (tensor<4xf32>) -> tensor<4xf32> loc("layer.1"("model.py":4:0))
  return %1 : tensor<4xf32>
}
"""
_BODY = b"""
func.func private @inner(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.multiply %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @middle(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @inner(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @middle(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def _linked(body: bytes) -> str:
    with mlir.make_context() as context:
        module = mlir.parse(_CALLER, context)
        link(module, {"square": mlir.to_bytecode(mlir.parse(body.decode(), context))})
        module.operation.verify()
        return mlir.to_text(module, locations=True)


def test_a_body_is_inlined_with_all_that_it_calls() -> None:
    text = _linked(_BODY)
    assert text.count("stablehlo.multiply") == 2
    assert "call @" not in text
    assert text.count("func.func") == 1


def test_operations_take_the_callers_location() -> None:
    text = _linked(_BODY)
    assert 'loc("model.py":3:0)' in text
    assert 'loc("model.py":4:0)' in text


def test_calls_inside_a_region_are_inlined_too() -> None:
    body = b"""
    func.func private @step(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.add %x, %x : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %c = stablehlo.constant dense<true> : tensor<i1>
      %0 = "stablehlo.if"(%c) ({
        %1 = func.call @step(%x) : (tensor<4xf32>) -> tensor<4xf32>
        stablehlo.return %1 : tensor<4xf32>
      }, {
        stablehlo.return %x : tensor<4xf32>
      }) : (tensor<i1>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    """
    assert _linked(body).count("stablehlo.add") == 2


def test_decompositions_of_composites_come_along_under_a_name_of_their_own() -> None:
    body = b"""
    func.func private @inner(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.multiply %x, %x : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func private @outer(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.composite "test.inner" %x {decomposition = @inner} : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.composite "test.outer" %x {decomposition = @outer} : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    """
    text = _linked(body)
    assert text.count('composite "test.outer"') == 2
    assert text.count("decomposition = @square.outer") == 2
    assert text.count("func.func private @square.outer") == 1
    assert text.count("decomposition = @square.inner") == 1
    assert text.count("func.func private @square.inner") == 1
    assert text.index("@main") < text.index("@square.outer")
