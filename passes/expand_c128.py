"""expand-c128: complex numbers of two f64 where libtpu cannot have them are computed part by part.

libtpu emulates f64, and most of c128; it ends its process on a conversion to or from c128, on a quotient and on an
absolute value.

Before:

    %0 = stablehlo.convert %x : (tensor<8xf64>) -> tensor<8xcomplex<f64>>
    %1 = stablehlo.abs %0 : (tensor<8xcomplex<f64>>) -> tensor<8xf64>

After:

    %zero = stablehlo.constant dense<0.0> : tensor<8xf64>
    %0 = stablehlo.complex %x, %zero : tensor<8xcomplex<f64>>
    %2 = stablehlo.real %0 : (tensor<8xcomplex<f64>>) -> tensor<8xf64>
    ...
    %1 = stablehlo.multiply %larger, %root : tensor<8xf64>

Bought: these compile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.base import Pass, PassContext
from tpuc.passes.rewrite import Rules, Tensor
from tpuc.passes.tensors import splat_constant, tensor_type, zeros

RULES = Rules()


@dataclass(frozen=True, kw_only=True)
class ExpandC128(Pass):
    """Takes operations on c128 that libtpu lacks apart; for the CPU it does nothing."""

    name: ClassVar[str] = "expand-c128"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place."""
        return RULES.apply(module) if context.target.chip else {}


@RULES.on(stablehlo.ConvertOp)
def convert_parts(op: stablehlo.ConvertOp) -> Tensor | None:
    """convert(x), to or from c128 => complex(convert(real(x)), convert(imag(x))), or a zero for a real x's second."""
    source, result = op.operand.type, op.result.type
    if not _is_complex(result) or not (_is_c128(source) or _is_c128(result)):
        return None
    part = tensor_type(result.shape, ir.ComplexType(result.element_type).element_type)
    if not _is_complex(source):
        return stablehlo.complex(_converted(op.operand, part), zeros(part))
    real, imaginary = (_converted(each, part) for each in _parts(op.operand))
    return stablehlo.complex(real, imaginary)


@RULES.on(stablehlo.AbsOp)
def absolute_value(op: stablehlo.AbsOp) -> Tensor | None:
    """abs(a + bi) => m * sqrt(1 + (n / m)^2) with the larger and the smaller of |a| and |b|: no square overflows."""
    if not _is_c128(op.operand.type):
        return None
    a, b = (stablehlo.abs(part) for part in _parts(op.operand))
    larger, smaller = stablehlo.maximum(a, b), stablehlo.minimum(a, b)
    ratio = stablehlo.divide(smaller, larger)
    one = splat_constant(ir.FloatAttr.get(larger.type.element_type, 1.0), larger.type)
    scaled = stablehlo.multiply(larger, stablehlo.sqrt(stablehlo.add(one, stablehlo.multiply(ratio, ratio))))
    # Zero and infinity would divide to NaN: both are their own absolute value.
    special = stablehlo.compare(stablehlo.divide(larger, larger), one, stablehlo.ComparisonDirectionAttr.get("NE"))
    return stablehlo.select(special, stablehlo.add(larger, smaller), scaled)


@RULES.on(stablehlo.DivOp)
def quotient(op: stablehlo.DivOp) -> Tensor | None:
    """X / (c + di) => x * (c' - d'i) / (c' c' + d' d') / s, with c' and d' scaled by s, the larger of |c| and |d|."""
    if not _is_c128(op.result.type):
        return None
    c, d = _parts(op.rhs)
    scale = stablehlo.maximum(stablehlo.abs(c), stablehlo.abs(d))
    c, d = stablehlo.divide(c, scale), stablehlo.divide(d, scale)
    numerator = stablehlo.multiply(op.lhs, stablehlo.complex(c, stablehlo.negate(d)))
    square = stablehlo.add(stablehlo.multiply(c, c), stablehlo.multiply(d, d))
    real, imaginary = (stablehlo.divide(stablehlo.divide(part, square), scale) for part in _parts(numerator))
    return stablehlo.complex(real, imaginary)


def _is_complex(type_: ir.RankedTensorType) -> bool:
    return isinstance(type_.element_type, ir.ComplexType)


def _is_c128(type_: ir.RankedTensorType) -> bool:
    return str(type_.element_type) == "complex<f64>"


def _parts(value: Tensor) -> tuple[Tensor, Tensor]:
    return stablehlo.real(value), stablehlo.imag(value)


def _converted(value: Tensor, type_: ir.RankedTensorType) -> Tensor:
    return value if value.type == type_ else stablehlo.convert(type_, value)
