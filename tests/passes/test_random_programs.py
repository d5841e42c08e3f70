"""Random small programs, evaluated before and after the whole pipeline."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tpuc import mlir
from tpuc.passes import PIPELINE, run_passes
from tpuc.targets import CPU, Target

from .evaluation import evaluate, make_inputs

UNARY = ("abs", "cosine", "negate", "tanh")
BINARY = ("add", "maximum", "minimum", "multiply", "subtract")
#: Constants that rules look for, and one that they do not.
SPLATS = ("0.0", "-0.0", "1.0", "0.5", "0xFF800000")


class Program:
    """A program that grows by one operation at a time, in MLIR's text."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.shapes: list[tuple[int, ...]] = []
        self.arguments = 0

    def argument(self, shape: tuple[int, ...]) -> None:
        self.arguments += 1
        self.shapes.append(shape)

    def append(self, operation: str, shape: tuple[int, ...]) -> int:
        """Adds an operation and returns the number of its result."""
        self.lines.append(f"%v{len(self.shapes)} = stablehlo.{operation}")
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def type(self, value: int) -> str:
        return f"tensor<{'x'.join([*map(str, self.shapes[value]), 'f32'])}>"

    def text(self) -> str:
        arguments = ", ".join(f"%v{value}: {self.type(value)}" for value in range(self.arguments))
        results = list(range(self.arguments, len(self.shapes)))[-3:]
        types = ", ".join(map(self.type, results))
        returned = ", ".join(f"%v{value}" for value in results)
        body = "\n  ".join([*self.lines, f"return {returned} : {types}"])
        return f"func.func @main({arguments}) -> ({types}) {{\n  {body}\n}}"


def _type(shape: tuple[int, ...]) -> str:
    return f"tensor<{'x'.join([*map(str, shape), 'f32'])}>"


@st.composite
def programs(draw: st.DrawFn) -> str:
    program = Program()
    for _ in range(draw(st.integers(1, 3))):
        program.argument(tuple(draw(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=3))))
    for _ in range(draw(st.integers(1, 12))):
        make = draw(st.sampled_from(MAKERS))
        # Of a recent value, so that operations follow each other, and most of them are read in the end.
        make(draw, program, draw(st.integers(max(0, len(program.shapes) - 3), len(program.shapes) - 1)))
    if not program.lines:
        program.append(f"negate %v0 : {program.type(0)}", program.shapes[0])
    return program.text()


def _unary(draw: st.DrawFn, program: Program, x: int) -> None:
    program.append(f"{draw(st.sampled_from(UNARY))} %v{x} : {program.type(x)}", program.shapes[x])


def _binary(draw: st.DrawFn, program: Program, x: int) -> None:
    y = draw(st.sampled_from([value for value, shape in enumerate(program.shapes) if shape == program.shapes[x]]))
    program.append(f"{draw(st.sampled_from(BINARY))} %v{x}, %v{y} : {program.type(x)}", program.shapes[x])


def _constant(draw: st.DrawFn, program: Program, x: int) -> None:
    shape = program.shapes[x]
    y = program.append(f"constant dense<{draw(st.sampled_from(SPLATS))}> : {program.type(x)}", shape)
    first, second = draw(st.permutations([x, y]))
    program.append(f"{draw(st.sampled_from(BINARY))} %v{first}, %v{second} : {program.type(x)}", shape)


def _transpose(draw: st.DrawFn, program: Program, x: int) -> None:
    old = program.shapes[x]
    order = draw(st.permutations(range(len(old))))
    new = tuple(old[dimension] for dimension in order)
    program.append(f"transpose %v{x}, dims = {list(order)} : ({_type(old)}) -> {_type(new)}", new)


def _reshape(draw: st.DrawFn, program: Program, x: int) -> None:
    old = program.shapes[x]
    new = [size for size in old if size != 1] if draw(st.booleans()) else [math.prod(old)]
    for _ in range(draw(st.integers(0, 2))):
        new.insert(draw(st.integers(0, len(new))), 1)
    program.append(f"reshape %v{x} : ({_type(old)}) -> {_type(tuple(new))}", tuple(new))


def _broadcast(draw: st.DrawFn, program: Program, x: int) -> None:
    old = program.shapes[x]
    rank = len(old) + draw(st.integers(0, 2))
    dimensions = draw(st.permutations(range(rank)))[: len(old)]
    new = [draw(st.integers(1, 3)) for _ in range(rank)]
    for dimension, size in zip(dimensions, old, strict=True):
        new[dimension] = size if size != 1 else new[dimension]
    if math.prod(new) > 200:
        return
    program.append(
        f"broadcast_in_dim %v{x}, dims = {list(dimensions)} : ({_type(old)}) -> {_type(tuple(new))}", tuple(new)
    )


def _mean(draw: st.DrawFn, program: Program, x: int) -> None:
    old = program.shapes[x]
    if not old:
        return
    gone = draw(st.integers(0, len(old) - 1))
    new = (*old[:gone], *old[gone + 1 :])
    zero = program.append("constant dense<0.0> : tensor<f32>", ())
    total = program.append(
        f"reduce(%v{x} init: %v{zero}) applies stablehlo.add across dimensions = [{gone}] "
        f": ({_type(old)}, tensor<f32>) -> {_type(new)}",
        new,
    )
    count = program.append(f"constant dense<{float(old[gone])}> : {_type(new)}", new)
    program.append(f"divide %v{total}, %v{count} : {_type(new)}", new)


def _softmax(draw: st.DrawFn, program: Program, x: int) -> None:
    shape = program.shapes[x]
    gone = draw(st.integers(0, len(shape) - 1)) if shape else None
    if gone is None:
        return
    lowest = program.append("constant dense<0xFF800000> : tensor<f32>", ())
    zero = program.append("constant dense<0.0> : tensor<f32>", ())
    peak = _of_rows(program, x, f"reduce(%v{x} init: %v{lowest}) applies stablehlo.maximum", gone)
    shifted = program.append(f"subtract %v{x}, %v{peak} : {_type(shape)}", shape)
    weights = program.append(f"exponential %v{shifted} : {_type(shape)}", shape)
    total = _of_rows(program, weights, f"reduce(%v{weights} init: %v{zero}) applies stablehlo.add", gone)
    program.append(f"divide %v{weights}, %v{total} : {_type(shape)}", shape)


def _of_rows(program: Program, x: int, reduction: str, gone: int) -> int:
    """A reduction of one dimension, copied along it."""
    old = program.shapes[x]
    new = (*old[:gone], *old[gone + 1 :])
    kept = [dimension for dimension in range(len(old)) if dimension != gone]
    rows = program.append(
        f"{reduction} across dimensions = [{gone}] : ({_type(old)}, tensor<f32>) -> {_type(new)}", new
    )
    return program.append(f"broadcast_in_dim %v{rows}, dims = {kept} : ({_type(new)}) -> {_type(old)}", old)


def _silu(draw: st.DrawFn, program: Program, x: int) -> None:
    shape = program.shapes[x]
    logistic = program.append(f"logistic %v{x} : {_type(shape)}", shape)
    program.append(f"multiply %v{logistic}, %v{x} : {_type(shape)}", shape)


def _dot(draw: st.DrawFn, program: Program, x: int) -> None:
    pairs = [
        (y, i, j)
        for y, shape in enumerate(program.shapes)
        for i, size in enumerate(program.shapes[x])
        for j, other in enumerate(shape)
        if size == other and len(shape) + len(program.shapes[x]) <= 5
    ]
    if not pairs:
        return
    y, i, j = draw(st.sampled_from(pairs))
    lhs, rhs = program.shapes[x], program.shapes[y]
    batching = ""
    left = [dim for dim in range(len(lhs)) if dim != i]
    right = [dim for dim in range(len(rhs)) if dim != j]
    batch: tuple[int, ...] = ()
    if left and right and lhs[left[0]] == rhs[right[0]] and draw(st.booleans()):
        batching = f"batching_dims = [{left[0]}] x [{right[0]}], "
        batch = (lhs[left[0]],)
        left, right = left[1:], right[1:]
    new = (*batch, *(lhs[dim] for dim in left), *(rhs[dim] for dim in right))
    program.append(
        f"dot_general %v{x}, %v{y}, {batching}contracting_dims = [{i}] x [{j}] "
        f": ({_type(lhs)}, {_type(rhs)}) -> {_type(new)}",
        new,
    )


Maker = Callable[[st.DrawFn, Program, int], None]
MAKERS: tuple[Maker, ...] = (
    _binary,
    _broadcast,
    _constant,
    _dot,
    _mean,
    _reshape,
    _silu,
    _softmax,
    _transpose,
    _transpose,
    _unary,
)


@settings(max_examples=150, deadline=None)
@given(programs(), st.integers(0, 1000), st.sampled_from([CPU, Target.parse("v5p")]))
def test_the_pipeline_keeps_what_a_program_computes(text: str, seed: int, target: Target) -> None:
    with mlir.make_context() as context:
        module = mlir.parse(text, context)
        inputs = make_inputs(module, seed)
        before = evaluate(module, inputs)
        run_passes(module, PIPELINE, target)
        after = evaluate(module, inputs)
        for old, new in zip(before, after, strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-4)
