"""Builds what `pad-dynamic` computes from true sizes: numbers, masks of true elements, and where elements stand.

Numbers and masks depend on sizes alone, so they are made once, at the start of `@main`, and shared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.axes import Axis, Factor, Layout
from tpuc.passes.rewrite import Tensor
from tpuc.passes.tensors import broadcast, reshape, splat_constant, tensor_type
from tpuc.runtime.sizes import Atom, SizeExpr

#: Positions are i32.
_MAX_ELEMENTS = 2**31


class SizeValues:
    """Values that depend on the sizes alone."""

    def __init__(self, sizes: Mapping[str, Tensor], start: ir.InsertionPoint, location: ir.Location) -> None:
        """Takes the true sizes, i32 without dimensions, and where to build."""
        self._sizes = sizes
        self._start = start
        self._location = location
        self._numbers: dict[SizeExpr, Tensor] = {}
        self._masks: dict[tuple[Factor, ...], Tensor] = {}
        self._positions: dict[tuple[Layout, Layout], Tensor] = {}

    def number(self, expression: SizeExpr) -> Tensor:
        """Returns an expression's value: i32 without dimensions."""
        if expression not in self._numbers:
            with self._start, self._location:
                self._numbers[expression] = self._build_number(expression)
        return self._numbers[expression]

    def progression(self, first: SizeExpr, step: SizeExpr, count: int) -> Tensor:
        """Returns numbers at equal distances: i32[count]."""
        with self._start, self._location:
            steps = stablehlo.multiply(_iota(count), self._spread(step, count))
            return stablehlo.add(steps, self._spread(first, count))

    def mask(self, axis: Axis) -> Tensor:
        """Returns which places along an axis hold elements: i1[bound]."""
        if axis.factors not in self._masks:
            with self._start, self._location:
                self._masks[axis.factors] = self._build_mask(axis)
        return self._masks[axis.factors]

    def positions(self, source: Layout, target: Layout) -> Tensor:
        """Returns, for each place of a layout, where its element stands in another layout of the same elements.

        Args:
            source: Where the elements are.
            target: Where they are to be.

        Returns:
            Row-major positions in `source`: i32[elements of target]; anything where `target` has padding.
        """
        key = (source, target)
        if key not in self._positions:
            with self._start, self._location:
                self._positions[key] = self._build_positions(source, target)
        return self._positions[key]

    def _build_number(self, expression: SizeExpr) -> Tensor:
        total: Tensor | None = None
        for monomial, factor in expression.terms:
            term: Tensor | None = None if monomial and factor == 1 else _scalar(factor)
            for atom in monomial:
                value = self._atom(atom)
                term = value if term is None else stablehlo.multiply(term, value)
            assert term is not None
            total = term if total is None else stablehlo.add(total, term)
        return _scalar(0) if total is None else total

    def _atom(self, atom: Atom) -> Tensor:
        if isinstance(atom, str):
            return self._sizes[atom]
        # Numerators are reduced to coefficients that are not negative, so that truncation rounds down.
        return stablehlo.divide(self.number(atom.numerator), _scalar(atom.divisor))

    def _build_mask(self, axis: Axis) -> Tensor:
        mask: Tensor | None = None
        inner = axis.bound
        places = _iota(axis.bound)
        for factor in axis.factors:
            inner //= factor.bound
            if factor.is_padded:
                coordinate = _coordinate(places, inner, factor.bound if factor is not axis.factors[0] else None)
                own = _less(coordinate, self._spread(factor.size, axis.bound))
                mask = own if mask is None else stablehlo.and_(mask, own)
        assert mask is not None
        return mask

    def _build_positions(self, source: Layout, target: Layout) -> Tensor:
        targets = [factor for axis in target for factor in axis.factors]
        count = math.prod(factor.bound for factor in targets)
        if count >= _MAX_ELEMENTS:
            raise ValueError(f"a tensor of {count} elements is too large to be moved between layouts")
        linear = self._linear(_iota(count), targets)
        sources = [factor for axis in source for factor in axis.factors]
        total = _constant(0, count)
        outer = 1
        for number, factor in reversed(list(enumerate(sources))):
            coordinate = linear
            if number:
                coordinate = stablehlo.remainder(linear, self._spread(factor.size, count))
                linear = stablehlo.divide(linear, self._spread(factor.size, count))
            total = stablehlo.add(total, stablehlo.multiply(coordinate, _constant(outer, count)))
            outer *= factor.bound
        return total

    def _linear(self, places: Tensor, factors: Sequence[Factor]) -> Tensor:
        """Turns places in a padded tensor into the row-major numbers of its elements."""
        count = places.type.shape[0]
        total = _constant(0, count)
        inner = count
        for number, factor in enumerate(factors):
            inner //= factor.bound
            coordinate = _coordinate(places, inner, factor.bound if number else None)
            total = stablehlo.add(stablehlo.multiply(total, self._spread(factor.size, count)), coordinate)
        return total

    def _spread(self, size: SizeExpr, count: int) -> Tensor:
        return broadcast(self.number(size), [count], [])


def _coordinate(places: Tensor, inner: int, bound: int | None) -> Tensor:
    """The coordinate of places along a factor with `inner` places inside it; the outermost needs no bound."""
    count = places.type.shape[0]
    outer = places if inner == 1 else stablehlo.divide(places, _constant(inner, count))
    return outer if bound is None else stablehlo.remainder(outer, _constant(bound, count))


def _less(lhs: Tensor, rhs: Tensor) -> Tensor:
    direction = ir.Attribute.parse("#stablehlo<comparison_direction LT>")
    kind = ir.Attribute.parse("#stablehlo<comparison_type SIGNED>")
    return stablehlo.compare(lhs, rhs, direction, compare_type=kind)


def _iota(count: int) -> Tensor:
    return stablehlo.iota(tensor_type([count], _i32()), 0)


def _constant(number: int, count: int) -> Tensor:
    return splat_constant(ir.IntegerAttr.get(_i32(), number), tensor_type([count], _i32()))


def _scalar(number: int) -> Tensor:
    return splat_constant(ir.IntegerAttr.get(_i32(), number), tensor_type([], _i32()))


def _i32() -> ir.Type:
    return ir.IntegerType.get_signless(32)


def take(value: Tensor, positions: Tensor, shape: Sequence[int]) -> Tensor:
    """Builds a tensor of a shape from the elements of another at row-major positions.

    Args:
        value: The tensor.
        positions: i32[n], n the elements of `shape`.
        shape: The result's.
    """
    flat = reshape(value, [math.prod(value.type.shape)])
    numbers: Any = stablehlo.GatherDimensionNumbers.get([], [0], [], [], [0], 1)
    taken = stablehlo.gather(flat, positions_column(positions), numbers, [1])
    return reshape(taken, shape)


def positions_column(positions: Tensor) -> Tensor:
    """Builds i32[n,1] of i32[n]: what a gather reads indices of one number from."""
    return reshape(positions, [positions.type.shape[0], 1])
