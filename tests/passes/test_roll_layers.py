"""Rolled layers: that they compute what they did one by one, and when they are rolled."""

from __future__ import annotations

from collections.abc import Callable, Set
from concurrent.futures import Future

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.errors import RequestError
from tpuc.passes import PIPELINE, parse_pipeline
from tpuc.passes.base import Estimator, LoopCosts, PassContext
from tpuc.passes.cse import Cse
from tpuc.passes.roll_layers import RollLayers, with_roll
from tpuc.targets import CPU, Target

from .estimators import OneByOne, Refuses, answered
from .evaluation import evaluate, make_inputs

V5E = Target.parse("v5e")
TYPE = "tensor<2x4xf32>"
WEIGHT = "tensor<4x4xf32>"


class Costs(OneByOne):
    """Says what one and two layers cost, the program with a loop, and loops with one of two operations."""

    def __init__(
        self, *, one: int = 0, two: int | None, total: int = 0, loop: int | None = None, sine: int = 0, tanh: int = 0
    ) -> None:
        self._alone = {1: one, 2: two}
        self._costs = LoopCosts(total=total, loops={} if loop is None else {"0": loop})
        self._loops = {"sine": sine, "tanh": tanh}

    def cycles(self, module: ir.Module) -> int | None:
        text, _, _ = mlir.to_text(module).partition("func.func private")
        assert "stablehlo.concatenate" not in text, "weights are stacked before"
        if "stablehlo.while" not in text:
            return self._alone[text.count("stablehlo.dot_general")]
        (loop,) = (cycles for name, cycles in self._loops.items() if f"stablehlo.{name}" in text)
        return loop

    def loops_of(self, module: ir.Module) -> Future[LoopCosts | None]:
        assert "stablehlo.while" in mlir.to_text(module)
        return answered(self._costs)


def _chain(count: int, name: str = "tanh") -> str:
    """A program of so many layers: a product with a weight, and an elementwise operation."""
    weights = "".join(f', %w{number}: {WEIGHT} {{tpuc.argument = "weight:{number}"}}' for number in range(count))
    lines = []
    for number in range(count):
        lines.append(
            f"%d{number} = stablehlo.dot_general %h{number}, %w{number}, contracting_dims = [1] x [0] "
            f": ({TYPE}, {WEIGHT}) -> {TYPE}"
        )
        lines.append(f"%h{number + 1} = stablehlo.{name} %d{number} : {TYPE}")
    body = "\n  ".join([*lines, f"return %h{count} : {TYPE}"])
    return f'func.func public @main(%h0: {TYPE} {{tpuc.argument = "input:x"}}{weights}) -> {TYPE} {{\n  {body}\n}}'


def _roll(text: str, roll: RollLayers, estimator: Estimator | None = None) -> tuple[dict[str, int], str]:
    with mlir.make_context() as context:
        module = mlir.parse(text, context)
        rewrites = dict(roll.run(module, PassContext(target=V5E, estimator=estimator)))
        module.operation.verify()
        return rewrites, mlir.to_text(module)


@pytest.mark.parametrize(
    ("count", "estimator", "is_rolled"),
    [
        (8, Costs(two=2 * 100, total=824, loop=824), True),
        (8, Costs(two=2 * 100, total=825, loop=825), False),
        # What else the program computes counts as well.
        (8, Costs(two=2 * 100, total=1860, loop=854), True),
        (8, Costs(two=2 * 100, total=1860, loop=855), False),
        # The compiler may have unrolled it, or given it another name.
        (8, Costs(two=2 * 100, total=100), False),
        # One layer may say enough; else two are asked.
        (8, Costs(one=100, two=None, total=760, loop=760), True),
        (8, Costs(one=100, two=None, total=761, loop=761), False),
        (8, Costs(one=100, two=2 * 95, total=782, loop=782), True),
        (8, Costs(one=100, two=2 * 95, total=783, loop=783), False),
        (7, Costs(two=100, total=1, loop=1), False),
        (8, Refuses(), False),
        (8, None, False),
    ],
)
def test_auto_asks_what_it_costs(count: int, estimator: Estimator | None, is_rolled: bool) -> None:
    rewrites, text = _roll(_chain(count), RollLayers(), estimator)
    assert rewrites == ({"loops": 1, "rolled_layers": 8} if is_rolled else {})
    assert ("stablehlo.while" in text) == is_rolled


def _two_chains(first: str, second: str) -> str:
    """16 layers with one operation, something else, and 16 with another."""
    between = f"%h16 = stablehlo.{first} %d15 : {TYPE}"
    head, _, body = _chain(32, second).partition("{\n")
    half = _chain(16, first).partition("{\n")[2].rpartition("return")[0]
    rest = body.partition(f"%h16 = stablehlo.{second} %d15 : {TYPE}")[2]
    half = half.replace(between, f"%t = stablehlo.{first} %d15 : {TYPE}")
    return f"{head}{{\n{half}%h16 = stablehlo.abs %t : {TYPE}\n{rest}"


@pytest.mark.parametrize(
    ("sine", "tanh", "kept"),
    [
        (1648, 1648, {"sine", "tanh"}),
        (1648, 1649, {"sine"}),
        (1649, 1648, {"tanh"}),
        (1649, 1649, set()),
    ],
)
def test_of_several_loops_those_stay_that_cost_little(sine: int, tanh: int, kept: Set[str]) -> None:
    text = _two_chains("tanh", "sine")
    # One by one they cost 1600 each, and a loop may cost 48 more.
    rewrites, rolled = _roll(text, RollLayers(), Costs(two=2 * 100, sine=sine, tanh=tanh))
    assert rewrites == ({"loops": len(kept), "rolled_layers": 16 * len(kept)} if kept else {})
    for name in ("sine", "tanh"):
        assert rolled.count(f"stablehlo.{name}") == (1 if name in kept else 16)


class Counts(Costs):
    """Keeps how many programs it was asked about."""

    programs = 0

    def cycles(self, module: ir.Module) -> int | None:
        self.programs += 1
        return super().cycles(module)


@pytest.mark.parametrize(("loop", "programs"), [(1520, 2), (1521, 3)])
def test_of_equal_loops_one_is_compiled(loop: int, programs: int) -> None:
    """With a layer, which says enough where it costs more than that, and with two where it does not."""
    costs = Counts(one=100, two=2 * 100, tanh=loop)
    rewrites, _ = _roll(_two_chains("tanh", "tanh"), RollLayers(), costs)
    assert rewrites == {"loops": 2, "rolled_layers": 32}
    assert costs.programs == programs


@pytest.mark.parametrize(("loop", "is_rolled"), [(824, True), (825, False)])
def test_what_a_loop_gives_is_taken_apart_after_it_and_counts(loop: int, is_rolled: bool) -> None:
    results = [f"%h{number}" for number in range(1, 9)]
    types = ", ".join([TYPE] * 8)
    text = _chain(8).replace(f") -> {TYPE} {{\n", f") -> ({types}) {{\n")
    text = text.replace(f"return %h8 : {TYPE}", f"return {', '.join(results)} : {types}")
    # The loop is looked at by itself, with what is around it: in the program it would be a bargain.
    rewrites, _ = _roll(text, RollLayers(), Costs(one=100, two=2 * 100, total=8, loop=8, tanh=loop))
    assert rewrites == ({"loops": 1, "rolled_layers": 8} if is_rolled else {})


def test_never_and_always_do_not_ask() -> None:
    assert _roll(_chain(8), RollLayers(mode="never"), Costs(two=100, total=1, loop=1))[0] == {}
    assert _roll(_chain(8), RollLayers(mode="always"), Refuses())[0] == {"loops": 1, "rolled_layers": 8}
    assert _roll(_chain(7), RollLayers(mode="always"))[0] == {}


@pytest.mark.parametrize(
    ("call", "is_rolled"),
    [
        ('custom_call @kernel(%{}) {{backend_config = "same"}}', True),
        ("custom_call @kernel(%{}) {{has_side_effect = true}}", False),
    ],
)
def test_a_kernel_without_effects_is_repeated(call: str, is_rolled: bool) -> None:
    text = _chain(3)
    for number in range(3):
        old = f"stablehlo.tanh %d{number} : {TYPE}"
        text = text.replace(old, f"stablehlo.{call.format(f'd{number}')} : ({TYPE}) -> {TYPE}")
    rewrites, rolled = _roll(text, RollLayers(mode="always", least=2))
    assert bool(rewrites) == is_rolled
    assert rolled.count("custom_call @kernel") == (1 if is_rolled else 3)


@pytest.mark.parametrize("text", ["mode=sometimes", "least=1"])
def test_a_bad_option(text: str) -> None:
    with pytest.raises(RequestError, match=rf"roll-layers: {text}\n  It "):
        parse_pipeline(f"roll-layers{{{text}}}")


def test_a_pipeline_with_another_mode() -> None:
    assert RollLayers(mode="always", least=2) in with_roll(PIPELINE, "always")
    assert RollLayers(mode="never") in with_roll(PIPELINE, "never")
    assert with_roll(PIPELINE, "auto") == PIPELINE
    with pytest.raises(RequestError, match="the passes have no roll-layers"):
        with_roll([Cse()], "always")


Line = Callable[[int, str, str], str]

#: What a layer may do to its value: text from the layer's number, the operand and the result.
LINES: dict[str, Line] = {
    "dot": lambda layer, x, y: (
        f"%{y} = stablehlo.dot_general %{x}, %w{layer}, contracting_dims = [1] x [0] : ({TYPE}, {WEIGHT}) -> {TYPE}"
    ),
    "tanh": lambda _, x, y: f"%{y} = stablehlo.tanh %{x} : {TYPE}",
    "bias": lambda layer, x, y: (
        f"%{y}_b = stablehlo.broadcast_in_dim %b{layer}, dims = [1] : (tensor<4xf32>) -> {TYPE}\n"
        f"  %{y} = stablehlo.add %{x}, %{y}_b : {TYPE}"
    ),
    "mask": lambda _, x, y: f"%{y} = stablehlo.add %{x}, %mask : {TYPE}",
    "skip": lambda layer, x, y: f"%{y} = stablehlo.add %{x}, %in{layer} : {TYPE}",
    "first": lambda _, x, y: f"%{y} = stablehlo.subtract %{x}, %in0 : {TYPE}",
    "scale": lambda layer, x, y: (
        f"%{y}_c = stablehlo.constant dense<{layer + 1}.0> : {TYPE}\n  %{y} = stablehlo.divide %{x}, %{y}_c : {TYPE}"
    ),
    "state": lambda layer, x, y: f"%{y} = stablehlo.multiply %{x}, %s{layer} : {TYPE}",
    "sum": lambda _, x, y: (
        f"%{y}_0 = stablehlo.constant dense<0.0> : tensor<f32>\n"
        f"  %{y}_r = stablehlo.reduce(%{x} init: %{y}_0) applies stablehlo.add across dimensions = [1] "
        f": ({TYPE}, tensor<f32>) -> tensor<2xf32>\n"
        f"  %{y}_b = stablehlo.broadcast_in_dim %{y}_r, dims = [0] : (tensor<2xf32>) -> {TYPE}\n"
        f"  %{y} = stablehlo.subtract %{x}, %{y}_b : {TYPE}"
    ),
}


@st.composite
def stacks(draw: st.DrawFn) -> str:
    """A stack of layers, of which some values are returned besides the last."""
    count = draw(st.integers(2, 5))
    names = draw(st.permutations(["dot", *draw(st.lists(st.sampled_from(sorted(LINES)), max_size=6))]))
    lines, values = [], ["in0"]
    for layer in range(count):
        x = f"in{layer}"
        for place, name in enumerate(names):
            y = f"in{layer + 1}" if place == len(names) - 1 else f"v{layer}_{place}"
            lines.append(LINES[name](layer, x, y))
            values.append(y)
            x = y
    returned = [values[-1], *draw(st.lists(st.sampled_from(values), max_size=3, unique=True))]
    arguments = [f'%in0: {TYPE} {{tpuc.argument = "input:x"}}', f'%mask: {TYPE} {{tpuc.argument = "input:mask"}}']
    for layer in range(count):
        arguments.append(f'%w{layer}: {WEIGHT} {{tpuc.argument = "weight:w{layer}"}}')
        arguments.append(f'%b{layer}: tensor<4xf32> {{tpuc.argument = "weight:b{layer}"}}')
        arguments.append(f'%s{layer}: {TYPE} {{tpuc.argument = "state:s{layer}"}}')
    types = ", ".join([TYPE] * len(returned))
    body = "\n  ".join([*lines, f"return {', '.join(f'%{value}' for value in returned)} : {types}"])
    return f"func.func public @main({', '.join(arguments)}) -> ({types}) {{\n  {body}\n}}"


@settings(max_examples=60, deadline=None)
@given(stacks(), st.integers(0, 1000))
def test_random_layers_compute_the_same_in_a_loop(text: str, seed: int) -> None:
    with mlir.make_context() as context:
        module = mlir.parse(text, context)
        inputs = make_inputs(module, seed)
        before = evaluate(module, inputs)
        roll = RollLayers(mode="always", least=2)
        assert roll.run(module, PassContext(target=CPU)).get("loops", 0) > 0
        module.operation.verify()
        after = evaluate(module, inputs)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5)
