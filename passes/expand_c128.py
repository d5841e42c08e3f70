"""expand-c128: complex numbers of two f64 where libtpu cannot have them are computed part by part.

libtpu emulates f64, and most of c128; it ends its process on a conversion to or from c128, an iota, a quotient, an
absolute value, a power, a reciprocal root, `expm1` and what belongs to sine and cosine, and refuses a scatter.

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

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.base import Pass, PassContext
from tpuc.passes.main import Main
from tpuc.passes.rewrite import Rules, Tensor
from tpuc.passes.tensors import splat_constant, tensor_type, zeros

RULES = Rules()
#: What PJRT reads the layout of a result from.
_LAYOUT = "mhlo.layout_mode"


@dataclass(frozen=True, kw_only=True)
class ExpandC128(Pass):
    """Takes operations on c128 that libtpu lacks apart; for the CPU it does nothing."""

    name: ClassVar[str] = "expand-c128"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place; counts the results that are laid out as well."""
        if context.target.chip is None:
            return {}
        fired = RULES.apply(module)
        with module.context:
            return fired + Counter(lay_out_results=_lay_out_results(Main(module)))


def _lay_out_results(main: Main) -> int:
    """Leaves the layout of results of c128 to the compiler, and counts them.

    libtpu lays out the parts of such a number as it likes, and refuses its own program where the whole is otherwise.
    """
    types = map(ir.RankedTensorType, main.result_types)
    numbers = [number for number, type_ in enumerate(types) if _is_c128(type_)]
    for number in numbers:
        main.set_result_attribute(number, _LAYOUT, ir.StringAttr.get("auto"))
    return len(numbers)


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
    larger, smaller, ratio = _by_size(*_parts(op.operand))
    one = _splat(1.0, larger)
    scaled = stablehlo.multiply(larger, stablehlo.sqrt(stablehlo.add(one, stablehlo.multiply(ratio, ratio))))
    # Zero and infinity would divide to NaN: both are their own absolute value.
    special = _is(stablehlo.divide(larger, larger), "NE", one)
    return stablehlo.select(special, stablehlo.add(larger, smaller), scaled)


@RULES.on(stablehlo.DivOp)
def quotient(op: stablehlo.DivOp) -> Tensor | None:
    """X / (c + di) => x * (c' - d'i) / (c' c' + d' d') / s, with c' and d' scaled by s, the larger of |c| and |d|."""
    return _divide(op.lhs, op.rhs) if _is_c128(op.result.type) else None


@RULES.on(stablehlo.IotaOp)
def counted(op: stablehlo.IotaOp) -> Tensor | None:
    """Iota => complex(iota, 0)."""
    if not _is_c128(op.result.type):
        return None
    part = tensor_type(op.result.type.shape, ir.F64Type.get())
    return stablehlo.complex(stablehlo.iota(part, op.iota_dimension), zeros(part))


@RULES.on(stablehlo.ScatterOp)
def scatter_parts(op: stablehlo.ScatterOp) -> Tensor | None:
    """scatter(x, i, y) => complex(scatter(real(x), i, real(y)), scatter(imag(x), i, imag(y))), if it sets or adds."""
    if len(op.results) != 1 or not _is_c128(op.results[0].type):
        return None
    block = op.update_computation.blocks[0]
    body = list(block.operations)
    adds = len(body) == 2 and isinstance(body[0], stablehlo.AddOp)
    if not adds and not (len(body) == 1 and body[0].operands[0] == block.arguments[1]):
        return None
    scalar = tensor_type([], ir.F64Type.get())

    def part(x: Tensor, y: Tensor) -> Tensor:
        made = stablehlo.ScatterOp(
            [x.type],
            [x],
            op.scatter_indices,
            [y],
            op.scatter_dimension_numbers,
            indices_are_sorted=op.indices_are_sorted,
            unique_indices=op.unique_indices,
        )
        arguments = made.update_computation.blocks.append(scalar, scalar).arguments
        with ir.InsertionPoint(made.update_computation.blocks[0]):
            stablehlo.return_([stablehlo.add(*arguments) if adds else arguments[1]])
        result: Tensor = made.results[0]
        return result

    (x,), (y,) = op.inputs, op.updates
    return stablehlo.complex(*map(part, _parts(x), _parts(y)))


@RULES.on(stablehlo.PowOp)
def power(op: stablehlo.PowOp) -> Tensor | None:
    """X ** y => exp(y * log(x)); one where y is zero, and zero where x is and y is positive."""
    if not _is_c128(op.result.type):
        return None
    (a, b), (c, d) = _parts(op.lhs), _parts(op.rhs)
    zero = zeros(a.type)
    is_real = _is(d, "EQ", zero)
    from_zero = stablehlo.and_(_is(a, "EQ", zero), _is(b, "EQ", zero))
    # XLA's own logarithm and exponential take libtpu minutes to compile, where a program has a few of them.
    logarithm, angle = _log_magnitude(a, b), stablehlo.atan2(b, a)
    size = stablehlo.exponential(stablehlo.subtract(stablehlo.multiply(c, logarithm), stablehlo.multiply(d, angle)))
    turn = stablehlo.add(stablehlo.multiply(d, logarithm), stablehlo.multiply(c, angle))
    general = stablehlo.complex(
        stablehlo.multiply(size, stablehlo.cosine(turn)), stablehlo.multiply(size, stablehlo.sine(turn))
    )
    is_zero = stablehlo.and_(from_zero, stablehlo.and_(is_real, _is(c, "GT", zero)))
    is_one = stablehlo.and_(is_real, _is(c, "EQ", zero))
    value = stablehlo.select(is_zero, stablehlo.complex(zero, zero), general)
    return stablehlo.select(is_one, stablehlo.complex(_splat(1.0, zero), zero), value)


@RULES.on(stablehlo.RsqrtOp)
def reciprocal_root(op: stablehlo.RsqrtOp) -> Tensor | None:
    """rsqrt(x) => 1 / sqrt(x)."""
    if not _is_c128(op.result.type):
        return None
    root = stablehlo.sqrt(op.operand)
    real = stablehlo.real(root)
    return _divide(stablehlo.complex(_splat(1.0, real), zeros(real.type)), root)


@RULES.on(stablehlo.Expm1Op)
def exponential_minus_one(op: stablehlo.Expm1Op) -> Tensor | None:
    """expm1(a + bi) => expm1(a) * cos(b) - 2 * sin(b / 2)^2 + i * exp(a) * sin(b): nothing near one is subtracted."""
    if not _is_c128(op.result.type):
        return None
    a, b = _parts(op.operand)
    half = stablehlo.sine(stablehlo.multiply(b, _splat(0.5, b)))
    less = stablehlo.multiply(_splat(2.0, b), stablehlo.multiply(half, half))
    real = stablehlo.subtract(stablehlo.multiply(stablehlo.exponential_minus_one(a), stablehlo.cosine(b)), less)
    return stablehlo.complex(real, stablehlo.multiply(stablehlo.exponential(a), stablehlo.sine(b)))


@RULES.on(stablehlo.SineOp)
def sine(op: stablehlo.SineOp) -> Tensor | None:
    """sin(a + bi) => sin(a) * cosh(b) + i * cos(a) * sinh(b)."""
    if not _is_c128(op.result.type):
        return None
    a, b = _parts(op.operand)
    sinh, cosh = _hyperbolic(b)
    return stablehlo.complex(stablehlo.multiply(stablehlo.sine(a), cosh), stablehlo.multiply(stablehlo.cosine(a), sinh))


@RULES.on(stablehlo.CosineOp)
def cosine(op: stablehlo.CosineOp) -> Tensor | None:
    """cos(a + bi) => cos(a) * cosh(b) - i * sin(a) * sinh(b)."""
    if not _is_c128(op.result.type):
        return None
    a, b = _parts(op.operand)
    sinh, cosh = _hyperbolic(b)
    imaginary = stablehlo.negate(stablehlo.multiply(stablehlo.sine(a), sinh))
    return stablehlo.complex(stablehlo.multiply(stablehlo.cosine(a), cosh), imaginary)


@RULES.on(stablehlo.TanhOp)
def hyperbolic_tangent(op: stablehlo.TanhOp) -> Tensor | None:
    """tanh(x) in parts; see `_tanh`."""
    return stablehlo.complex(*_tanh(*_parts(op.operand))) if _is_c128(op.result.type) else None


@RULES.on(stablehlo.TanOp)
def tangent(op: stablehlo.TanOp) -> Tensor | None:
    """tan(a + bi) => -i * tanh(-b + ai)."""
    if not _is_c128(op.result.type):
        return None
    a, b = _parts(op.operand)
    real, imaginary = _tanh(stablehlo.negate(b), a)
    return stablehlo.complex(imaginary, stablehlo.negate(real))


def _divide(numerator: Tensor, divisor: Tensor) -> Tensor:
    c, d = _parts(divisor)
    scale = stablehlo.maximum(stablehlo.abs(c), stablehlo.abs(d))
    c, d = stablehlo.divide(c, scale), stablehlo.divide(d, scale)
    product = stablehlo.multiply(numerator, stablehlo.complex(c, stablehlo.negate(d)))
    square = stablehlo.add(stablehlo.multiply(c, c), stablehlo.multiply(d, d))
    real, imaginary = (stablehlo.divide(stablehlo.divide(part, square), scale) for part in _parts(product))
    return stablehlo.complex(real, imaginary)


def _by_size(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The larger and the smaller of |a| and |b|, and the quotient of the smaller and the larger."""
    a, b = stablehlo.abs(a), stablehlo.abs(b)
    larger, smaller = stablehlo.maximum(a, b), stablehlo.minimum(a, b)
    return larger, smaller, stablehlo.divide(smaller, larger)


def _log_magnitude(a: Tensor, b: Tensor) -> Tensor:
    """log(|a + bi|) => log(m) + log1p((n / m)^2) / 2, with the larger and the smaller of |a| and |b|."""
    larger, _, ratio = _by_size(a, b)
    rest = stablehlo.log_plus_one(stablehlo.multiply(ratio, ratio))
    return stablehlo.add(stablehlo.log(larger), stablehlo.multiply(_splat(0.5, a), rest))


def _hyperbolic(x: Tensor) -> tuple[Tensor, Tensor]:
    """sinh(x) and cosh(x): (p + p / (p + 1)) / 2, with p = expm1(|x|), and (e^x + e^-x) / 2."""
    half = _splat(0.5, x)
    p = stablehlo.exponential_minus_one(stablehlo.abs(x))
    e = stablehlo.add(p, _splat(1.0, x))
    # A large x makes p / (p + 1) one; an infinite one, where that is NaN, leaves p.
    small = _is(e, "LT", _splat(1e300, x))
    share = stablehlo.select(small, stablehlo.divide(p, e), _splat(1.0, x))
    sinh = stablehlo.multiply(stablehlo.sign(x), stablehlo.multiply(half, stablehlo.add(p, share)))
    cosh = stablehlo.multiply(half, stablehlo.add(e, stablehlo.divide(_splat(1.0, x), e)))
    return sinh, cosh


def _tanh(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """tanh(a + bi) => ((1 + t^2) * s * cosh(a) + i * t) / (1 + (1 + t^2) * s^2), with s = sinh(a) and t = tan(b).

    Source: Kahan, "Branch Cuts for Complex Elementary Functions" (1987). A large a is cut to where nothing changes any
    more, so that no square overflows.
    """
    bounded = stablehlo.clamp(_splat(-200.0, a), a, _splat(200.0, a))
    sinh, cosh = _hyperbolic(bounded)
    t = stablehlo.tan(b)
    beta = stablehlo.add(_splat(1.0, a), stablehlo.multiply(t, t))
    scaled = stablehlo.multiply(beta, sinh)
    below = stablehlo.add(_splat(1.0, a), stablehlo.multiply(scaled, sinh))
    return stablehlo.divide(stablehlo.multiply(scaled, cosh), below), stablehlo.divide(t, below)


def _splat(number: float, like: Tensor) -> Tensor:
    return splat_constant(ir.FloatAttr.get(like.type.element_type, number), like.type)


def _is(x: Tensor, direction: str, y: Tensor) -> Tensor:
    return stablehlo.compare(x, y, stablehlo.ComparisonDirectionAttr.get(direction))


def _is_complex(type_: ir.RankedTensorType) -> bool:
    return isinstance(type_.element_type, ir.ComplexType)


def _is_c128(type_: ir.RankedTensorType) -> bool:
    return str(type_.element_type) == "complex<f64>"


def _parts(value: Tensor) -> tuple[Tensor, Tensor]:
    return stablehlo.real(value), stablehlo.imag(value)


def _converted(value: Tensor, type_: ir.RankedTensorType) -> Tensor:
    return value if value.type == type_ else stablehlo.convert(type_, value)
