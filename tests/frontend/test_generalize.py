from __future__ import annotations

import pytest
from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.frontend.generalize import DynamicProgram, Inference, MisalignedError, generalize
from tpuc.runtime.sizes import SizeExpr, SizeRange

SAMPLES = [{"b": b, "s": s} for b, s in ((14, 11), (22, 17), (11, 19), (17, 23), (26, 14), (19, 29), (23, 22))]
RANGES = [SizeRange(name="b", minimum=1, maximum=4), SizeRange(name="s", minimum=2, maximum=9)]


@pytest.mark.parametrize(
    "text",
    [
        *("7", "b", "s-1", "3*s+2", "b*s", "64*b*s", "b+s", "2*b-3*s+1"),
        *("s//2", "(s+1)//2-1", "2*(s//2)-s+1", "512-s", "b*(s//2)"),
    ],
)
def test_expressions_are_found_from_their_values(text: str) -> None:
    expected = SizeExpr.of(text)
    assert Inference(SAMPLES).expression(expected.evaluate(sizes) for sizes in SAMPLES) == expected


def test_what_is_known_is_tried() -> None:
    known = SizeExpr.of("(s+6)//7")
    values = [known.evaluate(sizes) for sizes in SAMPLES]
    assert Inference(SAMPLES).expression(values) is None
    assert Inference(SAMPLES, [known]).expression(values) == known


def test_values_without_a_form_have_none() -> None:
    assert Inference(SAMPLES).expression(sizes["s"] ** 3 % 31 for sizes in SAMPLES) is None


@pytest.mark.parametrize(
    ("function", "values", "size"),
    [
        ("identity", [sizes["s"] - 1.0 for sizes in SAMPLES], "s-1"),
        ("reciprocal", [1 / sizes["s"] for sizes in SAMPLES], "s"),
        ("sqrt", [sizes["s"] ** 0.5 for sizes in SAMPLES], "s"),
        ("rsqrt", [(8 * sizes["s"]) ** -0.5 for sizes in SAMPLES], "8*s"),
    ],
)
def test_functions_of_sizes(function: str, values: list[float], size: str) -> None:
    assert Inference(SAMPLES).function(values, 1e-7) == (function, SizeExpr.of(size))


def test_a_number_that_is_no_function_of_sizes() -> None:
    assert Inference(SAMPLES).function([0.3, 0.1, 0.9, 0.4, 0.5, 0.7, 0.2], 1e-7) is None


def _generalized(text: str, context: ir.Context) -> DynamicProgram:
    """Generalizes a program in which `B` and `S` are the sizes."""
    texts = [text.replace("B", str(sizes["b"])).replace("S", str(sizes["s"])) for sizes in SAMPLES]
    return generalize([mlir.parse(each, context) for each in texts], Inference(SAMPLES))


def test_the_program_at_the_bound() -> None:
    text = """
    func.func @main(%x: tensor<BxSxf32> {tpuc.argument = "input:x"}) -> tensor<BxSxf32> {
      %1 = stablehlo.constant dense<S.0> : tensor<f32>
      %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<BxSxf32>
      %3 = stablehlo.divide %x, %2 : tensor<BxSxf32>
      return %3 : tensor<BxSxf32>
    }
    """
    with mlir.make_context() as context:
        program = _generalized(text, context)
        assert program.result_dims == ((SizeExpr.of("b"), SizeExpr.of("s")),)
        module = program.at(RANGES)
        module.operation.verify()
        printed = mlir.to_text(module)
    assert '%arg0: tensor<4x9xf32> {tpuc.argument = "input:x", tpuc.dims = "b,s"}' in printed
    assert 'tpuc.sizes = ["b=1..4", "s=2..9"]' in printed
    assert 'stablehlo.constant {tpuc.affine = ["s"], tpuc.function = "identity"} dense<9.000000e+00>' in printed
    assert 'stablehlo.divide %arg0, %0 {tpuc.dims = ["b,s"]} : tensor<4x9xf32>' in printed


def test_a_size_with_one_value_is_a_number() -> None:
    text = """
    func.func @main(%x: tensor<BxSxf32> {tpuc.argument = "input:x"}) -> tensor<BxSxf32> { return %x : tensor<BxSxf32> }
    """
    with mlir.make_context() as context:
        fixed = SizeRange(name="b", minimum=1, maximum=1)
        printed = mlir.to_text(_generalized(text, context).at([fixed, RANGES[1]]))
    assert 'tensor<1x9xf32> {tpuc.argument = "input:x", tpuc.dims = "1,s"}' in printed
    assert 'tpuc.sizes = ["s=2..9"]' in printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%0 = stablehlo.<<OP>> %x : tensor<4xf32>", "other operations at other sizes"),
        ("%0 = stablehlo.add %x, %<<ARG>> : tensor<4xf32>", "computes from other values at other sizes"),
        ("%0 = stablehlo.constant dense<<<ODD>>> : tensor<4xf32>", "is no function of them that tpuc knows"),
    ],
)
def test_programs_that_differ_in_more_than_numbers(text: str, message: str) -> None:
    odd = iter((3.5, 1.5, 4.5, 1.5, 5.5, 9.5, 2.5))
    main = (
        "func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {{ {} \n return %0 : tensor<4xf32> }}"
    )
    with mlir.make_context() as context:
        modules = []
        for sizes in SAMPLES:
            body = text.replace("<<OP>>", "negate" if sizes["s"] % 2 else "abs")
            body = body.replace("<<ARG>>", "x" if sizes["s"] % 2 else "y").replace("<<<ODD>>>", f"<{next(odd)}>")
            modules.append(mlir.parse(main.format(body), context))
        with pytest.raises(MisalignedError, match=message):
            generalize(modules, Inference(SAMPLES))
