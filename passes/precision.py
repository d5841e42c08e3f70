"""precision: what the user asked for: weights and activations in bf16, products alone in it, or products of all of f32.

With `mode=bf16`:

Before:

    func.func public @main(%x: tensor<8x64xf32> {tpuc.argument = "input:x"},
                           %w: tensor<64x32xf32> {tpuc.argument = "weight:w"},
                           %b: tensor<32xf32> {tpuc.argument = "weight:b"}) -> tensor<8x32xf32> {
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
             : (tensor<8x64xf32>, tensor<64x32xf32>) -> tensor<8x32xf32>
      %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<32xf32>) -> tensor<8x32xf32>
      %2 = stablehlo.add %0, %1 : tensor<8x32xf32>
      return %2 : tensor<8x32xf32>
    }

After:

      %0 = stablehlo.convert %x : (tensor<8x64xf32>) -> tensor<8x64xbf16>
      %1 = stablehlo.convert %w : (tensor<64x32xf32>) -> tensor<64x32xbf16>
      %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0]
             : (tensor<8x64xbf16>, tensor<64x32xbf16>) -> tensor<8x32xf32>
      ...

The modes, which are those of `tpuc compile --precision`:

- `f32`: the program as the model says. XLA multiplies f32 on a TPU as bf16, in one pass, and adds in f32.
- `bf16`: weights and activations are stored in bf16; products multiply bf16 and add in f32. `bf16_storage` lists what
  stays in f32.
- `mixed`: only what products read is stored in bf16, weights of products with it; all else stays in f32.
- `f32-highest`: products are asked for XLA's highest precision, which is that of f32, in several passes. Attention
  becomes its decomposition for it: the kernel has no such products.

Inputs, outputs and state keep their dtypes. Weights are converted before the program runs (`hoist-weights`). Values of
other dtypes than f32 are left alone.

Measured, `bf16` against eager f32, the largest error relative to the largest element, and in brackets that of eager
bf16: MiniLM 0.0058 (0.0095), BERT-base 0.013 (0.024), EfficientNet-Lite0 0.012 (0.024), ResNet-50 0.0040 (0.0042).
docs/passes.md has the estimated cycles of each mode. They leave out what is fetched from HBM while something else is
computed, so that smaller weights hardly show; and in small programs, whose activations stay in VMEM, to store those in
bf16 only adds conversions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc import mlir
from tpuc.errors import RequestError
from tpuc.lowerings.attention import ATTENTION
from tpuc.passes.base import Pass, PassContext
from tpuc.passes.bf16_storage import Bf16Storage, is_attention, is_f32
from tpuc.passes.composites import Composites, composite_attributes
from tpuc.passes.main import Main
from tpuc.passes.rewrite import Tensor, blocks_of, defining_op, is_dead
from tpuc.passes.tensors import find_products, splat_constant, splat_number, tensor_type
from tpuc.passes.weight_only import weights_and_constants

#: What `--precision` may be.
MODES = ("f32", "bf16", "mixed", "f32-highest")


@dataclass(frozen=True, kw_only=True)
class Precision(Pass):
    """Stores values in bf16, or asks for the highest precision, as the user wishes.

    Attributes:
        mode: `f32`, `bf16`, `mixed` or `f32-highest`.
    """

    name: ClassVar[str] = "precision"
    mode: str = "f32"

    def __post_init__(self) -> None:
        """Checks the option.

        Raises:
            RequestError: It has another value.
        """
        if self.mode not in MODES:
            raise RequestError(f"there is no precision {self.mode!r}", hint=f"It is one of {', '.join(MODES)}.")

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place; counts the values that are stored in bf16, or the products."""
        with module.context:
            match self.mode:
                case "f32":
                    fired = {}
                case "f32-highest":
                    fired = {"highest": _ask_for_highest(module)}
                case _:
                    fired = {"stored_in_bf16": _store_in_bf16(module, everything=self.mode == "bf16")}
        return {rule: count for rule, count in fired.items() if count}


def _ask_for_highest(module: ir.Module) -> int:
    for composite in filter(is_attention, mlir.find(module, "stablehlo.composite")):
        mlir.inline(composite, mlir.functions(module)[mlir.symbol(composite, "decomposition")])
    mlir.run_pipeline(module, "symbol-dce")
    products = find_products(module)
    highest = ir.Attribute.parse("[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]")
    for op in products:
        op.attributes["precision_config"] = highest
    return len(products)


def _store_in_bf16(module: ir.Module, *, everything: bool) -> int:
    main = Main(module)
    computed, constants = weights_and_constants(main)
    weights = {*computed, *main.arguments_of("weight")}
    composites = Composites(module)
    count = 0
    for block in list(blocks_of(main.block)):
        storage = Bf16Storage(block, weights, constants, everything=everything)
        _Rewriter(block, storage, weights, composites, everything=everything).run()
        count += len(storage.rounded)
    mlir.run_pipeline(module, "symbol-dce")
    return count


class _Rewriter:
    """Moves values of one block to bf16.

    Each has a narrow one beside it. Where it is read by what takes f32, the narrow one is widened for it: a value is
    stored once. With `everything` false that is so for weights only, and others are read as they were.
    """

    def __init__(
        self,
        block: ir.Block,
        storage: Bf16Storage,
        weights: set[Tensor],
        composites: Composites,
        *,
        everything: bool,
    ) -> None:
        self._block = block
        self._storage = storage
        self._weights = weights
        self._composites = composites
        self._everything = everything
        self._narrow: dict[Tensor, Tensor] = {}  # by the f32 value that it is rounded from or widened to
        self._made: list[ir.OpView] = []

    def run(self) -> None:
        """Rewrites the block."""
        operations = list(self._block.operations)
        for argument in self._block.arguments:
            if argument in self._storage.rounded and argument in self._weights:
                self._round(argument)
        for op in operations:
            if is_attention(op) and self._storage.is_product(op, 0):
                self._rebuild_attention(op)
                continue
            is_narrow = len(op.results) > 0 and op.results[0] in self._storage.narrow_ops
            narrowed = [
                (number, self._narrow_of(operand))
                for number, operand in enumerate(op.operands)
                if is_f32(operand) and (is_narrow or self._storage.is_product(op, number))
            ]
            for number, value in narrowed:
                op.operands[number] = value
            if is_narrow:
                self._retype(op)
                continue
            for result in op.results:
                if result in self._storage.rounded and (self._everything or result in self._weights):
                    self._round(result)
        for made in filter(is_dead, reversed(self._made)):
            made.erase()

    def _narrow_of(self, value: Tensor) -> Tensor:
        if value not in self._narrow:
            self._narrow[value] = self._convert(value, ir.BF16Type.get())
        return self._narrow[value]

    def _round(self, value: Tensor) -> None:
        """Lets all who read a value read it rounded."""
        narrow = self._narrow_of(value)
        wide = self._convert(narrow, value.type.element_type)
        value.replace_all_uses_except(wide, _maker(narrow).operation)
        self._narrow[wide] = narrow

    def _retype(self, op: ir.OpView) -> None:
        """Lets an operation, whose operands are bf16 now, give bf16."""
        with op.location:
            for value in filter(is_f32, (*op.results, *_inside(op))):
                value.set_type(tensor_type(value.type.shape, ir.BF16Type.get()))
        self._widen(op.results[0])

    def _rebuild_attention(self, op: ir.OpView) -> None:
        attributes = composite_attributes(op)
        operands = [self._narrow_of(operand) if number < 3 else operand for number, operand in enumerate(op.operands)]
        with op.location, ir.InsertionPoint(op):
            result = self._composites.build(
                ATTENTION,
                operands,
                is_causal=ir.BoolAttr(attributes["is_causal"]).value,
                scale=ir.FloatAttr(attributes["scale"]).value,
            )
        wide = self._widen(result)
        op.results[0].replace_all_uses_with(wide)
        op.operation.erase()

    def _widen(self, narrow: Tensor) -> Tensor:
        wide = self._convert(narrow, ir.F32Type.get())
        narrow.replace_all_uses_except(wide, _maker(wide).operation)
        self._narrow[wide] = narrow
        return wide

    def _convert(self, value: Tensor, element_type: ir.Type) -> Tensor:
        """Converts a value right after it is made."""
        op, number = defining_op(value), splat_number(value)
        if op is None or op.operation.block != self._block:
            op = None  # An argument, or a value from around this block, is converted at its beginning.
        place = op or self._block.operations[0]
        with place.location, ir.InsertionPoint(place):
            type_ = tensor_type(value.type.shape, element_type)
            if number is not None and isinstance(element_type, ir.BF16Type):
                converted = splat_constant(ir.FloatAttr.get(element_type, number), type_)
            else:
                converted = stablehlo.convert(type_, value)
        made = _maker(converted)
        if op is not None:
            made.operation.move_after(op.operation)
        self._made.append(made)
        return converted


def _maker(value: Tensor) -> ir.OpView:
    op = defining_op(value)
    assert op is not None
    return op


def _inside(op: ir.OpView) -> list[Tensor]:
    """The values of an operation's regions."""
    blocks = [block for region in op.regions for block in region.blocks]
    arguments = [argument for block in blocks for argument in block.arguments]
    return [*arguments, *(result for block in blocks for each in block.operations for result in each.results)]
