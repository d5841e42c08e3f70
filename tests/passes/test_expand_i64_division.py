"""Divisions of 64-bit integers: that they are exact, also where f32 is far from it."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tpuc import mlir
from tpuc.passes.base import PassContext
from tpuc.passes.expand_i64_division import ExpandI64Division
from tpuc.targets import Target

from .evaluation import evaluate

PROGRAM = """
func.func @main(%x: tensor<{n}x{t}>, %y: tensor<{n}x{t}>) -> (tensor<{n}x{t}>, tensor<{n}x{t}>) {{
  %0 = stablehlo.divide %x, %y : tensor<{n}x{t}>
  %1 = stablehlo.remainder %x, %y : tensor<{n}x{t}>
  return %0, %1 : tensor<{n}x{t}>, tensor<{n}x{t}>
}}
"""
#: Numbers around which f32 rounds up or down, and where a quotient is just reached or just missed.
_EDGES = sorted({base + offset for bits in range(0, 65, 3) for base in [1 << bits] for offset in (-2, -1, 0, 1, 3)})


def _numbers(least: int, most: int) -> st.SearchStrategy[int]:
    edges = [sign * edge for edge in _EDGES for sign in (1, -1) if least <= sign * edge <= most]
    return st.one_of(st.integers(least, most), st.sampled_from(edges), st.integers(max(least, -100), 100))


def _check(kind: str, dtype: type[np.integer], pairs: list[tuple[int, int]]) -> None:
    pairs = [(x, y) for x, y in pairs if y]
    # The quotient itself, times the divisor: the remainder is zero, or one less than the divisor.
    pairs += [(x // y * y, y) for x, y in pairs] + [(x // y * y - 1, y) for x, y in pairs if x // y * y > 0]
    info = np.iinfo(dtype)
    pairs = [(x, y) for x, y in pairs if info.min <= x <= info.max] or [(7, 2)]
    inputs = [np.array(column, dtype) for column in zip(*pairs, strict=True)]
    with mlir.make_context() as context:
        module = mlir.parse(PROGRAM.format(n=len(pairs), t=kind), context)
        ExpandI64Division().run(module, PassContext(target=Target.parse("v5e")))
        module.operation.verify()
        quotients, remainders = evaluate(module, inputs)
    for (x, y), quotient, remainder in zip(pairs, quotients.tolist(), remainders.tolist(), strict=True):
        expected = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        if expected <= info.max:  # The least number divided by -1 has no result.
            assert (quotient, remainder) == (expected, int(math.copysign(1, x)) * (abs(x) % abs(y))), (x, y)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(_numbers(-(1 << 63), (1 << 63) - 1), _numbers(-(1 << 63), (1 << 63) - 1)), max_size=200))
def test_with_signs(pairs: list[tuple[int, int]]) -> None:
    _check("i64", np.int64, pairs)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(_numbers(0, (1 << 64) - 1), _numbers(0, (1 << 64) - 1)), max_size=200))
def test_without_signs(pairs: list[tuple[int, int]]) -> None:
    _check("ui64", np.uint64, pairs)


def test_every_edge_by_every_edge() -> None:
    _check("ui64", np.uint64, [(x, y) for x in _EDGES for y in _EDGES if 0 <= x < 1 << 64 and 0 < y < 1 << 64])
