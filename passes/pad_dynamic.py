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
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.errors import PassError
from tpuc.passes.axes import Layout, dense
from tpuc.passes.base import Pass, PassContext
from tpuc.passes.padding import Padding
from tpuc.passes.padding_rules import apply_rules
from tpuc.passes.rewrite import nested_ops
from tpuc.passes.size_values import SizeValues
from tpuc.runtime.sizes import SizeExpr, SizeRange

_PLACE = re.compile(r'"([^"]+)":(\d+):\d+')


@dataclass(frozen=True, kw_only=True)
class PadDynamic(Pass):
    """Turns a program at the bound of its sizes into one that takes the true sizes as arguments.

    A module without `tpuc.sizes` stays as it is.
    """

    name: ClassVar[str] = "pad-dynamic"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place.

        Returns:
            How many masks, and how many moves of elements, it took.

        Raises:
            PassError: Operations for which there is no exact rule, all of them, with the user's lines.
        """
        main: Any = next(
            op for op in module.body.operations if ir.StringAttr(op.attributes["sym_name"]).value == "main"
        )
        if "tpuc.sizes" not in main.attributes:
            return {}
        with module.context:
            ranges = [SizeRange.parse(each.value) for each in main.attributes["tpuc.sizes"]]
            return _pad(main, ranges)


def _pad(main: Any, ranges: list[SizeRange]) -> Counter[str]:
    block = main.regions[0].blocks[0]
    location = main.location
    layouts = {argument: _argument_layout(main, number) for number, argument in enumerate(block.arguments)}
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32), loc=location)
    sizes = {each.name: block.add_argument(i32, location) for each in ranges}
    layouts.update(dict.fromkeys(sizes.values(), ()))
    # What is made of sizes alone goes before this operation, which no rule replaces.
    with location, ir.InsertionPoint.at_block_begin(block):
        anchor = stablehlo.constant(ir.DenseElementsAttr.get_splat(i32, ir.IntegerAttr.get(i32.element_type, 0))).owner
    layouts[anchor.results[0]] = ()
    values = SizeValues(sizes, ir.InsertionPoint(anchor), location)
    padding = Padding(values, layouts, ranges)
    apply_rules(block, padding)
    anchor.erase()
    if padding.refused:
        raise _refused(padding.refused)
    _finish(main, ranges)
    return padding.counts


def _argument_layout(main: Any, number: int) -> Layout:
    argument = main.regions[0].blocks[0].arguments[number]
    attributes = main.attributes["arg_attrs"][number] if "arg_attrs" in main.attributes else {}
    shape = argument.type.shape
    if "tpuc.dims" not in attributes:
        return dense(shape, [SizeExpr.of(size) for size in shape])
    return dense(shape, [SizeExpr.of(text) for text in attributes["tpuc.dims"].value.split(",")])


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


def _finish(main: Any, ranges: list[SizeRange]) -> None:
    """Takes the annotations away, and names the new arguments."""
    for op in nested_ops(main.operation):
        for name in [name for name in op.attributes if name.startswith("tpuc.")]:
            del op.attributes[name]
    block = main.regions[0].blocks[0]
    terminator = block.operations[len(block.operations) - 1]
    type_ = ir.FunctionType.get([each.type for each in block.arguments], [each.type for each in terminator.operands])
    main.attributes["function_type"] = ir.TypeAttr.get(type_)
    old: Any = main.attributes.get("arg_attrs", ())
    kept: list[dict[str, ir.Attribute]] = [
        {each.name: each.attr for each in given if each.name != "tpuc.dims"} for given in old
    ]
    kept += [{} for _ in range(len(block.arguments) - len(ranges) - len(kept))]
    kept += [{"tpuc.argument": ir.StringAttr.get(f"size:{each.name}")} for each in ranges]
    main.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(each) for each in kept])
