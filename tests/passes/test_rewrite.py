"""The driver of rewrite rules: what it visits, what it erases, what it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc import mlir
from tpuc.passes.rewrite import Rules, Tensor, attributes_of, defining_op
from tpuc.passes.tensors import has_one_use, producer


@pytest.fixture
def context() -> Iterator[ir.Context]:
    with mlir.make_context() as context:
        yield context


def parse(body: str, context: ir.Context, result: str = "tensor<4xf32>") -> ir.Module:
    return mlir.parse(f"func.func @main(%x: tensor<4xf32>) -> {result} {{\n{body}\n}}", context)


def names(module: ir.Module) -> list[str]:
    """Lists the operations of `@main`, without the dialect, terminator and what is inside others left out."""
    return [op.name.partition(".")[2] for op in module.body.operations[0].regions[0].blocks[0].operations][:-1]


def test_counts_by_rule(context: ir.Context) -> None:
    rules = Rules()

    @rules.on(stablehlo.NegOp, stablehlo.AbsOp)
    def to_sign(op: ir.OpView) -> Tensor:
        return stablehlo.sign(op.operands[0])

    @rules.on("stablehlo.exponential")
    def never(op: ir.OpView) -> None:
        return None

    module = parse(
        """
        %0 = stablehlo.negate %x : tensor<4xf32>
        %1 = stablehlo.abs %0 : tensor<4xf32>
        %2 = stablehlo.exponential %1 : tensor<4xf32>
        return %2 : tensor<4xf32>
        """,
        context,
    )
    assert rules.apply(module) == {"to_sign": 2}
    assert names(module) == ["sign", "sign", "exponential"]
    module.operation.verify()


def test_the_first_rule_that_matches_wins(context: ir.Context) -> None:
    rules = Rules()

    @rules.on(stablehlo.NegOp)
    def first(op: stablehlo.NegOp) -> Tensor:
        return stablehlo.abs(op.operand)

    @rules.on(stablehlo.NegOp)
    def second(op: stablehlo.NegOp) -> Tensor:
        return stablehlo.sign(op.operand)

    module = parse("%0 = stablehlo.negate %x : tensor<4xf32>\nreturn %0 : tensor<4xf32>", context)
    assert rules.apply(module) == {"first": 1}
    assert names(module) == ["abs"]


def test_visits_what_a_rule_made(context: ir.Context) -> None:
    # The absolute value moves up one step a rewrite: each step is an operation that the step before made.
    rules = Rules()
    visits = 0

    @rules.on(stablehlo.AbsOp)
    def up(op: stablehlo.AbsOp) -> Tensor | None:
        inner = producer(op.operand, stablehlo.CosineOp)
        return stablehlo.cosine(stablehlo.abs(inner.operand)) if inner else None

    @rules.on(stablehlo.CosineOp)
    def count(op: stablehlo.CosineOp) -> None:
        nonlocal visits
        visits += 1

    steps = 300
    lines = ["%0 = stablehlo.cosine %x : tensor<4xf32>"]
    lines += [f"%{step} = stablehlo.cosine %{step - 1} : tensor<4xf32>" for step in range(1, steps)]
    lines += [f"%a = stablehlo.abs %{steps - 1} : tensor<4xf32>", "return %a : tensor<4xf32>"]
    module = parse("\n".join(lines), context)
    assert rules.apply(module) == {"up": steps}
    assert names(module) == ["abs"] + ["cosine"] * steps
    assert visits < 10 * steps, "the whole module was gone through again and again"


def test_visits_again_what_only_became_possible_further_away(context: ir.Context) -> None:
    # The rule looks two operations back, and only neighbours of a change are queued.
    rules = Rules()

    @rules.on(stablehlo.ExpOp)
    def exp_of_abs_of_sign(op: stablehlo.ExpOp) -> Tensor | None:
        absolute = producer(op.operand, stablehlo.AbsOp)
        sign = producer(absolute.operand, stablehlo.SignOp) if absolute else None
        return stablehlo.tanh(sign.operand) if sign else None

    @rules.on(stablehlo.NegOp)
    def neg_to_sign(op: stablehlo.NegOp) -> Tensor | None:
        return stablehlo.sign(op.operand) if has_one_use(op.result) else None

    @rules.on(stablehlo.FloorOp)
    def release(op: stablehlo.FloorOp) -> Tensor | None:
        negate = producer(op.operand, stablehlo.NegOp)
        return stablehlo.ceil(negate.operand) if negate else None

    # The exponential is visited before the floor releases the negation, which then becomes a sign.
    module = parse(
        """
        %0 = stablehlo.negate %x : tensor<4xf32>
        %1 = stablehlo.abs %0 : tensor<4xf32>
        %2 = stablehlo.exponential %1 : tensor<4xf32>
        %3 = stablehlo.floor %0 : tensor<4xf32>
        %4 = stablehlo.add %2, %3 : tensor<4xf32>
        return %4 : tensor<4xf32>
        """,
        context,
    )
    rules.apply(module)
    assert names(module) == ["tanh", "ceil", "add"]


def test_erases_what_nobody_reads(context: ir.Context) -> None:
    module = parse(
        """
        %0 = stablehlo.negate %x : tensor<4xf32>
        %1 = stablehlo.abs %0 : tensor<4xf32>
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0]
          : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
        return %x : tensor<4xf32>
        """,
        context,
    )
    assert Rules().apply(module) == {}
    assert names(module) == []


def test_keeps_what_has_an_effect(context: ir.Context) -> None:
    module = parse(
        """
        %0 = stablehlo.custom_call @print(%x) {has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32>
        return %x : tensor<4xf32>
        """,
        context,
    )
    Rules().apply(module)
    assert names(module) == ["custom_call"]


def test_erases_an_operation_with_everything_inside(context: ir.Context) -> None:
    # The inside of the reduction is queued when the reduction goes, and its block's arguments go with it.
    rules = Rules()

    @rules.on(stablehlo.ReduceOp)
    def to_start(op: stablehlo.ReduceOp) -> Tensor:
        return stablehlo.negate(op.operands[1])

    @rules.on(stablehlo.AddOp)
    def never(op: stablehlo.AddOp) -> None:
        return None

    module = parse(
        """
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
          : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
        return %0 : tensor<f32>
        """,
        context,
        result="tensor<f32>",
    )
    assert rules.apply(module) == {"to_start": 1}
    module.operation.verify()
    assert names(module) == ["constant", "negate"]


def test_rewrites_inside_other_operations(context: ir.Context) -> None:
    rules = Rules()

    @rules.on(stablehlo.AddOp)
    def add_to_maximum(op: stablehlo.AddOp) -> Tensor:
        return stablehlo.maximum(op.lhs, op.rhs)

    module = parse(
        """
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
          : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
        return %0 : tensor<f32>
        """,
        context,
        result="tensor<f32>",
    )
    rules.apply(module)
    assert "applies stablehlo.maximum" in mlir.to_text(module)


def test_several_results(context: ir.Context) -> None:
    rules = Rules()

    @rules.on(stablehlo.SortOp)
    def unsorted(op: stablehlo.SortOp) -> list[Tensor] | None:
        return list(op.operands)[::-1]

    module = parse(
        """
        %0 = stablehlo.negate %x : tensor<4xf32>
        %1:2 = "stablehlo.sort"(%x, %0) <{dimension = 0 : i64, is_stable = false}> ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f32>, %d: tensor<f32>):
            %2 = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
            stablehlo.return %2 : tensor<i1>
        }) : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
        %3 = stablehlo.subtract %1#0, %1#1 : tensor<4xf32>
        return %3 : tensor<4xf32>
        """,
        context,
    )
    assert rules.apply(module) == {"unsorted": 1}
    assert names(module) == ["negate", "subtract"]
    assert "stablehlo.subtract %0, %arg0" in mlir.to_text(module)


def test_new_operations_take_the_source_location(context: ir.Context) -> None:
    rules = Rules()

    @rules.on(stablehlo.NegOp)
    def to_difference(op: stablehlo.NegOp) -> Tensor:
        return stablehlo.subtract(stablehlo.sign(op.operand), op.operand)

    module = parse(
        '%0 = stablehlo.negate %x : tensor<4xf32> loc("layers.0.act/neg"("model.py":7:0))\nreturn %0 : tensor<4xf32>',
        context,
    )
    rules.apply(module)
    *made, _ = module.body.operations[0].regions[0].blocks[0].operations
    assert [str(op.location) for op in made] == ['loc("layers.0.act/neg"("model.py":7:0))'] * 2


def test_rules_that_never_end(context: ir.Context) -> None:
    rules = Rules()

    @rules.on(stablehlo.NegOp)
    def there(op: stablehlo.NegOp) -> Tensor:
        return stablehlo.abs(op.operand)

    @rules.on(stablehlo.AbsOp)
    def and_back(op: stablehlo.AbsOp) -> Tensor:
        return stablehlo.negate(op.operand)

    module = parse("%0 = stablehlo.negate %x : tensor<4xf32>\nreturn %0 : tensor<4xf32>", context)
    with pytest.raises(RuntimeError, match=r"do not come to an end; they fired most: (there|and_back) \(\d+x\)"):
        rules.apply(module)


def test_a_rule_that_changes_the_type(context: ir.Context) -> None:
    rules = Rules()

    @rules.on(stablehlo.NegOp)
    def wrong(op: stablehlo.NegOp) -> Tensor:
        return stablehlo.convert(ir.Type.parse("tensor<4xf64>"), op.operand)

    module = parse("%0 = stablehlo.negate %x : tensor<4xf32>\nreturn %0 : tensor<4xf32>", context)
    expected = r"rule wrong replaces stablehlo\.negate's \(tensor<4xf32>\) by \(tensor<4xf64>\)"
    with pytest.raises(TypeError, match=expected):
        rules.apply(module)


def test_an_exception_in_a_rule_comes_out_as_it_is(context: ir.Context) -> None:
    rules = Rules()

    @rules.on(stablehlo.NegOp)
    def broken(op: stablehlo.NegOp) -> Tensor:
        raise KeyError("axis")

    module = parse("%0 = stablehlo.negate %x : tensor<4xf32>\nreturn %0 : tensor<4xf32>", context)
    with pytest.raises(KeyError, match="axis"):
        rules.apply(module)


def test_defining_op(context: ir.Context) -> None:
    module = parse("%0 = stablehlo.negate %x : tensor<4xf32>\nreturn %0 : tensor<4xf32>", context)
    negate = module.body.operations[0].regions[0].blocks[0].operations[0]
    assert defining_op(negate.results[0]) == negate
    assert defining_op(negate.operands[0]) is None


@pytest.mark.parametrize("element", ["f32", "complex<f32>", "complex<f64>"])
def test_attributes_are_compared(element: str, context: ir.Context) -> None:
    one, two = ("(1.0, 0.0)", "(2.0, 0.0)") if "complex" in element else ("1.0", "2.0")
    type_ = f"tensor<4x{element}>"
    lines = [f"%{index} = stablehlo.constant dense<{value}> : {type_}" for index, value in enumerate((one, one, two))]
    module = parse("\n".join([*lines, f"return %0 : {type_}"]), context, result=type_)
    first, second, third = map(attributes_of, list(module.body.operations[0].regions[0].blocks[0].operations)[:3])
    assert first == second != third
    assert hash(first) == hash(second)
