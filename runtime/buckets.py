"""Calls of any size by programs of fixed ones: which one fits, how inputs are filled up, and outputs cut.

A program with named sizes is compiled for some of them, its buckets. A call finds out its sizes from the shapes of its
inputs, takes the bucket with the least work that is large enough, and fills the inputs up; the program gets the true
sizes as arguments, and what it returns is cut to the true shapes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tpuc.runtime.dtypes import Array
from tpuc.runtime.errors import InputError
from tpuc.runtime.sizes import SizeExpr, SizeRange
from tpuc.runtime.spec import TensorSpec


def true_sizes(
    specs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[int]], ranges: Sequence[SizeRange]
) -> dict[str, int]:
    """Finds out the sizes of a call.

    Args:
        specs: What the call takes.
        shapes: The shape of each input, by name.
        ranges: What the sizes may be.

    Returns:
        The number of each size, by name.

    Raises:
        InputError: Inputs disagree on a size, or it is out of its range, or a dimension is no multiple of what it must
            be one of; all of this is named.
    """
    problems: list[str] = []
    found: dict[str, dict[int, str]] = {each.name: {} for each in ranges}
    for spec in specs:
        for place, (dim, number) in enumerate(zip(spec.dims, shapes[spec.name], strict=True)):
            if isinstance(dim, int):
                continue
            expression = SizeExpr.of(dim)
            (name,) = expression.names
            size = expression.solve(number)
            if size is None:
                problems.append(f"{spec.name}: dimension {place} is {number}, which {dim} is for no {name}")
            else:
                found[name].setdefault(size, f"{spec.name} (dimension {place} is {number})")
    for each in ranges:
        problems += _problems(each, found[each.name])
    if problems:
        raise InputError("\n".join(problems), hint=f"The program takes {', '.join(map(str, specs))}.")
    return {name: next(iter(sizes)) for name, sizes in found.items()}


def _problems(allowed: SizeRange, found: Mapping[int, str]) -> Iterator[str]:
    if len(found) > 1:
        yield f"{allowed.name} is " + ", and ".join(f"{size} by {where}" for size, where in found.items())
    for size, where in found.items():
        if not allowed.minimum <= size <= allowed.maximum:
            limit = f"at least {allowed.minimum}" if size < allowed.minimum else f"at most {allowed.maximum}"
            yield f"{allowed.name} is {size} by {where}, and must be {limit}"


def smallest(buckets: Sequence[Mapping[str, int]], sizes: Mapping[str, int]) -> int:
    """Returns the number of the bucket that has room for some sizes with the least room left.

    Raises:
        InputError: None has room.
    """
    fitting = [
        (math.prod(bucket.values()), number)
        for number, bucket in enumerate(buckets)
        if all(bucket[name] >= size for name, size in sizes.items())
    ]
    if not fitting:
        shown = ", ".join(f"{name}={size}" for name, size in sizes.items())
        raise InputError(f"the artifact has no program for {shown}")
    return min(fitting)[1]


def fill_up(array: Array, shape: Sequence[int]) -> Array:
    """Returns an array of a shape that begins with the elements of a smaller one; the others are zero."""
    if list(array.shape) == list(shape):
        return array
    full = np.zeros(shape, array.dtype)
    full[tuple(map(slice, array.shape))] = array
    return full


def cut(array: Array, shape: Sequence[int]) -> Array:
    """Returns the beginning of an array, dense."""
    return np.ascontiguousarray(array[tuple(map(slice, shape))]) if list(array.shape) != list(shape) else array
