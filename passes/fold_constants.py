"""fold-constants: evaluates operations whose operands are all constants.

torch-mlir passes every scalar of a program as a one-element f64 or i64 constant that is converted, reshaped and
broadcast where it is used. Other passes look for constants (a multiplication by one, an epsilon in f64), so what is
constant should look it. The compiler folds constants too, but too late for that: without this pass, scale-before-reduce
finds none of a BERT's means.

Before:

    %0 = stablehlo.constant dense<1.000000e-05> : tensor<1xf64>
    %1 = stablehlo.convert %0 : (tensor<1xf64>) -> tensor<1xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<1xf32>) -> tensor<128xf32>

After:

    %0 = stablehlo.constant dense<9.99999974E-6> : tensor<128xf32>

The values come from StableHLO's own reference interpreter, so they are right by definition: no second
implementation of rounding, overflow and integer division. A result whose elements are all the same costs nothing,
whatever its size; others are evaluated up to `max-elements`, since a constant is stored and a computation is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo

from tpuc.passes.base import Pass, PassContext
from tpuc.passes.rewrite import Rules, Tensor
from tpuc.passes.tensors import ELEMENTWISE, constant_elements, rebuild, splat_number, tensor_type, zeros

#: Operations that only place the elements of their operands.
PLACING: tuple[type[ir.OpView], ...] = (
    stablehlo.BroadcastInDimOp,
    stablehlo.ConcatenateOp,
    stablehlo.ReshapeOp,
    stablehlo.ReverseOp,
    stablehlo.SliceOp,
    stablehlo.TransposeOp,
)


@dataclass(frozen=True, kw_only=True)
class FoldConstants(Pass):
    """Evaluates operations whose operands are all constants.

    Attributes:
        max_elements: The most elements that a result may have, if they are not all the same. The interpreter takes
            about 2 microseconds for each.
    """

    name: ClassVar[str] = "fold-constants"
    max_elements: int = 1024

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place."""
        rules = Rules()
        rules.on(*ELEMENTWISE)(fold_elementwise_splat)
        rules.on(*PLACING)(fold_placed_splat)
        rules.on(stablehlo.IotaOp)(fold_iota)

        @rules.on(*ELEMENTWISE, *PLACING)
        def fold_elements(op: ir.OpView) -> Tensor | None:
            small = all(math.prod(value.type.shape) <= self.max_elements for value in (op.result, *op.operands))
            values = _operand_elements(op) if small else None
            return stablehlo.constant(_evaluate(op, values, op.result.type)) if values is not None else None

        return rules.apply(module)


def fold_elementwise_splat(op: ir.OpView) -> Tensor | None:
    """f(splat a, splat b) => splat f(a, b), evaluated for one element."""
    values = _operand_elements(op)
    if values is None or not all(value.is_splat for value in values):
        return None
    scalars = [
        ir.DenseElementsAttr.get_splat(tensor_type([], operand.type.element_type), value.get_splat_value())
        for operand, value in zip(op.operands, values, strict=True)
    ]
    result = _evaluate(op, scalars, tensor_type([], op.result.type.element_type))
    return stablehlo.constant(ir.DenseElementsAttr.get_splat(op.result.type, result.get_splat_value()))


def fold_placed_splat(op: ir.OpView) -> Tensor | None:
    """A broadcast, reshape, transpose, slice, ... of equal elements => as many of them as there are now."""
    values = _operand_elements(op)
    if values is None or not all(value.is_splat for value in values):
        return None
    elements = {value.get_splat_value() for value in values}
    if len(elements) > 1:
        return None
    return stablehlo.constant(ir.DenseElementsAttr.get_splat(op.result.type, elements.pop()))


def fold_iota(op: stablehlo.IotaOp) -> Tensor | None:
    """An iota along a dimension of size one => zeros."""
    type_ = op.result.type
    if type_.shape[op.iota_dimension.value] != 1:
        return None
    return zeros(type_)


def _operand_elements(op: ir.OpView) -> list[ir.DenseElementsAttr] | None:
    """Returns the values of an operation's operands if all are constants and the interpreter can take them."""
    type_ = op.result.type
    if isinstance(type_.element_type, ir.ComplexType):
        return None
    # Integer division by zero, which StableHLO leaves undefined, would end the process.
    divides = isinstance(op, (stablehlo.DivOp, stablehlo.RemOp)) and isinstance(type_.element_type, ir.IntegerType)
    if divides and not splat_number(op.operands[1]):
        return None
    values = [constant_elements(operand) for operand in op.operands]
    dense = [value for value in values if value is not None]
    return dense if len(dense) == len(values) else None


def _evaluate(op: ir.OpView, values: Sequence[ir.DenseElementsAttr], result: ir.Type) -> ir.DenseElementsAttr:
    """Evaluates an operation on other operands, in a module of its own."""
    with ir.Location.unknown():
        scratch = ir.Module.create()
        with ir.InsertionPoint(scratch.body):
            main = func.FuncOp("main", ir.FunctionType.get([], [result]))
        with ir.InsertionPoint(ir.Block.create_at_start(main.regions[0], [])):
            func.ReturnOp([rebuild(op, [stablehlo.constant(value) for value in values], result)])
    return cast(ir.DenseElementsAttr, stablehlo.eval_module(scratch, [])[0])
