"""Named sizes: what they may be (`--dims`), and for which of them programs are made (`--buckets`)."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tpuc.errors import InputError, RequestError
from tpuc.runtime.sizes import SizeExpr, SizeRange
from tpuc.runtime.spec import TensorSpec
from tpuc.shapes import InputSpec

_DIMS_HINT = "Write name=least..greatest, or name=8*other: batch=1..8 seq=8*k k=1..64"
_BUCKETS_HINT = "Write name=size,size,...: batch=1,8 seq=128,256,512"
_PART = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>\S+)", re.ASCII)
#: As many programs are made for a target where the user does not say for which sizes.
_MAX_PROGRAMS = 8

#: What the sizes may be in one program: from what they may be at all, to what it has room for.
Bucket = tuple[SizeRange, ...]


@dataclass(frozen=True, kw_only=True)
class Dims:
    """Named sizes.

    Attributes:
        ranges: What the sizes may be, in the order in which they were given.
        derived: Names that stand for expressions of sizes.
    """

    ranges: tuple[SizeRange, ...]
    derived: Mapping[str, SizeExpr]

    def resolve(self, specs: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
        """Puts expressions of sizes in the dimensions of inputs.

        Raises:
            RequestError: A dimension has no range, or tells no size, or a range is for no dimension.
        """
        resolved = tuple(self._resolve_one(spec) if isinstance(spec, TensorSpec) else spec for spec in specs)
        names = frozenset[str]().union(*(spec.names for spec in resolved if isinstance(spec, TensorSpec)))
        for each in self.ranges:
            if each.name not in names:
                raise RequestError(f"no input has a dimension of the size {each.name}", hint="Name it in --shapes.")
        return resolved

    def _resolve_one(self, spec: TensorSpec) -> TensorSpec:
        known = {each.name for each in self.ranges}
        dims: list[int | str] = []
        for dim in spec.dims:
            expression = SizeExpr.of(dim).substitute(self.derived)
            if expression.constant is not None:
                dims.append(expression.constant)
                continue
            if unknown := sorted(expression.names - known):
                raise RequestError(f"{spec}: it is not said what {unknown[0]} may be", hint=_DIMS_HINT)
            if expression.linear is None:
                raise RequestError(f"{spec}: {dim} is no multiple of one size plus a number")
            dims.append(str(expression))
        return replace(spec, dims=tuple(dims))

    def example(self) -> dict[str, int]:
        """Returns a number for each size: not one, and unlike each other, where there is a choice."""
        sizes: dict[str, int] = {}
        for each in self.ranges:
            choices = range(max(each.minimum, min(each.maximum, 3)), each.maximum + 1)
            sizes[each.name] = next((size for size in choices if size not in sizes.values()), choices[0])
        return sizes


@dataclass(frozen=True, kw_only=True)
class SizeBuckets:
    """The sizes that programs have room for, smallest first; the last is the greatest that the size may be."""

    name: str
    bounds: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}={','.join(map(str, self.bounds))}"


def parse_dims(text: str) -> Dims:
    """Reads `batch=1..8 seq=8*k k=1..64`; a range of one number is that number.

    Raises:
        RequestError: A part has another form, a name is given twice, or no size is possible.
    """
    ranges: list[SizeRange] = []
    derived: dict[str, SizeExpr] = {}
    for name, value in _parts(text, _DIMS_HINT):
        if ".." in value:
            try:
                each = SizeRange.parse(f"{name}={value}")
            except InputError as error:
                raise RequestError(error.what, hint=_DIMS_HINT) from error
            if not 1 <= each.minimum <= each.maximum:
                raise RequestError(f"{each}: a size is at least 1, and at most what it is at least", hint=_DIMS_HINT)
            if each.minimum == each.maximum:
                derived[name] = SizeExpr.of(each.maximum)
            else:
                ranges.append(each)
            continue
        try:
            derived[name] = SizeExpr.of(value)
        except InputError as error:
            raise RequestError(f"{name}={value}: {error.what}", hint=_DIMS_HINT) from error
    if not ranges:
        raise RequestError("no size has a range", hint=_DIMS_HINT)
    return Dims(ranges=tuple(ranges), derived=derived)


def parse_buckets(text: str, dims: Dims) -> tuple[SizeBuckets, ...]:
    """Reads `batch=1,8 seq=128,256,512`; a size that is not named has one bucket, its greatest.

    Raises:
        RequestError: A part has another form, names no size, or a bucket is out of the size's range, or none has room
            for the greatest.
    """
    found: dict[str, tuple[int, ...]] = {each.name: (each.maximum,) for each in dims.ranges}
    ranges = {each.name: each for each in dims.ranges}
    for given, value in _parts(text, _BUCKETS_HINT):
        expression = dims.derived.get(given, SizeExpr.of(given))
        if expression.linear is None or expression.linear[0] not in ranges:
            raise RequestError(f"there is no size {given}", hint=f"There are {', '.join(ranges)}.")
        if not re.fullmatch(r"\d+(,\d+)*", value, re.ASCII):
            raise RequestError(f"{given}={value} is no list of sizes", hint=_BUCKETS_HINT)
        allowed = ranges[expression.linear[0]]
        bounds = [(number, expression.solve(int(number))) for number in value.split(",")]
        for number, bound in bounds:
            if bound is None or not allowed.minimum <= bound <= allowed.maximum:
                raise RequestError(f"{given} cannot be {number}, and needs no bucket for it", hint=f"It is {allowed}.")
        found[allowed.name] = tuple(sorted({bound for _, bound in bounds if bound is not None}))
        if found[allowed.name][-1] != allowed.maximum:
            raise RequestError(f"no bucket of {given} has room for {allowed.maximum}", hint=f"It is {allowed}.")
    return tuple(SizeBuckets(name=name, bounds=bounds) for name, bounds in found.items())


def choose_buckets(ranges: Sequence[SizeRange]) -> tuple[SizeBuckets, ...]:
    """Chooses buckets where the user does not: at most eight programs, each size in steps of one ratio.

    The size whose steps are the largest gets the next bucket. Buckets are powers of two, which fill a TPU's tiles, but
    for the greatest.
    """
    counts = [1] * len(ranges)
    while True:
        ratios = [(each.maximum / each.minimum) ** (1 / count) for each, count in zip(ranges, counts, strict=True)]
        widest = ratios.index(max(ratios))
        counts[widest] += 1
        if math.prod(counts) > _MAX_PROGRAMS or ratios[widest] < 2:
            counts[widest] -= 1
            break
    return tuple(map(_steps, ranges, counts))


def _steps(allowed: SizeRange, count: int) -> SizeBuckets:
    ratio = (allowed.maximum / allowed.minimum) ** (1 / count)
    steps = (2 ** math.ceil(math.log2(allowed.maximum / ratio**number)) for number in range(1, count))
    bounds = {min(step, allowed.maximum) for step in steps} | {allowed.maximum}
    return SizeBuckets(name=allowed.name, bounds=tuple(sorted(bounds)))


def buckets_of(ranges: Sequence[SizeRange], buckets: Sequence[SizeBuckets]) -> list[Bucket]:
    """Returns the buckets, a combination of each size's: what the sizes may be in each of them."""
    bounds = {each.name: each.bounds for each in buckets}
    combinations = itertools.product(*(bounds[each.name] for each in ranges))
    return [
        tuple(replace(each, maximum=bound) for each, bound in zip(ranges, combination, strict=True))
        for combination in combinations
    ]


def bucket_name(bucket: Bucket) -> str:
    """Names a bucket for files and sections: `batch8.seq128`; "" without sizes."""
    return ".".join(f"{each.name}{each.maximum}" for each in bucket)


def largest_step(ranges: Sequence[SizeRange], buckets: Sequence[SizeBuckets]) -> float:
    """Returns how many times as long as it needs to be an input can become through the choice of buckets."""
    total = 1.0
    bounds = {each.name: each.bounds for each in buckets}
    for each in ranges:
        least = [each.minimum, *(bound + 1 for bound in bounds[each.name][:-1])]
        total *= max(bound / size for size, bound in zip(least, bounds[each.name], strict=True))
    return total


def _parts(text: str, hint: str) -> Iterator[tuple[str, str]]:
    names = set()
    for part in text.split():
        match = _PART.fullmatch(part)
        if match is None:
            raise RequestError(f"cannot read {part!r}", hint=hint)
        if match["name"] in names:
            raise RequestError(f"{match['name']} is given twice", hint=hint)
        names.add(match["name"])
        yield match["name"], match["value"]
