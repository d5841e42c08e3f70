"""Merged products compute what the products do, with their biases, however their weights are made."""

from __future__ import annotations

import pytest
from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.passes.base import PassContext, run_passes
from tpuc.passes.hoist_weights import HoistWeights
from tpuc.passes.merge_products import MergeProducts
from tpuc.passes.roll_layers import RollLayers
from tpuc.runtime.dtypes import Array
from tpuc.targets import Target

from .estimators import NothingPays, OneByOne, Refuses
from .evaluation import evaluate, make_inputs

V5E = Target.parse("v5e")


class FewerProductsPay(OneByOne):
    """Takes a program for the cheaper, the fewer products it has, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def cycles(self, module: ir.Module) -> int:
        self.asked.append(mlir.to_text(module))
        return len(mlir.find(module, "stablehlo.dot_general"))


class Program:
    """The text of a program over `%x`, f32[4,8], written line by line."""

    def __init__(self, result: str = "tensor<4x8xf32>") -> None:
        self._arguments = ['%x: tensor<4x8xf32> {tpuc.argument = "input:x"}']
        self._lines: list[str] = []
        self._result = result

    def weight(self, name: str, type_: str) -> Program:
        self._arguments.append(f'%{name}: tensor<{type_}> {{tpuc.argument = "weight:{name}"}}')
        return self

    def line(self, text: str) -> Program:
        self._lines.append(text)
        return self

    def product(self, name: str, x: str, weight: str, columns: int = 8, rows: int = 4) -> Program:
        return self.line(
            f"%{name} = stablehlo.dot_general %{x}, %{weight}, contracting_dims = [1] x [0] : "
            f"(tensor<{rows}x8xf32>, tensor<8x{columns}xf32>) -> tensor<{rows}x{columns}xf32>"
        )

    def biased(self, name: str, value: str, bias: str) -> Program:
        self.line(f"%{name}_b = stablehlo.broadcast_in_dim %{bias}, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>")
        return self.line(f"%{name} = stablehlo.add %{value}, %{name}_b : tensor<4x8xf32>")

    def returning(self, value: str) -> str:
        body = "\n".join([*self._lines, f"return %{value} : {self._result}"])
        return f"func.func public @main({', '.join(self._arguments)}) -> {self._result} {{\n{body}\n}}"


def _merge(text: str, estimator: FewerProductsPay | NothingPays | Refuses | None) -> tuple[str, dict[str, int]]:
    """Runs the pass, sees that the program computes what it did, and returns its text and how often rules fired."""
    with mlir.make_context() as context:
        module = mlir.parse(text, context)
        inputs = make_inputs(module, 0)
        before = evaluate(module, inputs)
        fired = dict(MergeProducts().run(module, PassContext(target=V5E, estimator=estimator)))  # type: ignore[arg-type]
        module.operation.verify()
        _assert_same(before, evaluate(module, inputs))
        return mlir.to_text(module), fired


def _assert_same(before: list[Array], after: list[Array]) -> None:
    for old, new in zip(before, after, strict=True):
        assert new == pytest.approx(old, rel=1e-5, abs=1e-5)


def _gated(*, a: str = "8x8xf32", b: str = "8x8xf32") -> Program:
    return Program().weight("a", a).weight("b", b)


def test_biases_merge() -> None:
    program = _gated().weight("c", "8xf32").weight("d", "8xf32").product("p", "x", "a").product("q", "x", "b")
    program.biased("r", "p", "c").biased("s", "q", "d").line("%m = stablehlo.multiply %r, %s : tensor<4x8xf32>")
    text, fired = _merge(program.returning("m"), FewerProductsPay())
    assert fired == {"merged": 2}
    assert text.count("stablehlo.dot_general") == text.count("stablehlo.add") == 1
    assert "(tensor<8xf32>, tensor<8xf32>) -> tensor<16xf32>" in text


def test_a_bias_that_one_has_stays_with_it() -> None:
    program = _gated().weight("c", "8xf32").product("p", "x", "a").product("q", "x", "b").biased("r", "q", "c")
    text, fired = _merge(
        program.line("%m = stablehlo.multiply %p, %r : tensor<4x8xf32>").returning("m"), FewerProductsPay()
    )
    assert fired == {"merged": 2}
    assert "tensor<16xf32>" not in text


def test_weights_of_int8_stay_int8() -> None:
    program = _gated(a="8x8xi8", b="8x8xi8").weight("s", "8xf32").weight("t", "8xf32")
    for weight, scale in (("a", "s"), ("b", "t")):
        program.line(f"%{weight}0 = stablehlo.convert %{weight} : (tensor<8x8xi8>) -> tensor<8x8xf32>")
        program.line(
            f"%{weight}1 = stablehlo.broadcast_in_dim %{scale}, dims = [1] : (tensor<8xf32>) -> tensor<8x8xf32>"
        )
        program.line(f"%{weight}2 = stablehlo.multiply %{weight}0, %{weight}1 : tensor<8x8xf32>")
        program.product(f"p{weight}", "x", f"{weight}2")
    text, fired = _merge(
        program.line("%m = stablehlo.multiply %pa, %pb : tensor<4x8xf32>").returning("m"), FewerProductsPay()
    )
    assert fired == {"merged": 2}
    assert "(tensor<8x8xi8>, tensor<8x8xi8>) -> tensor<8x16xi8>" in text
    assert "(tensor<8xf32>, tensor<8xf32>) -> tensor<16xf32>" in text
    assert text.count("stablehlo.concatenate") == 2


def test_weights_that_are_made_differently_are_joined_as_they_are() -> None:
    program = _gated(a="8x8xi8").line("%w = stablehlo.convert %a : (tensor<8x8xi8>) -> tensor<8x8xf32>")
    program.line("%n = stablehlo.negate %b : tensor<8x8xf32>").product("p", "x", "w").product("q", "x", "n")
    text, fired = _merge(program.line("%m = stablehlo.add %p, %q : tensor<4x8xf32>").returning("m"), FewerProductsPay())
    assert fired == {"merged": 2}
    assert "(tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x16xf32>" in text


def test_columns_may_differ_in_number() -> None:
    program = Program("tensor<4x11xf32>").weight("a", "8x8xf32").weight("b", "8x3xf32")
    program.product("p", "x", "a").product("q", "x", "b", columns=3)
    program.line("%m = stablehlo.concatenate %q, %p, dim = 1 : (tensor<4x3xf32>, tensor<4x8xf32>) -> tensor<4x11xf32>")
    _, fired = _merge(program.returning("m"), FewerProductsPay())
    assert fired == {"merged": 2}


def test_a_weight_that_something_else_reads_stays() -> None:
    program = _gated().product("p", "x", "a").product("q", "x", "b")
    program.line("%m = stablehlo.multiply %p, %q : tensor<4x8xf32>")
    program.line("%s = stablehlo.slice %b [0:4, 0:8] : (tensor<8x8xf32>) -> tensor<4x8xf32>")
    _, fired = _merge(program.line("%n = stablehlo.add %m, %s : tensor<4x8xf32>").returning("n"), FewerProductsPay())
    assert fired == {}


def test_products_of_different_inputs_stay() -> None:
    program = _gated().line("%y = stablehlo.tanh %x : tensor<4x8xf32>").product("p", "x", "a").product("q", "y", "b")
    _, fired = _merge(
        program.line("%m = stablehlo.multiply %p, %q : tensor<4x8xf32>").returning("m"), FewerProductsPay()
    )
    assert fired == {}


def test_products_that_wait_for_the_matrix_unit_are_not_asked_about() -> None:
    estimator = FewerProductsPay()
    rows = 1 << 12
    text = (
        _gated().product("p", "x", "a").product("q", "x", "b").line("%m = stablehlo.multiply %p, %q : tensor<4x8xf32>")
    )
    wide = text.returning("m").replace("4x8x", f"{rows}x{rows}x").replace("8x8x", f"{rows}x{rows}x")
    with mlir.make_context() as context:
        module = mlir.parse(wide, context)
        assert MergeProducts().run(module, PassContext(target=V5E, estimator=estimator)) == {}
    assert estimator.asked == []


@pytest.mark.parametrize("estimator", [None, NothingPays(), Refuses()])
def test_what_does_not_pay_stays(estimator: NothingPays | Refuses | None) -> None:
    program = _gated().product("p", "x", "a").product("q", "x", "b")
    text, fired = _merge(program.line("%m = stablehlo.multiply %p, %q : tensor<4x8xf32>").returning("m"), estimator)
    assert fired == {}
    assert text.count("stablehlo.dot_general") == 2


class OnlyOneLayerPays(OneByOne):
    """Takes a merge for one that pays in a program of one layer, and for one that changes nothing in longer ones."""

    def cycles(self, module: ir.Module) -> int:
        products = len(mlir.find(module, "stablehlo.dot_general"))
        return products if products <= 3 else 100


def test_a_merge_must_pay_in_several_layers_too() -> None:
    one, _ = _layers(1)
    two, value = _layers(2)
    _, fired = _merge(one.returning("z0"), OnlyOneLayerPays())
    assert fired == {"merged": 2}
    _, fired = _merge(two.returning(value), OnlyOneLayerPays())
    assert fired == {}


def _layers(count: int) -> tuple[Program, str]:
    """A program of layers that each have a gate, and the name of what the last one gives."""
    program = Program().line("%half = stablehlo.constant dense<0.5> : tensor<4x8xf32>")
    value = "x"
    for number in range(count):
        for name in "abcde":
            program.weight(f"{name}{number}", "8x8xf32" if name < "d" else "8xf32")
        program.product(f"p{number}", value, f"a{number}").product(f"q{number}", value, f"b{number}")
        program.biased(f"o{number}", f"p{number}", f"d{number}").biased(f"r{number}", f"q{number}", f"e{number}")
        program.line(f"%m{number} = stablehlo.multiply %o{number}, %r{number} : tensor<4x8xf32>")
        program.line(f"%h{number} = stablehlo.multiply %m{number}, %half : tensor<4x8xf32>")
        program.product(f"y{number}", f"h{number}", f"c{number}")
        program.line(f"%z{number} = stablehlo.tanh %y{number} : tensor<4x8xf32>")
        value = f"z{number}"
    return program, value


def test_equal_layers_are_asked_about_once_and_roll() -> None:
    layers = 9
    program, value = _layers(layers)
    estimator = FewerProductsPay()
    with mlir.make_context() as context:
        module = mlir.parse(program.returning(value), context)
        inputs = make_inputs(module, 0)
        before = evaluate(module, inputs)
        passed = PassContext(target=V5E, estimator=estimator)
        assert MergeProducts().run(module, passed) == {"merged": 2 * layers}
        assert len(estimator.asked) == 4  # one layer and all of them, as they are and merged
        assert RollLayers(mode="always").run(module, passed) == {"loops": 1, "rolled_layers": layers}
        _assert_same(before, evaluate(module, inputs))
        run_passes(module, [HoistWeights()], V5E)
        assert "stablehlo.concatenate" not in mlir.to_text(module).partition("func.func private")[0]
