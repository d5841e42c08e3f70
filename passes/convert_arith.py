"""convert-arith: turns what torch-mlir leaves behind into plain, static StableHLO.

torch-mlir ends in StableHLO of dynamic form even where every shape is known: sizes are operands, constants are
`arith`, binary operations broadcast implicitly (`chlo.broadcast_*`). XLA makes some of that static itself and refuses
the rest, and the passes after this one want one form for one thing.

Before:

    %shape = arith.constant dense<[4, 1]> : tensor<2xindex>
    %0 = stablehlo.dynamic_reshape %bias, %shape : (tensor<4xf32>, tensor<2xindex>) -> tensor<4x1xf32>
    %1 = chlo.broadcast_add %x, %0 : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>

After:

    %0 = stablehlo.reshape %bias : (tensor<4xf32>) -> tensor<4x1xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x8xf32>
    %2 = stablehlo.add %x, %1 : tensor<4x8xf32>

Where a result's type is static, so is the operation, and an operand that gives its size says nothing new: it is
dropped unread. Operands that do say something (where a slice starts, how much is padded) must be constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import arith, chlo, stablehlo

from tpuc.errors import PassError
from tpuc.passes.base import Pass, PassContext
from tpuc.passes.rewrite import Rules, Tensor, defining_op, op_name
from tpuc.passes.tensors import broadcast, constant_integers, is_static, producer, reshape, splat_constant, zeros

RULES = Rules()

#: What each implicitly broadcasting operation is, once its operands have the result's shape.
BINARY: Mapping[type[ir.OpView], Callable[[Tensor, Tensor], Tensor]] = {
    chlo.BroadcastAddOp: stablehlo.add,
    chlo.BroadcastAndOp: stablehlo.and_,
    chlo.BroadcastAtan2Op: stablehlo.atan2,
    chlo.BroadcastComplexOp: stablehlo.complex,
    chlo.BroadcastDivOp: stablehlo.divide,
    chlo.BroadcastMaxOp: stablehlo.maximum,
    chlo.BroadcastMinOp: stablehlo.minimum,
    chlo.BroadcastMulOp: stablehlo.multiply,
    chlo.BroadcastNextAfterOp: chlo.next_after,
    chlo.BroadcastOrOp: stablehlo.or_,
    chlo.BroadcastPolygammaOp: chlo.polygamma,
    chlo.BroadcastPowOp: stablehlo.power,
    chlo.BroadcastRemOp: stablehlo.remainder,
    chlo.BroadcastShiftLeftOp: stablehlo.shift_left,
    chlo.BroadcastShiftRightArithmeticOp: stablehlo.shift_right_arithmetic,
    chlo.BroadcastShiftRightLogicalOp: stablehlo.shift_right_logical,
    chlo.BroadcastSubOp: stablehlo.subtract,
    chlo.BroadcastXorOp: stablehlo.xor,
    chlo.BroadcastZetaOp: chlo.zeta,
}

#: Dialects that XLA reads, and the operations of theirs that are to be gone.
_READ_BY_XLA = ("builtin.", "func.", "stablehlo.", "chlo.", "sdy.")
_TO_BE_GONE = (
    "chlo.broadcast_",
    "chlo.constant",
    "stablehlo.dynamic_broadcast_in_dim",
    "stablehlo.dynamic_conv",
    "stablehlo.dynamic_gather",
    "stablehlo.dynamic_iota",
    "stablehlo.dynamic_pad",
    "stablehlo.dynamic_reshape",
    "stablehlo.real_dynamic_slice",
)


@dataclass(frozen=True, kw_only=True)
class ConvertArith(Pass):
    """Turns arith, tensor, implicitly broadcasting and dynamically shaped operations into static StableHLO.

    It is an error if one of them is left in the end.
    """

    name: ClassVar[str] = "convert-arith"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place.

        Raises:
            PassError: Some operations could not be converted; all of them are named, with their source locations.
        """
        rewrites = RULES.apply(module)
        _check(module)
        return rewrites


def _check(module: ir.Module) -> None:
    left: list[str] = []

    def collect(op: ir.Operation) -> ir.WalkResult:
        if not op_name(op).startswith(_READ_BY_XLA) or op_name(op).startswith(_TO_BE_GONE):
            left.append(f"{op_name(op)} at {str(op.location).removeprefix('loc(').removesuffix(')')}")
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    if left:
        raise PassError(
            f"{len(left)} operation{'s' if len(left) != 1 else ''} cannot be made static StableHLO:\n  "
            + "\n  ".join(left)
        )


@RULES.on(arith.ConstantOp)
def arith_constant(op: arith.ConstantOp) -> Tensor | None:
    """arith.constant of a tensor => stablehlo.constant; tensors of index go when their readers no longer need them."""
    type_ = op.result.type
    if not isinstance(type_, ir.RankedTensorType) or isinstance(type_.element_type, ir.IndexType):
        return None
    return stablehlo.constant(op.value)


@RULES.on(chlo.ConstantOp)
def chlo_constant(op: chlo.ConstantOp) -> Tensor:
    """chlo.constant => stablehlo.constant."""
    return stablehlo.constant(op.value)


@RULES.on(chlo.ConstantLikeOp)
def constant_like(op: chlo.ConstantLikeOp) -> Tensor | None:
    """chlo.constant_like => stablehlo.constant."""
    if not is_static(op.result):
        return None
    return splat_constant(op.value, op.result.type)


@RULES.on(*BINARY)
def broadcast_binary(op: ir.OpView) -> Tensor | None:
    """chlo.broadcast_add and its like => broadcast_in_dim of the operands, and the operation itself."""
    if not is_static(op.result, *op.operands):
        return None
    lhs, rhs = _broadcast_operands(op)
    return BINARY[type(op)](lhs, rhs)


@RULES.on(chlo.BroadcastCompareOp)
def broadcast_compare(op: chlo.BroadcastCompareOp) -> Tensor | None:
    """chlo.broadcast_compare => broadcast_in_dim of the operands, and compare."""
    if not is_static(op.result, *op.operands):
        return None
    lhs, rhs = _broadcast_operands(op)
    # The two dialects have an attribute each for the same words.
    direction = ir.Attribute.parse(str(op.comparison_direction).replace("#chlo<", "#stablehlo<"))
    kind = op.compare_type
    if kind is not None:
        kind = ir.Attribute.parse(str(kind).replace("#chlo<", "#stablehlo<"))
    return stablehlo.compare(lhs, rhs, direction, compare_type=kind)


@RULES.on(chlo.BroadcastSelectOp)
def broadcast_select(op: chlo.BroadcastSelectOp) -> Tensor | None:
    """chlo.broadcast_select => broadcast_in_dim of the operands, and select."""
    if not is_static(op.result, *op.operands):
        return None
    return stablehlo.select(*_broadcast_operands(op))


def _broadcast_operands(op: ir.OpView) -> Sequence[Tensor]:
    """Broadcasts operands to the result's shape: by `broadcast_dimensions` if it is given, else trailing to trailing.

    The attribute speaks of the operand of lower rank; one of full rank stays in place.
    """
    shape = op.results[0].type.shape
    given: Sequence[int] | None = None
    if "broadcast_dimensions" in op.attributes:
        given = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
    operands = []
    for operand in op.operands:
        missing = len(shape) - operand.type.rank
        trailing = range(missing, len(shape))
        operands.append(broadcast(operand, shape, given if given is not None and missing else trailing))
    return operands


@RULES.on(stablehlo.DynamicReshapeOp)
def dynamic_reshape(op: stablehlo.DynamicReshapeOp) -> Tensor | None:
    """dynamic_reshape to a static type => reshape."""
    return reshape(op.operand, op.result.type.shape) if is_static(op.result, op.operand) else None


@RULES.on(stablehlo.DynamicBroadcastInDimOp)
def dynamic_broadcast_in_dim(op: stablehlo.DynamicBroadcastInDimOp) -> Tensor | None:
    """dynamic_broadcast_in_dim to a static type => broadcast_in_dim."""
    if not is_static(op.result, op.operand):
        return None
    return broadcast(op.operand, op.result.type.shape, list(op.broadcast_dimensions))


@RULES.on(stablehlo.DynamicIotaOp)
def dynamic_iota(op: stablehlo.DynamicIotaOp) -> Tensor | None:
    """dynamic_iota of a static type => iota."""
    return stablehlo.iota(op.result.type, op.iota_dimension) if is_static(op.result) else None


@RULES.on(stablehlo.RealDynamicSliceOp)
def real_dynamic_slice(op: stablehlo.RealDynamicSliceOp) -> Tensor | None:
    """real_dynamic_slice between constant bounds => slice."""
    start, limit, strides = map(constant_integers, (op.start_indices, op.limit_indices, op.strides))
    if start is None or limit is None or strides is None or not is_static(op.result, op.operand):
        return None
    return stablehlo.slice(op.operand, start, limit, strides)


@RULES.on(stablehlo.DynamicPadOp)
def dynamic_pad(op: stablehlo.DynamicPadOp) -> Tensor | None:
    """dynamic_pad by constants => pad."""
    low, high, interior = map(constant_integers, (op.edge_padding_low, op.edge_padding_high, op.interior_padding))
    if low is None or high is None or interior is None or not is_static(op.result, op.operand):
        return None
    return stablehlo.pad(op.operand, op.padding_value, low, high, interior)


@RULES.on(stablehlo.DynamicGatherOp)
def dynamic_gather(op: stablehlo.DynamicGatherOp) -> Tensor | None:
    """dynamic_gather of slices of constant size => gather."""
    sizes = constant_integers(op.slice_sizes)
    if sizes is None or not is_static(op.result, op.operand, op.start_indices):
        return None
    return stablehlo.gather(
        op.operand, op.start_indices, op.dimension_numbers, sizes, indices_are_sorted=op.indices_are_sorted
    )


@RULES.on(stablehlo.DotOp)
def dot(op: stablehlo.DotOp) -> Tensor:
    """dot, of vectors and matrices only => dot_general, so that there is one operation for matrix products."""
    numbers = stablehlo.DotDimensionNumbers.get([], [], [op.lhs.type.rank - 1], [0])
    return stablehlo.dot_general(op.result.type, op.lhs, op.rhs, numbers, precision_config=op.precision_config)


@RULES.on("tensor.empty")
def tensor_empty(op: ir.OpView) -> Tensor | None:
    """tensor.empty => zeros: its elements are undefined, so these are as good as any."""
    if not is_static(op.result) or isinstance(op.result.type.element_type, ir.ComplexType):
        return None
    return zeros(op.result.type)


@RULES.on("tensor.cast")
def tensor_cast(op: ir.OpView) -> Tensor | None:
    """tensor.cast to the type that the tensor had before it was cast away from it => the tensor."""
    source = op.operands[0]
    owner = defining_op(source)
    if owner is not None and op_name(owner) == "tensor.cast":
        source = owner.operands[0]
    return source if source.type == op.result.type else None


@RULES.on("tensor.from_elements")
def tensor_from_elements(op: ir.OpView) -> Tensor | None:
    """tensor.from_elements of one scalar that was extracted from a constant place of a tensor => slice and reshape."""
    extract = defining_op(op.operands[0]) if len(op.operands) == 1 else None
    if extract is None or op_name(extract) != "tensor.extract" or not is_static(extract.operands[0]):
        return None
    source, *indices = extract.operands
    constants = [producer(index, arith.ConstantOp) for index in indices]
    start = [ir.IntegerAttr(constant.value).value for constant in constants if constant is not None]
    if len(start) < len(constants):
        return None
    element = stablehlo.slice(source, start, [index + 1 for index in start], [1] * len(start)) if start else source
    return reshape(element, op.result.type.shape)
