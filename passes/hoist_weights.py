"""hoist-weights: what depends on weights alone is computed once, before the program.

The scale and shift of a batch norm, a weight in another precision, the rows of a table that positions take: eager
PyTorch computes them in every call, from weights that never change. Each becomes a function of its own that runs when
the artifact is made, and an argument of the program.

Before:

    func.func public @main(%x: tensor<8x64xf32> {tpuc.argument = "input:x"},
                           %v: tensor<64xf32> {tpuc.argument = "weight:bn.running_var"}) -> tensor<8x64xf32> {
      %0 = stablehlo.rsqrt %v : tensor<64xf32>
      %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<64xf32>) -> tensor<8x64xf32>
      %2 = stablehlo.multiply %x, %1 : tensor<8x64xf32>
      return %2 : tensor<8x64xf32>
    }

After:

    func.func public @main(%x: tensor<8x64xf32> {tpuc.argument = "input:x"},
                           %0: tensor<64xf32> {tpuc.argument = "prepared:prepare.0"}) -> tensor<8x64xf32> {
      %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<64xf32>) -> tensor<8x64xf32>
      %2 = stablehlo.multiply %x, %1 : tensor<8x64xf32>
      return %2 : tensor<8x64xf32>
    }
    func.func private @prepare.0(%v: tensor<64xf32> {tpuc.argument = "weight:bn.running_var"}) -> tensor<64xf32> {
      %0 = stablehlo.rsqrt %v : tensor<64xf32>
      return %0 : tensor<64xf32>
    }

What costs nothing in the program stays there: a reshape, a copy along a dimension, a conversion to a wider type, which
the compiler makes part of what reads them. So does cheap arithmetic whose result is larger than the weights that it
is made of, because the program would read more memory: an int8 weight stays int8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.base import Pass, PassContext
from tpuc.passes.main import Function, Main, name_of, new_preparation
from tpuc.passes.rewrite import Tensor, defining_op, erase_dead, nested_ops
from tpuc.passes.tensors import ELEMENTWISE, bytes_of, converts_exactly
from tpuc.passes.weight_only import clone_into, slice_back, weights_and_constants

#: What the compiler makes part of the operation that reads it.
_FREE = (stablehlo.BroadcastInDimOp, stablehlo.ReshapeOp, stablehlo.TransposeOp)
#: Elementwise operations that take many cycles an element.
_DEAR = (
    stablehlo.Atan2Op,
    stablehlo.CbrtOp,
    stablehlo.CosineOp,
    stablehlo.DivOp,
    stablehlo.ExpOp,
    stablehlo.Expm1Op,
    stablehlo.LogOp,
    stablehlo.Log1pOp,
    stablehlo.LogisticOp,
    stablehlo.PowOp,
    stablehlo.RemOp,
    stablehlo.RsqrtOp,
    stablehlo.SineOp,
    stablehlo.SqrtOp,
    stablehlo.TanOp,
    stablehlo.TanhOp,
)
_MOVES = (
    stablehlo.ConcatenateOp,
    stablehlo.ConstantOp,
    stablehlo.IotaOp,
    stablehlo.PadOp,
    stablehlo.ReverseOp,
    stablehlo.SliceOp,
)
_CHEAP = (*_FREE, *_MOVES, *(op for op in ELEMENTWISE if op not in _DEAR))


@dataclass(frozen=True, kw_only=True)
class HoistWeights(Pass):
    """Moves computations that depend on weights alone out of `@main`, into functions that prepare its arguments."""

    name: ClassVar[str] = "hoist-weights"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place."""
        count = hoist_weights(module)
        return {"hoisted": count} if count else {}


def hoist_weights(module: ir.Module) -> int:
    """Rewrites a module in place, and says how many tensors are prepared."""
    main = Main(module)
    known, _ = weights_and_constants(main)
    return prepare(main, list(_worth_preparing(main, known)))


def prepare(main: Main, values: Iterable[Tensor]) -> int:
    """Moves what computes values out of `@main`, into functions that prepare arguments in their place.

    Args:
        main: `@main` of the module.
        values: Results of operations in it, which depend on nothing but weights that are its arguments.

    Returns:
        How many tensors are prepared: values that are computed alike, of the same weights, are one.
    """
    names = dict(zip(main.block.arguments, main.argument_names, strict=True))
    functions: dict[str, Function] = {}  # by what they compute, of which weights
    prepared: dict[Tensor, Function] = {}
    for value in values:
        ops, leaves = slice_back([value], lambda each: each in names)
        function = new_preparation(main, [leaf.type for leaf in leaves], [names[leaf] for leaf in leaves], value.type)
        clone_into(function, ops, leaves, [value])
        _, _, computed = str(function.op).partition(name_of(function.op))
        prepared[value] = functions.setdefault(computed, function)
        if prepared[value] is not function:
            function.op.erase()
    types = {name_of(function.op): value.type for value, function in prepared.items()}
    added = main.add_arguments(list(types.values()), [f"prepared:{name}" for name in types])
    arguments = dict(zip(types, added, strict=True))
    for value, function in prepared.items():
        # What else is computed from the value may have been hoisted too, and goes.
        value.replace_all_uses_with(arguments[name_of(function.op)])
    erase_dead(main.block)
    main.erase_unused_weights()
    return len(functions)


def _worth_preparing(main: Main, known: set[Tensor]) -> Iterator[Tensor]:
    """The values that the rest of the program reads, or what they are made of where they cost nothing themselves."""
    todo = [value for op in reversed(list(main.block.operations)) for value in _read_by_the_rest(op, known)]
    seen: set[Tensor] = set()
    while todo:
        value = todo.pop()
        if value not in known or value in seen:
            continue
        seen.add(value)
        if is_worth_preparing(value):
            yield value
        else:
            op = defining_op(value)
            assert op is not None
            todo.extend(op.operands)


def _read_by_the_rest(op: ir.OpView, known: set[Tensor]) -> Iterable[Tensor]:
    if len(op.results) == 1 and op.results[0] in known:
        return []
    return [operand for each in nested_ops(op) for operand in each.operands]


def is_worth_preparing(value: Tensor) -> bool:
    """Says whether a value that depends on weights alone is better computed before `@main` than in it."""
    op = defining_op(value)
    if isinstance(op, _FREE) or (isinstance(op, stablehlo.ConvertOp) and _widens(op)):
        return False
    ops, leaves = slice_back([value], lambda each: defining_op(each) is None)
    if not all(isinstance(each, _CHEAP) for each in ops):
        return True
    return bytes_of(value) <= sum(map(bytes_of, leaves))


def _widens(op: stablehlo.ConvertOp) -> bool:
    return converts_exactly(op.operand.type.element_type, op.result.type.element_type)
