"""pad-dynamic: lets a program at the upper bound of its sizes compute, exactly, what it computes at smaller ones.

The module comes at the bound, with annotations that say how its numbers depend on the sizes (`tpuc.sizes`, `tpuc.dims`
and what `tpuc.frontend.generalize` lists). The pass follows where in every tensor elements and padding are, and
changes what would let padding reach an element: an operation either keeps padding where it is, or gets its neutral
element there through a mask, or moves it. True sizes come as i32 arguments. What stands in the padding does not
matter, NaN included. Each dimension is derived by the operations' own rules and compared with the annotation.

Before:

    func.func @main(%x: tensor<8x128xf32> {tpuc.dims = "8,seq"}) -> tensor<8xf32>
        attributes {tpuc.sizes = ["seq=1..128"]} {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]

After:

    func.func @main(%x: tensor<8x128xf32>, %seq: tensor<i32> {tpuc.argument = "size:seq"}) -> tensor<8xf32> {
      %place = stablehlo.iota dim = 0 : tensor<128xi32>
      %size = stablehlo.broadcast_in_dim %seq, dims = [] : (tensor<i32>) -> tensor<128xi32>
      %mask = stablehlo.compare LT, %place, %size, SIGNED
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.broadcast_in_dim %mask, dims = [1] : (tensor<128xi1>) -> tensor<8x128xi1>
      %2 = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<8x128xf32>
      %3 = stablehlo.select %1, %x, %2
      %0 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxlib.mlir import ir

from tpuc.errors import PassError
from tpuc.passes import (  # noqa: F401  They register their rules.
    padding_elementwise,
    padding_indices,
    padding_linalg,
    padding_moves,
    padding_reductions,
    padding_regions,
    padding_windows,
)
from tpuc.passes.axes import Layout, dense
from tpuc.passes.base import Pass, PassContext
from tpuc.passes.main import Main
from tpuc.passes.padding import Padding, scalar
from tpuc.passes.padding_rules import apply_rules
from tpuc.passes.rewrite import defining_op, nested_ops
from tpuc.passes.size_values import SizeValues
from tpuc.runtime.sizes import SizeExpr, SizeRange

_SIZES = "tpuc.sizes"
_DIMS = "tpuc.dims"
_PLACE = re.compile(r'"([^"]+)":(\d+):\d+')


@dataclass(frozen=True, kw_only=True)
class PadDynamic(Pass):
    """Turns a program at the bound of its sizes into one that takes the true sizes as arguments.

    A module without `tpuc.sizes` stays as it is.
    """

    name: ClassVar[str] = "pad-dynamic"
    #: Under what name the masks are counted.
    MASKS: ClassVar[str] = "masks"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place.

        Returns:
            How many masks, and how many moves of elements, it took.

        Raises:
            PassError: Operations for which there is no exact rule, all of them, with the user's lines.
        """
        main = Main(module)
        if _SIZES not in main.op.attributes:
            return {}
        with module.context:
            counts = _pad(main)
            for op in nested_ops(main.op):
                for name in [name for name in op.attributes if name.startswith("tpuc.")]:
                    del op.attributes[name]
            main.remove_attribute(_DIMS)
        return counts


def _pad(main: Main) -> Mapping[str, int]:
    """Adds the sizes to the arguments, and applies the rules.

    Returns:
        How many masks, and how many moves of elements, it took.
    """
    location = main.op.location
    ranges = [SizeRange.parse(ir.StringAttr(each).value) for each in ir.ArrayAttr(main.op.attributes[_SIZES])]
    layouts = {argument: _argument_layout(main, number) for number, argument in enumerate(main.block.arguments)}
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32), loc=location)
    names = [each.name for each in ranges]
    sizes = dict(zip(names, main.add_arguments([i32] * len(names), [f"size:{name}" for name in names]), strict=True))
    layouts.update(dict.fromkeys(sizes.values(), ()))
    # What is made of sizes alone goes before this operation, which no rule replaces.
    with location, ir.InsertionPoint.at_block_begin(main.block):
        anchor = defining_op(scalar(i32.element_type, 0))
    assert anchor is not None
    layouts[anchor.results[0]] = ()
    padding = Padding(SizeValues(sizes, ir.InsertionPoint(anchor), location), layouts, ranges)
    apply_rules(main.block, padding)
    anchor.erase()
    if padding.refused:
        raise _refused(padding.refused)
    return padding.counts


def _argument_layout(main: Main, number: int) -> Layout:
    shape, attributes = main.block.arguments[number].type.shape, main.attributes[number]
    if _DIMS not in attributes:
        return dense(shape, list(map(SizeExpr.of, shape)))
    return dense(shape, list(map(SizeExpr.of, ir.StringAttr(attributes[_DIMS]).value.split(","))))


def _refused(refused: list[tuple[str, str]]) -> PassError:
    lines = []
    for what, location in refused:
        place = _PLACE.search(location)
        lines.append(f"  {what}" + (f" at {place[1]}:{place[2]}" if place else ""))
    count = len(lines)
    return PassError(
        f"{count} operation{'s' if count != 1 else ''} cannot be padded exactly:\n" + "\n".join(dict.fromkeys(lines)),
        hint="docs/dynamic.md lists what can; the others need sizes that are numbers.",
    )
