"""What rules share: looking at tensors and constants, and building the operations that every pass builds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import arith, chlo, stablehlo

from tpuc import mlir
from tpuc.passes.rewrite import Tensor, defining_op

OpT = TypeVar("OpT", bound=ir.OpView)


def producer(value: ir.Value[Any], op: type[OpT]) -> OpT | None:
    """Returns the operation that made a value if it is of this class, else None."""
    owner = defining_op(value)
    view = owner.opview if owner is not None else None
    return view if isinstance(view, op) else None


def has_one_use(value: ir.Value[Any]) -> bool:
    """Says whether exactly one operand reads a value."""
    uses = iter(value.uses)
    return next(uses, None) is not None and next(uses, None) is None


def is_static(*values: ir.Value[Any]) -> bool:
    """Says whether all of these are ranked tensors of a known shape."""
    return all(isinstance(value.type, ir.RankedTensorType) and value.type.has_static_shape for value in values)


def tensor_type(shape: Sequence[int], element_type: ir.Type) -> ir.RankedTensorType:
    """Returns the type of a tensor with this shape and element type."""
    return ir.RankedTensorType.get(list(shape), element_type)


#: JAX's dtypes, by the names of the element types that passes hand to it.
_JAX_DTYPES: Mapping[str, Any] = {"bf16": jnp.bfloat16, "f32": jnp.float32, "i1": jnp.bool_}


def shape_struct(value: Tensor) -> jax.ShapeDtypeStruct:
    """Returns the shape and dtype of a tensor of bf16, f32 or bool as JAX takes them."""
    dtype = _JAX_DTYPES[str(value.type.element_type)]
    return jax.ShapeDtypeStruct(tuple(value.type.shape), dtype)  # type: ignore[no-untyped-call]


def is_64_bit_integer(type_: ir.Type) -> bool:
    """Says whether an element type is an integer of 64 bits, with a sign or without."""
    return isinstance(type_, ir.IntegerType) and type_.width == 64


def reshape(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Builds a reshape, unless the tensor has this shape already."""
    if value.type.shape == list(shape):
        return value
    return stablehlo.reshape(tensor_type(shape, value.type.element_type), value)


def squeeze(value: Tensor) -> Tensor:
    """Builds a reshape to the dimensions that are not of size one."""
    return reshape(value, [size for size in value.type.shape if size != 1])


def transpose(value: Tensor, permutation: Sequence[int]) -> Tensor:
    """Builds a transpose, unless the permutation changes nothing."""
    if is_identity(permutation):
        return value
    return stablehlo.transpose(value, list(permutation))


def broadcast(value: Tensor, shape: Sequence[int], dimensions: Sequence[int]) -> Tensor:
    """Builds a broadcast_in_dim, unless the tensor has this shape already and its dimensions stay in place."""
    if value.type.shape == list(shape) and is_identity(dimensions):
        return value
    return stablehlo.broadcast_in_dim(tensor_type(shape, value.type.element_type), value, list(dimensions))


def convert(value: Tensor, element_type: ir.Type) -> Tensor:
    """Builds a conversion, unless the tensor has this element type already."""
    if value.type.element_type == element_type:
        return value
    return stablehlo.convert(tensor_type(value.type.shape, element_type), value)


def pad(value: Tensor, low: Sequence[int], high: Sequence[int]) -> Tensor:
    """Builds a pad with zeros at both ends of every dimension, unless there is nothing to add; less than 0 cuts."""
    if not any((*low, *high)):
        return value
    zero = zeros(tensor_type([], value.type.element_type))
    return stablehlo.pad(value, zero, list(low), list(high), [0] * len(low))


def pad_high(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Builds a pad with zeros at the end of every dimension, up to a shape."""
    return pad(value, [0] * len(shape), [new - old for new, old in zip(shape, value.type.shape, strict=True)])


def slice_to(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Builds a slice of the beginning of every dimension, unless the tensor has this shape already."""
    if value.type.shape == list(shape):
        return value
    return stablehlo.slice(value, [0] * len(shape), list(shape), [1] * len(shape))


def splat_constant(element: ir.Attribute, type_: ir.RankedTensorType) -> Tensor:
    """Builds a constant whose elements are all `element`, a float or integer attribute of the type's element type."""
    return stablehlo.constant(ir.DenseElementsAttr.get_splat(type_, element))


def zeros(type_: ir.RankedTensorType) -> Tensor:
    """Builds a tensor of zeros, of integers, floats or complex numbers."""
    element = type_.element_type
    if isinstance(element, ir.ComplexType):
        # The bindings have no attribute of complex elements.
        part = zeros(tensor_type(type_.shape, ir.ComplexType(element).element_type))
        return stablehlo.complex(part, part)
    is_integer = isinstance(element, ir.IntegerType)
    return splat_constant(ir.IntegerAttr.get(element, 0) if is_integer else ir.FloatAttr.get(element, 0.0), type_)


def rebuild(
    op: ir.OpView, operands: Sequence[ir.Value[Any]], type_: ir.Type, **attributes: ir.Attribute | None
) -> Tensor:
    """Builds an operation of one result again, with other operands, another type and some other attributes.

    Args:
        op: The operation, which stays as it is.
        operands: The operands of the new one.
        type_: The type of its result.
        attributes: What differs; None stands for an attribute that neither has.
    """
    copy = op.operation.clone()
    for index, operand in enumerate(operands):
        copy.operands[index] = operand
    copy.results[0].set_type(type_)
    for name, attribute in attributes.items():
        if attribute is not None:
            copy.attributes[name] = attribute
    return cast(Tensor, copy.results[0])


def reduced_by(op: stablehlo.ReduceOp | stablehlo.ReduceWindowOp) -> type[ir.OpView] | None:
    """Returns the class of the one operation that a reduction of one tensor combines elements with, else None."""
    block = op.regions[0].blocks[0]
    body = list(block.operations)
    if len(op.results) != 1 or len(body) != 2 or list(body[1].operands) != list(body[0].results):
        return None
    arguments = list(block.arguments)
    return type(body[0]) if list(body[0].operands) in (arguments, arguments[::-1]) else None


#: Operations that multiply and add.
PRODUCTS: tuple[type[ir.OpView], ...] = (stablehlo.ConvolutionOp, stablehlo.DotGeneralOp, stablehlo.DotOp)


def find_products(module: ir.Module) -> list[ir.Operation]:
    """Returns the matrix products and convolutions of a module."""
    return [op for product in PRODUCTS for op in mlir.find(module, cast(Any, product).OPERATION_NAME)]


def precisions(product: ir.OpView | ir.Operation) -> list[str]:
    """Returns the precision that is asked for each operand: `DEFAULT`, `HIGH` or `HIGHEST`; nothing is said by []."""
    if "precision_config" not in product.attributes:
        return []
    asked = ir.ArrayAttr(product.attributes["precision_config"])
    return [stablehlo.PrecisionAttr(each).value for each in asked]


def window_strides(op: stablehlo.ConvolutionOp | stablehlo.ReduceWindowOp, count: int) -> list[int]:
    """Returns the strides of an operation's window, which has `count` dimensions."""
    return list(op.window_strides) if op.window_strides else [1] * count


def window_padding(op: stablehlo.ConvolutionOp | stablehlo.ReduceWindowOp, count: int) -> Any:
    """Returns the low and high padding of an operation's window of `count` dimensions, an i64 array [count, 2]."""
    padding: Any = op.padding if op.padding else np.zeros((count, 2))
    return np.array(padding, dtype=np.int64)


#: Significant bits, and the largest power of two, of each float type.
_FLOATS = {"f16": (11, 15), "bf16": (8, 127), "f32": (24, 127), "f64": (53, 1023)}


def converts_exactly(source: ir.Type, target: ir.Type) -> bool:
    """Says whether each value of one element type, infinities aside, is also a value of the other."""
    from_float, to_float = _FLOATS.get(str(source)), _FLOATS.get(str(target))
    if from_float and to_float:
        return from_float[0] <= to_float[0] and from_float[1] <= to_float[1]
    if not isinstance(source, ir.IntegerType):
        return False
    has_sign = not source.is_unsigned and source.width > 1
    bits = source.width - has_sign
    if to_float:
        return bits <= to_float[0]
    if not isinstance(target, ir.IntegerType):
        return False
    target_has_sign = not target.is_unsigned and target.width > 1
    return bits <= target.width - target_has_sign and target_has_sign >= has_sign


#: What only moves elements; those that are there before are all that can be there after.
MOVES: tuple[type[ir.OpView], ...] = (
    stablehlo.BroadcastInDimOp,
    stablehlo.ConcatenateOp,
    stablehlo.PadOp,
    stablehlo.ReshapeOp,
    stablehlo.ReverseOp,
    stablehlo.SliceOp,
    stablehlo.TransposeOp,
)
#: Operations that apply one function to each element of operands of one shape.
ELEMENTWISE: tuple[type[ir.OpView], ...] = (
    stablehlo.AbsOp,
    stablehlo.AddOp,
    stablehlo.AndOp,
    stablehlo.Atan2Op,
    stablehlo.CbrtOp,
    stablehlo.CeilOp,
    stablehlo.ClampOp,
    stablehlo.CompareOp,
    stablehlo.ConvertOp,
    stablehlo.CosineOp,
    stablehlo.DivOp,
    stablehlo.ExpOp,
    stablehlo.Expm1Op,
    stablehlo.FloorOp,
    stablehlo.IsFiniteOp,
    stablehlo.LogOp,
    stablehlo.Log1pOp,
    stablehlo.LogisticOp,
    stablehlo.MaxOp,
    stablehlo.MinOp,
    stablehlo.MulOp,
    stablehlo.NegOp,
    stablehlo.NotOp,
    stablehlo.OrOp,
    stablehlo.PowOp,
    stablehlo.RemOp,
    stablehlo.RoundNearestEvenOp,
    stablehlo.RoundOp,
    stablehlo.RsqrtOp,
    stablehlo.SelectOp,
    stablehlo.SignOp,
    stablehlo.SineOp,
    stablehlo.SqrtOp,
    stablehlo.SubtractOp,
    stablehlo.TanOp,
    stablehlo.TanhOp,
    stablehlo.XorOp,
)
#: The same of CHLO, which the reference interpreter does not know.
CHLO_ELEMENTWISE: tuple[type[ir.OpView], ...] = (
    chlo.AcosOp,
    chlo.AcoshOp,
    chlo.AsinOp,
    chlo.AsinhOp,
    chlo.AtanOp,
    chlo.AtanhOp,
    chlo.CoshOp,
    chlo.DigammaOp,
    chlo.ErfInvOp,
    chlo.ErfOp,
    chlo.ErfcOp,
    chlo.LgammaOp,
    chlo.SinhOp,
    chlo.SquareOp,
    chlo.TanOp,
)


def is_identity(permutation: Iterable[int]) -> bool:
    """Says whether a permutation leaves every dimension where it is."""
    return all(index == dimension for index, dimension in enumerate(permutation))


def inverse(permutation: Iterable[int]) -> list[int]:
    """Returns the permutation that undoes this one."""
    places = list(permutation)
    return sorted(range(len(places)), key=places.__getitem__)


def kept_dimensions(source: Sequence[int], result: Sequence[int]) -> dict[int, int] | None:
    """Says where a reshape puts each dimension that is not of size one, if it only adds and drops such of size one.

    Args:
        source: The shape before the reshape.
        result: The shape after it.

    Returns:
        The number of the dimension in `result` by its number in `source`, or None if the reshape does more.
    """
    before = [dimension for dimension, size in enumerate(source) if size != 1]
    after = [dimension for dimension, size in enumerate(result) if size != 1]
    if [source[dimension] for dimension in before] != [result[dimension] for dimension in after]:
        return None
    return dict(zip(before, after, strict=True))


def splat_element(value: ir.Value[Any]) -> ir.FloatAttr | ir.IntegerAttr | None:
    """Returns the one element of a constant whose elements are all the same, else None."""
    elements = constant_elements(value)
    if elements is None or not elements.is_splat:
        return None
    return cast("ir.FloatAttr | ir.IntegerAttr", elements.get_splat_value())


def both_ways(op: stablehlo.AddOp | stablehlo.MulOp) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Returns the operands of an operation that takes them in any order, in both orders."""
    return (op.lhs, op.rhs), (op.rhs, op.lhs)


def bytes_of(value: Tensor) -> int:
    """Returns the bytes of a tensor."""
    return mlir.spec_of(value.type, "").nbytes


def splat_number(value: ir.Value[Any]) -> bool | int | float | None:
    """Returns the one element of a constant whose elements are all the same, as a Python number, else None."""
    element = splat_element(value)
    return element.value if element is not None else None


def constant_integers(value: ir.Value[Any]) -> list[int] | None:
    """Returns the elements of a one-dimensional constant of integers or indices, else None."""
    elements = constant_elements(value)
    if not isinstance(elements, ir.DenseIntElementsAttr) or value.type.rank != 1:
        return None
    return [int(element) for element in np.array(elements)]


def constant_elements(value: ir.Value[Any]) -> ir.DenseElementsAttr | None:
    """Returns the elements of a constant tensor, else None.

    Complex constants, whose elements the bindings cannot represent, and constants whose elements are kept outside
    the module (`dense_resource`) count as unknown.
    """
    constant = producer(value, stablehlo.ConstantOp) or producer(value, arith.ConstantOp)
    if constant is None or not is_static(value) or isinstance(value.type.element_type, ir.ComplexType):
        return None
    return constant.value if isinstance(constant.value, ir.DenseElementsAttr) else None
