"""Rules of `pad-dynamic` for what leaves padding where it is: constants, elementwise operations, reshapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, stablehlo

from tpuc.passes.axes import Axis, Layout, dense, regroup
from tpuc.passes.padding import ONE, ZERO, Padding, Refusal, Replaced, scalar
from tpuc.passes.padding_rules import on
from tpuc.passes.rewrite import Tensor
from tpuc.passes.tensors import CHLO_ELEMENTWISE, ELEMENTWISE, broadcast, reshape
from tpuc.runtime.sizes import SizeExpr

#: Beyond `ELEMENTWISE`.
_OTHER_ELEMENTWISE = (
    stablehlo.ClzOp,
    stablehlo.ComplexOp,
    stablehlo.ImagOp,
    stablehlo.MapOp,
    stablehlo.OptimizationBarrierOp,
    stablehlo.PopulationCountOp,
    stablehlo.RealOp,
    stablehlo.ReducePrecisionOp,
    stablehlo.ShiftLeftOp,
    stablehlo.ShiftRightArithmeticOp,
    stablehlo.ShiftRightLogicalOp,
    chlo.BesselI1eOp,
    chlo.ConjOp,
    chlo.IsInfOp,
    chlo.IsNegInfOp,
    chlo.IsPosInfOp,
    chlo.MulhiOp,
    chlo.NextAfterOp,
    chlo.PolygammaOp,
    chlo.ZetaOp,
)


@on(stablehlo.ConstantOp)
def constant(op: Any, padding: Padding) -> Sequence[Layout] | Replaced:
    """A constant whose elements are the same, or depend on the sizes as it is annotated."""
    [dims] = padding.result_dims(op)
    layout = dense(op.result.type.shape, dims, is_free=op.value.is_splat)
    if "tpuc.affine" in op.attributes:
        first, *steps = padding.integers(op, "affine")
        layout = dense(op.result.type.shape, dims, is_free=not steps)
        return Replaced([_affine(op, first, steps, padding)], [layout])
    if "tpuc.elements" in op.attributes:
        numbers = [padding.number(each, op.result.type.element_type) for each in padding.integers(op, "elements")]
        elements = [reshape(_apply_function(padding.function(op), number), [1]) for number in numbers]
        column = stablehlo.concatenate(elements, 0)
        return Replaced([reshape(column, op.result.type.shape)], [layout])
    if any(axis.is_padded for axis in layout) and not op.value.is_splat:
        raise Refusal("it has elements that depend on the sizes")
    return [layout]


def _affine(op: Any, first: SizeExpr, steps: Sequence[SizeExpr], padding: Padding) -> Tensor:
    type_ = op.result.type
    total = _apply_function(padding.function(op), padding.number(first, type_.element_type))
    value = broadcast(total, type_.shape, [])
    for dimension, step in enumerate(steps):
        if step != ZERO:
            index = stablehlo.iota(type_, dimension)
            factor = broadcast(padding.number(step, type_.element_type), type_.shape, [])
            value = stablehlo.add(value, stablehlo.multiply(index, factor))
    return value


def _apply_function(name: str, value: Tensor) -> Tensor:
    match name:
        case "reciprocal":
            return stablehlo.divide(scalar(value.type.element_type, 1), value)
        case "sqrt":
            return stablehlo.sqrt(value)
        case "rsqrt":
            return stablehlo.divide(scalar(value.type.element_type, 1), stablehlo.sqrt(value))
        case "log":
            return stablehlo.log(value)
    return value


@on(stablehlo.IotaOp)
def iota(op: Any, padding: Padding) -> Sequence[Layout]:
    """Counts along one dimension; along the others all elements are the same."""
    [dims] = padding.result_dims(op)
    layout = dense(op.result.type.shape, dims)
    counted = (
        ir.IntegerAttr(op.iota_dimension).value if isinstance(op.iota_dimension, ir.Attribute) else op.iota_dimension
    )
    return [tuple(axis if at == counted else Axis(axis.factors, is_free=True) for at, axis in enumerate(layout))]


@on(*ELEMENTWISE, *CHLO_ELEMENTWISE, *_OTHER_ELEMENTWISE)
def elementwise(op: Any, padding: Padding) -> Sequence[Layout]:
    """Elements meet elements, and padding meets padding."""
    shape = list(op.results[0].type.shape)
    places = [place for place, operand in enumerate(op.operands) if list(operand.type.shape) == shape]
    if len(op.results) > 1:
        return [padding.layouts[operand] for operand in op.operands]
    values, layout = padding.meet([op.operands[place] for place in places])
    for place, value in zip(places, values, strict=True):
        op.operation.operands[place] = value
    return [layout]


@on(stablehlo.BroadcastInDimOp)
def broadcast_in_dim(op: Any, padding: Padding) -> Sequence[Layout]:
    """Copies along new dimensions, and along those of size one."""
    [dims] = padding.result_dims(op)
    axes = list(dense(op.result.type.shape, dims, is_free=True))
    for axis, place in zip(padding.layouts[op.operand], op.broadcast_dimensions, strict=True):
        if axis.size == dims[place]:
            axes[place] = axis
        elif axis.size != ONE:
            raise Refusal(f"a dimension of {axis.size} becomes one of {dims[place]}")
    return [tuple(axes)]


@on(stablehlo.TransposeOp)
def transpose(op: Any, padding: Padding) -> Sequence[Layout]:
    """The dimensions change places, each with its padding."""
    layout = padding.layouts[op.operand]
    return [tuple(layout[place] for place in op.permutation)]


@on(stablehlo.ReshapeOp)
def reshape_op(op: Any, padding: Padding) -> Sequence[Layout] | Replaced:
    """Dimensions are merged and split at the borders of their factors, or all elements are moved."""
    [dims] = padding.result_dims(op)
    shape = op.result.type.shape
    layout = padding.layouts[op.operand]
    found = regroup(layout, shape, dims)
    if found is not None:
        return [_still_free(layout, found)]
    target = dense(shape, dims)
    return Replaced([padding.reshape(op.operand, target)], [target])


def _still_free(before: Layout, after: Layout) -> Layout:
    """Keeps the axes free that a reshape leaves alone, as it does all but dimensions of size one."""
    old = [axis for axis in before if axis.factors]
    new = [axis for axis in after if axis.factors]
    if [axis.factors for axis in old] != [axis.factors for axis in new]:
        return after
    rest = iter(old)
    return tuple(next(rest) if axis.factors else axis for axis in after)


@on(stablehlo.BitcastConvertOp)
def bitcast_convert(op: Any, padding: Padding) -> Sequence[Layout]:
    """Elements of another width make or take a last dimension, which has no padding."""
    layout = padding.layouts[op.operand]
    [dims] = padding.result_dims(op)
    shared = min(len(layout), len(dims))
    if any(axis.is_padded for axis in layout[shared:]):
        raise Refusal("the dimension that becomes part of its elements varies")
    return [(*layout[:shared], *dense(op.result.type.shape[shared:], dims[shared:]))]
