"""What the rules of `pad-dynamic` work with: where padding is, masks, and moves from one layout to another."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.axes import Axis, Layout, dense, join
from tpuc.passes.rewrite import Tensor
from tpuc.passes.size_values import SizeValues, take
from tpuc.passes.tensors import broadcast, convert, producer, splat_constant, tensor_type
from tpuc.runtime.sizes import SizeExpr, SizeRange

ONE = SizeExpr.of(1)
ZERO = SizeExpr.of(0)
#: Sizes are tried one by one up to here; of more combinations a sample is.
_MAX_COMBINATIONS = 1 << 14


class Refusal(Exception):  # noqa: N818  It is no error of the program's, but a rule's answer.
    """There is no exact rule for an operation, and why."""


@dataclass(frozen=True)
class Replaced:
    """What a rule puts in the place of an operation's results.

    Attributes:
        values: The new values.
        layouts: Where their elements are.
    """

    values: Sequence[Tensor]
    layouts: Sequence[Layout]


class Padding:
    """Where the elements of every value of a program are.

    Attributes:
        values: What is built of the sizes alone.
        layouts: Where the elements of each value are.
        refused: Operations without an exact rule: why, and their locations.
        counts: How many masks and moves were made.
        scope: Tells blocks apart: what is built in one is not seen in another.
    """

    def __init__(self, values: SizeValues, layouts: dict[ir.Value[Any], Layout], ranges: Sequence[SizeRange]) -> None:
        """Takes the layouts of the arguments, and what the sizes may be."""
        self.values = values
        self.layouts = layouts
        self.refused: list[tuple[str, str]] = []
        self.counts: Counter[str] = Counter()
        self.scope = 0
        self._scopes = 0
        self._ranges = ranges
        self._masked: dict[tuple[Any, ...], Tensor] = {}
        self._moved: dict[tuple[Any, ...], Tensor] = {}
        self._extremes: dict[SizeExpr, tuple[int, int]] = {}
        #: The annotations that a rule has read so far.
        self._read: set[str] = set()

    def new_scope(self) -> int:
        """Returns the number of a block that has not been seen."""
        self._scopes += 1
        return self._scopes

    # What an operation is annotated with.

    def result_dims(self, op: Any) -> list[list[SizeExpr]]:
        """Returns the true dimensions of an operation's results."""
        if "tpuc.dims" in op.attributes:
            texts = [each.value for each in op.attributes["tpuc.dims"]]
            return [[SizeExpr.of(each) for each in text.split(",")] if text else [] for text in texts]
        return [[SizeExpr.of(size) for size in _shape(result)] for result in op.results]

    def integers(self, op: Any, name: str) -> list[SizeExpr]:
        """Returns the numbers of an integer attribute, flattened."""
        self._read.add(f"tpuc.{name}")
        if f"tpuc.{name}" in op.attributes:
            return [SizeExpr.of(each.value) for each in op.attributes[f"tpuc.{name}"]]
        attribute = op.attributes[name]
        numbers = np.array(attribute).flatten() if isinstance(attribute, ir.DenseElementsAttr) else attribute
        return [SizeExpr.of(int(each)) for each in numbers]

    def function(self, op: Any) -> str:
        """Returns which function of its numbers a constant is; see `tpuc.frontend.generalize`."""
        self._read.add("tpuc.function")
        return ir.StringAttr(op.attributes["tpuc.function"]).value

    @contextmanager
    def all_numbers_read(self, op: Any) -> Iterator[None]:
        """Checks that all numbers of an operation that vary are read while the block runs.

        Raises:
            Refusal: One is not: the rule would take that at the bound for it.
        """
        outer, self._read = self._read, {"tpuc.dims"}
        varying = [name for name in op.attributes if name.startswith("tpuc.")]
        try:
            yield
            unread = [name.removeprefix("tpuc.") for name in varying if name not in self._read]
        finally:
            self._read = outer
        if unread:
            raise Refusal(f"its {unread[0]} depends on the sizes")

    def is_concerned(self, op: Any) -> bool:
        """Says whether an operation reads or makes padding, or has a number that varies."""
        if any(name.startswith("tpuc.") for name in op.attributes) or len(op.regions) or not len(op.results):
            return True
        return any(axis.is_padded for operand in op.operands for axis in self.layouts[operand])

    def unconcerned(self, op: Any) -> list[Layout]:
        """Returns the layouts of results of an operation that has nothing to do with padding.

        Raises:
            Refusal: It has.
        """
        inside = any(name.startswith("tpuc.") for name in op.attributes)
        if inside or any(axis.is_padded for operand in op.operands for axis in self.layouts[operand]):
            raise Refusal("there is no rule for it")
        return [self.dense(result, [SizeExpr.of(size) for size in _shape(result)]) for result in op.results]

    def check(self, layouts: Sequence[Layout], expected: Sequence[Sequence[SizeExpr]]) -> None:
        """Checks the dimensions that a rule derived against the annotation, and both against the bound.

        Raises:
            Refusal: They differ, or a dimension is negative, or longer than at the bound, at a size that is allowed.
        """
        for layout, dims in zip(layouts, expected, strict=True):
            for axis, size in zip(layout, dims, strict=True):
                if axis.size != size:
                    raise Refusal(f"its dimension is {size} at the sizes tried, and {axis.size} by its rule")
                low, high = self.extremes(size)
                if low < 0 or high > axis.bound:
                    raise Refusal(
                        f"its dimension {size} is between {low} and {high} at the sizes allowed, and {axis.bound} at "
                        f"their bound"
                    )

    def number(self, expression: SizeExpr, element: ir.Type) -> Tensor:
        """Builds the value of an expression as a tensor of an element type, without dimensions."""
        value = self.values.number(expression)
        return convert(value, element)

    # Layouts.

    def dense(self, value: Tensor, dims: Sequence[SizeExpr]) -> Layout:
        """Returns the layout of a value whose padding comes last in every dimension."""
        return dense(_shape(value), dims)

    def contiguous(self, value: Tensor, dimension: int) -> Tensor:
        """Returns a value with the padding of one dimension moved to its end."""
        layout = self.layouts[value]
        target = (*layout[:dimension], layout[dimension].contiguous, *layout[dimension + 1 :])
        return self.refactored(self.move(value, target), target)

    def meet(self, values: Sequence[Tensor]) -> tuple[list[Tensor], Layout]:
        """Brings values of one shape to one layout."""
        layout = tuple(map(join, zip(*(self.layouts[value] for value in values), strict=True)))
        return [self.refactored(self.move(value, layout), layout) for value in values], layout

    def meet_along(self, pairs: Iterable[tuple[int, int]], lhs: Tensor, rhs: Tensor) -> tuple[Tensor, Tensor]:
        """Brings dimensions of two values to one layout, pair by pair."""
        left, right = list(self.layouts[lhs]), list(self.layouts[rhs])
        for one, other in pairs:
            axis = join((left[one], right[other]))
            left[one] = axis if not left[one].is_free else left[one]
            right[other] = axis if not right[other].is_free else right[other]
            # A free one takes the other's factors, which needs no move.
            left[one], right[other] = Axis(axis.factors, left[one].is_free), Axis(axis.factors, right[other].is_free)
        moved = self.move(lhs, tuple(left)), self.move(rhs, tuple(right))
        return self.refactored(moved[0], tuple(left)), self.refactored(moved[1], tuple(right))

    def move(self, value: Tensor, target: Layout) -> Tensor:
        """Moves the elements of a value to where they are in another layout of the same shape.

        Only the dimensions in which they differ are gathered from.
        """
        for dimension, (old, new) in enumerate(zip(self.layouts[value], target, strict=True)):
            if not old.is_free and old.factors != new.factors:
                value = self._move_dimension(value, dimension, new)
        return value

    def refactored(self, value: Tensor, target: Layout) -> Tensor:
        """Lets the free dimensions of a value be factored as those of another; nothing needs to be moved for it."""
        self.layouts[value] = tuple(
            Axis(new.factors, old.is_free) if old.is_free else old
            for old, new in zip(self.layouts[value], target, strict=True)
        )
        return value

    def reshape(self, value: Tensor, target: Layout) -> Tensor:
        """Reshapes a value whose elements and padding change places, by a gather from all of it."""
        key = (value, target, self.scope)
        if key not in self._moved:
            self.counts["moves"] += 1
            positions = self.values.positions(self.layouts[value], target)
            self._moved[key] = take(value, positions, [axis.bound for axis in target])
            self.layouts[self._moved[key]] = target
        return self._moved[key]

    def _move_dimension(self, value: Tensor, dimension: int, axis: Axis) -> Tensor:
        layout = self.layouts[value]
        target = (*layout[:dimension], axis, *layout[dimension + 1 :])
        key = (value, target, self.scope)
        if key not in self._moved:
            self.counts["moves"] += 1
            positions = self.values.positions((layout[dimension],), (axis,))
            self._moved[key] = take_along(value, positions, dimension)
            self.layouts[self._moved[key]] = target
        return self._moved[key]

    # Masks.

    def masked(self, value: Tensor, dimensions: Iterable[int], fill: Tensor) -> Tensor:
        """Puts a neutral element into the padding of some dimensions.

        Args:
            value: The value.
            dimensions: The dimensions, of which those without padding do not matter.
            fill: The neutral element, a tensor without dimensions.
        """
        layout = self.layouts[value]
        padded = tuple(dimension for dimension in dimensions if layout[dimension].is_padded)
        if not padded:
            return value
        key = (value, layout, padded, _identity(fill), self.scope)
        if key not in self._masked:
            self.counts["masks"] += 1
            shape = _shape(value)
            mask = self.mask_of(layout, padded, shape)
            self._masked[key] = stablehlo.select(mask, value, broadcast(fill, shape, []))
            self.layouts[self._masked[key]] = tuple(
                axis.concrete if dimension in padded else axis for dimension, axis in enumerate(layout)
            )
        return self._masked[key]

    def mask_of(self, layout: Layout, dimensions: Sequence[int], shape: Sequence[int]) -> Tensor:
        """Returns which places of a tensor are elements, as far as some of its dimensions say: i1[shape]."""
        masks = [broadcast(self.values.mask(layout[dimension]), shape, [dimension]) for dimension in dimensions]
        total = masks[0]
        for mask in masks[1:]:
            total = stablehlo.and_(total, mask)
        return total

    def zero(self, value: Tensor) -> Tensor:
        """Returns the zero of a value's element type, without dimensions."""
        return scalar(value.type.element_type, 0)

    # What holds at all sizes.

    def extremes(self, expression: SizeExpr) -> tuple[int, int]:
        """Returns the least and the greatest number that an expression is at the sizes that are allowed."""
        if expression.constant is not None:
            return expression.constant, expression.constant
        if expression not in self._extremes:
            numbers = [expression.evaluate(sizes) for sizes in self._combinations]
            self._extremes[expression] = min(numbers), max(numbers)
        return self._extremes[expression]

    def is_never_negative(self, expression: SizeExpr) -> bool:
        """Says whether an expression is zero or more at all sizes that are allowed."""
        return self.extremes(expression)[0] >= 0

    @cached_property
    def _combinations(self) -> list[dict[str, int]]:
        choices = [range(each.minimum, each.maximum + 1) for each in self._ranges]
        count = int(np.prod([len(each) for each in choices], dtype=object))
        if count > _MAX_COMBINATIONS:
            # The ends, and what divisors see: expressions are monotone between.
            each = max(4, int(_MAX_COMBINATIONS ** (1 / len(choices))) // 2)
            choices = [sorted({*choice[:each], *choice[-each:]}) for choice in choices]  # type: ignore[misc]
        names = [each.name for each in self._ranges]
        return [dict(zip(names, numbers, strict=True)) for numbers in itertools.product(*choices)]


def scalar(element: ir.Type, number: float) -> Tensor:
    """Builds a constant without dimensions, of integers, floats or complex numbers."""
    type_ = tensor_type([], element)
    if isinstance(element, ir.ComplexType):
        part = scalar(element.element_type, number)
        return stablehlo.complex(part, scalar(element.element_type, 0))
    if isinstance(element, ir.IntegerType):
        return splat_constant(ir.IntegerAttr.get(element, int(number)), type_)
    return splat_constant(ir.FloatAttr.get(element, number), type_)


def lowest(element: ir.Type) -> Tensor:
    """Builds the least value of an element type, without dimensions."""
    if not isinstance(element, ir.IntegerType):
        return scalar(element, float("-inf"))
    bits = element.width - 1
    return scalar(element, 0 if element.is_unsigned or element.width == 1 else -(2**bits))


def take_along(value: Tensor, positions: Tensor, dimension: int) -> Tensor:
    """Builds a tensor whose slices along a dimension are those at positions of another's."""
    shape = _shape(value)
    others = [each for each in range(len(shape)) if each != dimension]
    numbers: Any = stablehlo.GatherDimensionNumbers.get(others, [dimension], [], [], [dimension], 1)
    column = broadcast(positions, [positions.type.shape[0], 1], [0])
    sizes = [1 if each == dimension else size for each, size in enumerate(shape)]
    return stablehlo.gather(value, column, numbers, sizes)


def _shape(value: Any) -> list[int]:
    return list(value.type.shape) if isinstance(value.type, ir.RankedTensorType) else []


def _identity(fill: Tensor) -> object:
    """Tells fills apart: constants of one text are one."""
    constant = producer(fill, stablehlo.ConstantOp)
    return str(constant.value) if constant is not None else fill
