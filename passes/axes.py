"""Where the elements of a padded tensor are: what `pad-dynamic` knows of each dimension.

A dimension of a padded tensor is longer than that of the tensor it stands for. A reshape that merges `batch` and
`seq` leaves the padding of both inside the merged dimension, where it alternates with elements. So a dimension is a
sequence of *factors*, outermost first, each with its length in the padded tensor (the bound) and its true size: the
element with the coordinates (i, j) in factors of the bounds (8, 128) stands at i * 128 + j, while i and j are less
than the factors' sizes.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tpuc.runtime.sizes import SizeExpr

_ONE = SizeExpr.of(1)


@dataclass(frozen=True)
class Factor:
    """A part of a dimension.

    Attributes:
        bound: Its length in the padded tensor.
        size: Its length in the true one.
    """

    bound: int
    size: SizeExpr

    @property
    def is_padded(self) -> bool:
        """Whether its true length varies."""
        return self.size.constant is None


@dataclass(frozen=True)
class Axis:
    """A dimension of a padded tensor.

    Attributes:
        factors: Its factors, outermost first; of a dimension of length one there are none. One with a number as its
            size has become part of the factor before it, so that equal axes are equal objects.
        is_free: Whether all elements along it are the same, as a broadcast makes them: the factors could be others
            with the same product.
    """

    factors: tuple[Factor, ...]
    is_free: bool = False

    @classmethod
    def of(cls, *factors: Factor, is_free: bool = False) -> Axis:
        """Makes an axis of any factors."""
        merged: list[Factor] = []
        for factor in factors:
            if factor.size == _ONE and factor.bound == 1:
                continue
            if merged and not factor.is_padded:
                last = merged.pop()
                factor = Factor(last.bound * factor.bound, last.size * factor.size)
            merged.append(factor)
        return cls(tuple(merged), is_free)

    @property
    def bound(self) -> int:
        """The length of the dimension in the padded tensor."""
        return math.prod(factor.bound for factor in self.factors)

    @property
    def size(self) -> SizeExpr:
        """Its true length."""
        return functools.reduce(operator.mul, (factor.size for factor in self.factors), _ONE)

    @property
    def is_padded(self) -> bool:
        """Whether there may be padding in it."""
        return any(factor.is_padded for factor in self.factors)

    @property
    def is_contiguous(self) -> bool:
        """Whether all padding comes after all elements."""
        return len(self.factors) <= 1

    @property
    def contiguous(self) -> Axis:
        """A dimension of the same length and size whose padding comes after its elements."""
        return Axis.of(Factor(self.bound, self.size))

    @property
    def concrete(self) -> Axis:
        """The axis as one along which elements differ."""
        return Axis(self.factors)

    def __str__(self) -> str:
        return " x ".join(f"{factor.size}<={factor.bound}" for factor in self.factors) or "1"


Layout: TypeAlias = "tuple[Axis, ...]"


def dense(shape: Sequence[int], dims: Sequence[SizeExpr], *, is_free: bool = False) -> Layout:
    """Returns the layout of a tensor whose padding comes last in every dimension."""
    return tuple(Axis.of(Factor(bound, size), is_free=is_free) for bound, size in zip(shape, dims, strict=True))


def join(axes: Iterable[Axis]) -> Axis:
    """Returns the axis that tensors with these take where they meet: the first that is not free."""
    axes = list(axes)
    return next((axis for axis in axes if not axis.is_free), axes[0])


def regroup(layout: Layout, shape: Sequence[int], dims: Sequence[SizeExpr]) -> Layout | None:
    """Says what a reshape makes of a layout where it only merges and splits factors.

    Args:
        layout: The layout before.
        shape: The padded shape after it.
        dims: The true dimensions after it.

    Returns:
        The layout after it; None if elements and padding would have to change places.
    """
    rest = [factor for axis in layout for factor in axis.factors][::-1]
    axes = []
    for bound, size in zip(shape, dims, strict=True):
        taken = _take(rest, bound, size)
        if taken is None:
            return None
        axes.append(Axis.of(*taken))
    return None if rest else tuple(axes)


def _take(rest: list[Factor], bound: int, size: SizeExpr) -> list[Factor] | None:
    """Takes factors with this product from the end of a list, outermost first, splitting the last one if need be."""
    taken = []
    while bound != 1 or size != _ONE:
        if not rest:
            return None
        factor = rest.pop()
        remaining = size.divide(factor.size)
        if remaining is not None and bound % factor.bound == 0:
            taken.append(factor)
            bound, size = bound // factor.bound, remaining
            continue
        inner = factor.size.divide(size)
        if inner is None or inner.constant is None or factor.bound != bound * inner.constant:
            return None
        rest.append(Factor(inner.constant, inner))
        taken.append(Factor(bound, size))
        break
    return taken
