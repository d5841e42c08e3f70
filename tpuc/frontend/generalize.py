"""Finds out how a program depends on its sizes, from the static programs of several calls.

torch.export proves that one graph serves all sizes, but neither torch-mlir nor JAX lowers a graph with symbols. So
the graph is lowered at a few sizes (`specialize`, then the static way), and the programs are laid side by side: they
are the same operations, and each number in which they differ (a dimension, a slice's limit, a constant) is a function
of the sizes, which is found from its values. What is found must hold at every sample, there are more samples than
unknowns, and `pad-dynamic` derives each dimension a second time, from the operations' own rules.

The result is the program at the upper bound of the sizes, annotated with how it got its numbers:

    func.func @main(%x: tensor<8x128xf32> {tpuc.dims = "batch,seq"}) attributes {tpuc.sizes = ["batch=1..8", ...]}
    %0 = stablehlo.slice %x [0:8, 127:128] {tpuc.dims = ["batch,1"], tpuc.start_indices = ["0", "seq-1"], ...}
    %1 = stablehlo.constant dense<11.3137> : tensor<f32> {tpuc.affine = ["seq"], tpuc.function = "sqrt"}

- `tpuc.dims`: each result's dimensions.
- `tpuc.<attribute>`: the numbers of an integer attribute, flattened.
- `tpuc.affine`: a constant's elements as an affine function of their indices: the first number is that of index zero,
  the others are the steps of the dimensions. `tpuc.elements`: an expression for each element, row by row.
- `tpuc.function`: what of that the constant is.

Where nothing in an operation varies there is no annotation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.passes.main import Main
from tpuc.passes.rewrite import nested_ops
from tpuc.runtime.dtypes import DTYPES, Array
from tpuc.runtime.sizes import SizeExpr, SizeRange

#: What a floating-point constant may be of a size, with the inverse.
FUNCTIONS: Mapping[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "identity": (float, float),
    "reciprocal": (lambda size: 1 / size, lambda value: 1 / value),
    "sqrt": (math.sqrt, lambda value: value**2),
    "rsqrt": (lambda size: 1 / math.sqrt(size), lambda value: value**-2),
    "log": (math.log, math.exp),
}
#: How far a constant may be from what it is taken for, relative, by its type.
_PRECISION = {"f64": 1e-14, "f32": 2e-7, "f16": 1e-3, "bf16": 8e-3}
#: Constants with other elements than one are compared element by element up to here.
_MAX_ELEMENTS = 64


class MisalignedError(Exception):
    """Two samples differ in more than numbers, or a number has no expression.

    Attributes:
        where: The operation's location, as MLIR prints it.
    """

    def __init__(self, what: str, where: str) -> None:
        super().__init__(what)
        self.where = where


class Inference:
    """Finds the expression of the sizes that has given values at the samples.

    What was found before is tried again, alone, in multiples and in products: the sizes of a program are made of each
    other.
    """

    def __init__(self, samples: Sequence[Mapping[str, int]], known: Iterable[SizeExpr] = ()) -> None:
        """Takes the sizes of each sample, and expressions that are known to occur."""
        self._samples = samples
        self._found: dict[tuple[int, ...], SizeExpr | None] = {}
        self._pool: dict[SizeExpr, tuple[int, ...]] = {}
        names = list(map(SizeExpr.of, sorted(samples[0])))
        quotients = [(name + rest) // divisor for name in names for divisor in (2, 4, 8) for rest in (0, divisor - 1)]
        for expression in (*names, *known, *quotients):
            self._remember(expression)

    def expression(self, values: Iterable[int]) -> SizeExpr | None:
        """Returns the expression with these values, one a sample, or None."""
        key = tuple(values)
        if key not in self._found:
            self._found[key] = self._search(key)
        return self._found[key]

    def function(self, values: Sequence[float], precision: float) -> tuple[str, SizeExpr] | None:
        """Returns which of `FUNCTIONS` has these values, and the expression that it is applied to, or None."""
        for name, (function, inverse) in FUNCTIONS.items():
            try:
                sizes = [round(inverse(value)) for value in values]
                fits = np.allclose([function(size) for size in sizes], values, rtol=precision, atol=0)
            except (ValueError, ZeroDivisionError, OverflowError):
                continue  # Outside of the function's domain.
            expression = self.expression(sizes) if fits else None
            if expression is not None:
                return name, expression
        return None

    def _remember(self, expression: SizeExpr) -> None:
        if expression.constant is None:
            self._pool.setdefault(expression, tuple(expression.evaluate(sizes) for sizes in self._samples))

    def _search(self, values: tuple[int, ...]) -> SizeExpr | None:
        if len(set(values)) == 1:
            return SizeExpr.of(values[0])
        for expression in self._candidates(values):
            if all(expression.evaluate(sizes) == value for sizes, value in zip(self._samples, values, strict=True)):
                self._remember(expression)
                return expression
        return None

    def _candidates(self, values: tuple[int, ...]) -> Iterator[SizeExpr]:
        """Yields what to try, the simplest first; all but the right ones fail at a sample."""
        pool = list(self._pool.items())
        yield from (expression for expression, known in pool if known == values)
        for expression, known in pool:
            yield from _line(expression, known, values)
        for (left, known), (right, others) in itertools.combinations_with_replacement(pool, 2):
            yield from _line(left * right, tuple(a * b for a, b in zip(known, others, strict=True)), values)
        for name in sorted(self._samples[0]):
            for expression, known in pool:
                if expression != SizeExpr.of(name):
                    yield self._plane(SizeExpr.of(name), expression, known, values)

    def _plane(self, name: SizeExpr, other: SizeExpr, known: tuple[int, ...], values: tuple[int, ...]) -> SizeExpr:
        """Returns the sum of multiples of two expressions and a number that is nearest to the values."""
        rows = [[name.evaluate(sizes), number, 1] for sizes, number in zip(self._samples, known, strict=True)]
        solution, *_ = np.linalg.lstsq(np.array(rows, float), np.array(values, float), rcond=None)
        first, second, rest = (round(float(each)) for each in solution)
        return name * first + other * second + rest


def _line(expression: SizeExpr, known: tuple[int, ...], values: tuple[int, ...]) -> Iterator[SizeExpr]:
    """Yields the multiple of an expression plus a number that fits two samples, if its factor is whole."""
    for index in range(1, len(known)):
        if known[index] != known[0]:
            slope, rest = divmod(values[index] - values[0], known[index] - known[0])
            if slope and not rest:
                yield expression * slope + (values[0] - slope * known[0])
            return


Dims: TypeAlias = "tuple[SizeExpr, ...]"


@dataclass(frozen=True, kw_only=True)
class _Constant:
    """How the elements of a constant depend on the sizes; see `tpuc.affine` and `tpuc.elements`."""

    kind: Literal["affine", "elements"]
    expressions: Dims
    function: str = "identity"


@dataclass(frozen=True, kw_only=True)
class _Variation:
    """What varies in one operation.

    Attributes:
        results: The dimensions of each result, () for what is no tensor.
        arguments: Those of the arguments of its blocks.
        attributes: The numbers of the integer attributes that vary.
        constant: Of a constant, its elements, if they vary.
    """

    results: tuple[Dims, ...]
    arguments: tuple[Dims, ...]
    attributes: Mapping[str, Dims] = field(default_factory=dict)
    constant: _Constant | None = None


class DynamicProgram:
    """A program that knows how its numbers depend on the sizes.

    Attributes:
        result_dims: The dimensions of what `@main` returns.
    """

    def __init__(self, module: ir.Module, variations: Sequence[_Variation], result_dims: Sequence[Dims]) -> None:
        """Takes one sample, and what varies in each of its operations, outermost first."""
        self._module = module
        self._variations = variations
        self.result_dims = tuple(result_dims)

    def at(self, ranges: Sequence[SizeRange]) -> ir.Module:
        """Returns the program at the upper bounds of the sizes, annotated.

        Args:
            ranges: For each size its bounds. One that has only one value becomes a number like any other.
        """
        context = self._module.context
        module = mlir.parse(mlir.to_bytecode(self._module), context)
        bound = {each.name: each.maximum for each in ranges}
        fixed = {each.name: SizeExpr.of(each.maximum) for each in ranges if each.minimum == each.maximum}
        with context, ir.Location.unknown():
            for op, variation in zip(nested_ops(module.operation), self._variations, strict=True):
                _instantiate(op, variation, bound, fixed)
            main = module.body.operations[0]
            _finish_function(main, self._variations[1].arguments, fixed)
            main.attributes["tpuc.sizes"] = _strings(each for each in ranges if each.name not in fixed)
        return module


def generalize(modules: Sequence[ir.Module], inference: Inference) -> DynamicProgram:
    """Lays static programs side by side.

    Args:
        modules: The program at each sample, in the order of the inference's samples.
        inference: Who finds the expressions.

    Raises:
        MisalignedError: The programs differ in more than numbers, or a number is no function of the sizes that could
            be found.
    """
    samples = [nested_ops(module.operation) for module in modules]
    numbers: list[dict[ir.Value[Any], int]] = [{} for _ in modules]
    variations = []
    for ops in itertools.zip_longest(*samples):
        _check_same(ops, numbers)
        variations.append(_vary(ops, inference))
    returns = [Main(module).block.operations[-1] for module in modules]
    results = zip(*(op.operands for op in returns), strict=True)
    return DynamicProgram(modules[0], variations, [_dims(values, returns[0], inference) for values in results])


_Ops: TypeAlias = "Sequence[ir.OpView | ir.Operation | None]"


def _check_same(ops: Sequence[Any], numbers: Sequence[dict[ir.Value[Any], int]]) -> None:
    """Checks that the operations at one place of the samples are the same but for numbers, and numbers their values."""
    first = next(op for op in ops if op is not None)
    shapes = {op and (op.name, len(op.results), tuple(sorted(_names(op)))) for op in ops}
    if len(shapes) > 1:
        raise _misaligned("the program has other operations at other sizes", first)
    operands = {tuple(known[value] for value in op.operands) for op, known in zip(ops, numbers, strict=True)}
    if len(operands) > 1:
        raise _misaligned("the program computes from other values at other sizes", first)
    for op, known in zip(ops, numbers, strict=True):
        for value in (*_block_arguments(op), *op.results):
            known[value] = len(known)


def _vary(ops: Sequence[Any], inference: Inference) -> _Variation:
    first = ops[0]
    results = tuple(_dims([op.results[number] for op in ops], first, inference) for number in range(len(first.results)))
    blocks = zip(*map(_block_arguments, ops), strict=True)
    arguments = tuple(_dims(values, first, inference) for values in blocks)
    attributes: dict[str, Dims] = {}
    constant = None
    for name in _names(first):
        values = [op.attributes[name] for op in ops]
        if first.name == "func.func" or len(set(map(str, values))) == 1:
            continue
        if first.name == "stablehlo.custom_call":
            target = ir.StringAttr(first.attributes["call_target_name"]).value
            raise _misaligned(f"{target}, which tpuc does not see into, works on a dimension that varies", first)
        if name == "value" and first.name == "stablehlo.constant":
            constant = _constant(values, first, inference)
        else:
            attributes[name] = _attribute(name, values, first, inference)
    return _Variation(results=results, arguments=arguments, attributes=attributes, constant=constant)


def _dims(values: Sequence[ir.Value[Any]], op: Any, inference: Inference) -> Dims:
    types = [value.type for value in values]
    if not all(isinstance(type_, ir.RankedTensorType) for type_ in types):
        return ()
    if len({(type_.rank, str(type_.element_type)) for type_ in types}) > 1:
        raise _misaligned("a tensor has another rank or type at other sizes", op)
    return tuple(_expression(sizes, op, inference) for sizes in zip(*(type_.shape for type_ in types), strict=True))


def _expression(values: Iterable[int], op: Any, inference: Inference) -> SizeExpr:
    values = tuple(values)
    found = inference.expression(values)
    if found is None:
        shown = ", ".join(map(str, values))
        raise _misaligned(f"a number that is {shown} at the sizes tried is no function of them that tpuc knows", op)
    return found


def _attribute(name: str, values: Sequence[ir.Attribute], op: Any, inference: Inference) -> Dims:
    numbers = [_integers(value) for value in values]
    if None in numbers or len({len(each) for each in numbers if each is not None}) > 1:
        raise _misaligned(f"its {name} is another at other sizes", op)
    return tuple(_expression(each, op, inference) for each in zip(*(each for each in numbers if each), strict=True))


def _integers(attribute: ir.Attribute) -> list[int] | None:
    match attribute:
        case ir.DenseI64ArrayAttr():
            return list(attribute)
        case ir.DenseIntElementsAttr():
            return [int(each) for each in np.array(attribute).flatten()]
        case ir.IntegerAttr():
            return [attribute.value]
    return None


def _constant(values: Sequence[Any], op: Any, inference: Inference) -> _Constant | None:
    """Finds how a constant's elements depend on the sizes; None if only its shape does, and all elements are one."""
    element = values[0].type.element_type
    if all(value.is_splat for value in values):
        elements = [value.get_splat_value() for value in values]
        if len(set(map(str, elements))) == 1:
            return None
        return _splat([each.value for each in elements], element, op, inference)
    try:
        arrays = [np.array(value) for value in values]
    except (TypeError, ValueError) as error:
        raise _misaligned(f"a constant of {element} is another at other sizes", op) from error
    affine = _affine(arrays, inference)
    if affine is not None:
        return _Constant(kind="affine", expressions=affine)
    if len({array.shape for array in arrays}) == 1 and arrays[0].size <= _MAX_ELEMENTS and arrays[0].dtype.kind in "iu":
        places = zip(*(array.flatten().tolist() for array in arrays), strict=True)
        return _Constant(kind="elements", expressions=tuple(_expression(each, op, inference) for each in places))
    raise _misaligned("a constant has elements that depend on the sizes in a way that tpuc does not know", op)


def _splat(values: Sequence[Any], element: ir.Type, op: Any, inference: Inference) -> _Constant:
    if isinstance(element, ir.IntegerType):
        return _Constant(kind="affine", expressions=(_expression(map(int, values), op, inference),))
    found = inference.function(values, _PRECISION.get(str(element), 0.0))
    if found is None:
        shown = ", ".join(map(str, values))
        raise _misaligned(f"a number that is {shown} at the sizes tried is no function of them that tpuc knows", op)
    return _Constant(kind="affine", expressions=(found[1],), function=found[0])


def _affine(arrays: Sequence[Array], inference: Inference) -> Dims | None:
    """Finds the affine function of the indices that each array is: its first element, and a step a dimension."""
    coefficients = []
    for array in arrays:
        if not array.size or array.dtype.kind not in "iuf" or not np.array_equal(array, np.round(array)):
            return None
        first = int(array.flat[0])
        steps = [int(array.take(1, axis).flat[0]) - first if array.shape[axis] > 1 else 0 for axis in range(array.ndim)]
        expected = np.full(array.shape, first)
        for axis, step in enumerate(steps):
            expected = expected + step * np.arange(array.shape[axis]).reshape([-1] + [1] * (array.ndim - axis - 1))
        if not np.array_equal(array, expected):
            return None
        coefficients.append([first, *steps])
    found = [inference.expression(each) for each in zip(*coefficients, strict=True)]
    return None if None in found else tuple(each for each in found if each is not None)


def _instantiate(op: Any, variation: _Variation, bound: Mapping[str, int], fixed: Mapping[str, SizeExpr]) -> None:
    """Gives one operation its numbers at the bound, and the annotations that say how they came about."""
    for value, dims in zip(
        (*_block_arguments(op), *op.results), (*variation.arguments, *variation.results), strict=True
    ):
        if _varies(dims):
            shape = [dim.evaluate(bound) for dim in dims]
            value.set_type(ir.RankedTensorType.get(shape, value.type.element_type))
    results = [_fix(dims, fixed) for dims in variation.results]
    if any(map(_varies, results)):
        op.attributes["tpuc.dims"] = _strings(",".join(map(str, dims)) for dims in results)
    for name, expressions in variation.attributes.items():
        op.attributes[name] = _with_integers(op.attributes[name], [each.evaluate(bound) for each in expressions])
        rest = _fix(expressions, fixed)
        if _varies(rest):
            op.attributes[f"tpuc.{name}"] = _strings(rest)
    if op.name == "stablehlo.constant" and (variation.constant is not None or any(map(_varies, variation.results))):
        op.attributes["value"] = _elements(op, variation.constant, bound)
        _annotate_constant(op, variation.constant, fixed)


def _annotate_constant(op: Any, constant: _Constant | None, fixed: Mapping[str, SizeExpr]) -> None:
    if constant is not None and _varies(rest := _fix(constant.expressions, fixed)):
        op.attributes[f"tpuc.{constant.kind}"] = _strings(rest)
        op.attributes["tpuc.function"] = ir.StringAttr.get(constant.function)


def _elements(op: Any, constant: _Constant | None, bound: Mapping[str, int]) -> ir.DenseElementsAttr:
    """Returns the elements of a constant at the bound."""
    type_ = op.results[0].type
    if constant is None:
        return ir.DenseElementsAttr.get_splat(type_, op.attributes["value"].get_splat_value())
    numbers = [each.evaluate(bound) for each in constant.expressions]
    if constant.kind == "elements":
        return _dense(np.array(numbers).reshape(type_.shape), type_)
    if len(numbers) == 1:
        value = FUNCTIONS[constant.function][0](numbers[0])
        is_integer = isinstance(type_.element_type, ir.IntegerType)
        element = ir.IntegerAttr.get(type_.element_type, numbers[0]) if is_integer else None
        return ir.DenseElementsAttr.get_splat(type_, element or ir.FloatAttr.get(type_.element_type, value))
    array: Any = np.full(type_.shape, numbers[0])
    for axis, step in enumerate(numbers[1:]):
        array = array + step * np.arange(type_.shape[axis]).reshape([-1] + [1] * (type_.rank - axis - 1))
    return _dense(array, type_)


def _dense(array: Array, type_: ir.RankedTensorType) -> ir.DenseElementsAttr:
    name = str(type_.element_type)
    dtype = DTYPES["bool" if name == "i1" else name.replace("ui", "u")]
    values: Any = np.ascontiguousarray(array.astype(dtype.numpy))
    return ir.DenseElementsAttr.get(values, type=type_)


def _finish_function(main: Any, arguments: Sequence[Dims], fixed: Mapping[str, SizeExpr]) -> None:
    """Gives `@main` the type that its block has by now, and its arguments their dimensions."""
    block = main.regions[0].blocks[0]
    results = [value.type for value in block.operations[len(block.operations) - 1].operands]
    type_ = ir.FunctionType.get([value.type for value in block.arguments], results)
    main.attributes["function_type"] = ir.TypeAttr.get(type_)
    attributes = []
    for given, dims in zip(main.attributes["arg_attrs"], arguments, strict=True):
        found = {each.name: each.attr for each in given}
        if _varies(rest := _fix(dims, fixed)):
            found["tpuc.dims"] = ir.StringAttr.get(",".join(map(str, rest)))
        attributes.append(ir.DictAttr.get(found))
    main.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)


def _with_integers(attribute: ir.Attribute, numbers: Sequence[int]) -> ir.Attribute:
    match attribute:
        case ir.DenseI64ArrayAttr():
            return ir.DenseI64ArrayAttr.get(list(numbers))
        case ir.IntegerAttr():
            return ir.IntegerAttr.get(attribute.type, numbers[0])
    assert isinstance(attribute.type, ir.RankedTensorType)
    return _dense(np.array(numbers).reshape(attribute.type.shape), attribute.type)


def _varies(dims: Iterable[SizeExpr]) -> bool:
    return any(dim.constant is None for dim in dims)


def _fix(dims: Iterable[SizeExpr], fixed: Mapping[str, SizeExpr]) -> Dims:
    return tuple(dim.substitute(fixed) for dim in dims)


def _strings(texts: Iterable[object]) -> ir.ArrayAttr:
    return ir.ArrayAttr.get([ir.StringAttr.get(str(text)) for text in texts])


def _names(op: Any) -> list[str]:
    return list(op.attributes)


def _block_arguments(op: Any) -> list[ir.Value[Any]]:
    return [argument for region in op.regions for block in region.blocks for argument in block.arguments]


def _misaligned(what: str, op: Any) -> MisalignedError:
    return MisalignedError(f"{op.name}: {what}", str(op.location))
