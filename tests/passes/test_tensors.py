"""What rules share: permutations, reshapes that only add dimensions of size one, exact conversions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc import mlir
from tpuc.passes.tensors import (
    constant_elements,
    constant_integers,
    converts_exactly,
    has_one_use,
    inverse,
    is_identity,
    kept_dimensions,
    producer,
    reduced_by,
    splat_number,
)

#: Element types of MLIR with NumPy's.
TYPES = {
    "i1": np.bool_,
    "i8": np.int8,
    "ui8": np.uint8,
    "i16": np.int16,
    "ui16": np.uint16,
    "i32": np.int32,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
}


@pytest.fixture
def context() -> Iterator[ir.Context]:
    with mlir.make_context() as context:
        yield context


def parse(body: str, context: ir.Context) -> ir.Module:
    return mlir.parse(f"func.func @main(%x: tensor<4x8xf32>) {{\n{body}\nreturn\n}}", context)


def results(module: ir.Module, body: str) -> dict[str, ir.Value[ir.RankedTensorType]]:
    """Returns the first result of each operation by the name that it has in the text."""
    names = [line.partition(" = ")[0].strip() for line in body.splitlines() if line.strip().startswith("%")]
    operations = list(module.body.operations[0].regions[0].blocks[0].operations)[:-1]
    return dict(zip(names, (op.results[0] for op in operations), strict=True))


def _every_value(type_: type) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    """Returns every finite value of a type of up to 16 bits; None for a larger one, which has too many."""
    dtype = np.dtype(type_)
    if dtype == np.bool_:
        return np.array([0.0, 1.0])
    if dtype.itemsize > 2:
        return None
    bits = np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):  # NaN is among them
        values = bits.view(dtype).astype(np.float64)
    return values[np.isfinite(values)]


@pytest.mark.parametrize(("source", "target"), list(itertools.product(TYPES, TYPES)))
def test_converts_exactly(source: str, target: str, context: ir.Context) -> None:
    says = converts_exactly(ir.Type.parse(source), ir.Type.parse(target))
    values = _every_value(TYPES[source])
    if values is None:
        wider = {"i32": ("i32", "f64"), "f32": ("f32", "f64"), "f64": ("f64",)}
        assert says == (target in wider[source])
        return
    with np.errstate(all="ignore"):
        there = values.astype(TYPES[target]).astype(np.float64)
    assert says == np.array_equal(there, values)


def test_converts_exactly_not_for_types_that_it_does_not_know(context: ir.Context) -> None:
    f8, f32, complex_ = map(ir.Type.parse, ("f8E4M3FN", "f32", "complex<f32>"))
    assert not converts_exactly(f8, f32)
    assert not converts_exactly(f32, f8)
    assert not converts_exactly(f32, complex_)
    assert not converts_exactly(complex_, f32)


@given(st.permutations(range(5)), st.permutations(range(5)))
def test_inverse(first: list[int], second: list[int]) -> None:
    array = np.arange(120).reshape(2, 3, 4, 5, 1)
    np.testing.assert_array_equal(array.transpose(first).transpose(inverse(first)), array)
    assert is_identity([first[dimension] for dimension in inverse(first)])
    assert is_identity(second) == (second == sorted(second))


@pytest.mark.parametrize(
    ("source", "result", "kept"),
    [
        ((1, 3, 1, 4), (3, 4), {1: 0, 3: 1}),
        ((3, 4), (3, 1, 4, 1), {0: 0, 1: 2}),
        ((1, 1), (), {}),
        ((3, 4), (3, 4), {0: 0, 1: 1}),
        ((3, 4), (4, 3), None),
        ((3, 4), (12,), None),
        ((12,), (3, 4), None),
    ],
)
def test_kept_dimensions(source: tuple[int, ...], result: tuple[int, ...], kept: dict[int, int] | None) -> None:
    assert kept_dimensions(source, result) == kept


def test_constants(context: ir.Context) -> None:
    body = """
        %same = stablehlo.constant dense<2.5> : tensor<4xbf16>
        %true = stablehlo.constant dense<true> : tensor<2xi1>
        %some = stablehlo.constant dense<[3, -1]> : tensor<2xi64>
        %index = arith.constant dense<[3, -1]> : tensor<2xindex>
        %table = stablehlo.constant dense<[[3, -1]]> : tensor<1x2xi64>
        %complex = stablehlo.constant dense<(1.0, 2.0)> : tensor<2xcomplex<f32>>
        %computed = stablehlo.negate %some : tensor<2xi64>
    """
    module = parse(body, context)
    values = results(module, body)
    assert splat_number(values["%same"]) == 2.5
    assert splat_number(values["%true"]) is True
    assert [name for name in values if splat_number(values[name]) is not None] == ["%same", "%true"]
    assert constant_integers(values["%some"]) == [3, -1]
    assert constant_integers(values["%index"]) == [3, -1]
    assert constant_integers(values["%table"]) is None
    assert constant_integers(values["%same"]) is None
    assert constant_elements(values["%complex"]) is None
    assert constant_elements(values["%computed"]) is None


def test_producer_and_uses(context: ir.Context) -> None:
    body = """
        %once = stablehlo.negate %x : tensor<4x8xf32>
        %twice = stablehlo.abs %once : tensor<4x8xf32>
        %never = stablehlo.add %twice, %twice : tensor<4x8xf32>
    """
    module = parse(body, context)
    values = results(module, body)
    assert isinstance(producer(values["%once"], stablehlo.NegOp), stablehlo.NegOp)
    assert producer(values["%once"], stablehlo.AbsOp) is None
    negate = producer(values["%once"], stablehlo.NegOp)
    assert negate is not None
    assert producer(negate.operand, stablehlo.NegOp) is None
    assert [has_one_use(values[name]) for name in ("%once", "%twice", "%never")] == [True, False, False]


def test_reduced_by(context: ir.Context) -> None:
    body = "%zero = stablehlo.constant dense<0.0> : tensor<f32>\n"
    for name, value in {
        "%sum": "stablehlo.add %a, %b",
        "%swapped": "stablehlo.add %b, %a",
        "%last": "stablehlo.add %b, %b",
    }.items():
        body += (
            f'{name} = "stablehlo.reduce"(%x, %zero) <{{dimensions = array<i64: 0, 1>}}> ({{ ^bb0(%a: tensor<f32>, '
            f"%b: tensor<f32>): \n %y = {value} : tensor<f32>\n stablehlo.return %y : tensor<f32> }}) "
            ": (tensor<4x8xf32>, tensor<f32>) -> tensor<f32>\n"
        )
    module = parse(body, context)
    reductions = list(module.body.operations[0].regions[0].blocks[0].operations)[1:-1]
    assert [reduced_by(op) for op in reductions if isinstance(op, stablehlo.ReduceOp)] == [
        stablehlo.AddOp,
        stablehlo.AddOp,
        None,
    ]
