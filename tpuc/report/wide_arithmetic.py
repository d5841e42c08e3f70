"""Where a program for a TPU still computes with 64-bit numbers, which a TPU emulates with several narrower ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.passes.rewrite import nested_ops

#: Operations that move numbers, and do not compute with them; `convert` to or from 64 bits is one end of what is meant.
_MOVES = frozenset(
    f"stablehlo.{name}"
    for name in (
        "bitcast_convert",
        "broadcast_in_dim",
        "case",
        "concatenate",
        "constant",
        "convert",
        "custom_call",
        "dynamic_slice",
        "dynamic_update_slice",
        "gather",
        "if",
        "iota",
        "optimization_barrier",
        "pad",
        "reshape",
        "return",
        "reverse",
        "select",
        "slice",
        "transpose",
        "while",
    )
)
_PLACE = re.compile(r'"([^"]+)":(\d+):\d+')
#: So many places are listed; of the others only the number is.
_LISTED = 4


@dataclass(frozen=True, order=True, kw_only=True)
class WidePlace:
    """A line of the user's that leads to arithmetic on arrays of 64-bit numbers.

    Attributes:
        elements: Of the largest such array.
        array: That array: `f64[8,128]`.
        place: The user's `file:line`; where there is none, the name of what computes it.
    """

    elements: int
    array: str
    place: str


def wide_places(module: ir.Module) -> tuple[WidePlace, ...]:
    """Finds the arithmetic on arrays of i64, u64, f64 and c128; each line and dtype once, the largest first."""
    largest: dict[tuple[str, str], WidePlace] = {}
    for op in nested_ops(mlir.functions(module)["main"]):
        if op.operation.name in _MOVES or not op.operation.name.startswith(("stablehlo.", "chlo.")):
            continue
        for found in _wide_arrays(op):
            key = found.place, found.array.partition("[")[0]
            largest[key] = max(largest.get(key, found), found)
    return tuple(sorted(largest.values(), reverse=True))


def wide_note(places: Iterable[WidePlace]) -> str:
    """Tells people of such places; "" where there are none."""
    texts = list(dict.fromkeys(f"{each.array} at {each.place}" for each in sorted(places, reverse=True)))
    if not texts:
        return ""
    more = len(texts) - _LISTED
    rest = f", and {more} places more" if more > 0 else ""
    return f"a TPU emulates 64-bit arithmetic, and this much is left of it: {', '.join(texts[:_LISTED])}{rest}"


def _wide_arrays(op: ir.OpView | ir.Operation) -> Iterator[WidePlace]:
    """Yields the 64-bit arrays of more than one element that an operation reads or makes."""
    for value in (*op.operands, *op.results):
        type_ = value.type
        if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
            continue
        elements = math.prod(type_.shape)
        if elements > 1 and _is_wide(type_.element_type):
            yield WidePlace(elements=elements, array=_text(type_), place=_place(op))


def _is_wide(type_: ir.Type) -> bool:
    if isinstance(type_, ir.ComplexType):
        type_ = type_.element_type
    return isinstance(type_, ir.F64Type) or (isinstance(type_, ir.IntegerType) and type_.width == 64)


def _text(type_: ir.RankedTensorType) -> str:
    spec = mlir.spec_of(type_, "")
    return f"{spec.dtype}[{','.join(map(str, spec.dims))}]"


def _place(op: ir.OpView | ir.Operation) -> str:
    place = _PLACE.search(str(op.location))
    return f"{place[1]}:{place[2]}" if place else op.operation.name
