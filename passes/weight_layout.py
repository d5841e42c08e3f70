"""weight-layout: weights are stored in the shapes in which the program reads them.

How the compiler lays a tensor out in memory goes by its shape: in tiles of its last two dimensions, as the compiler
orders them. A program that reshapes or transposes a weight moves it from one layout to another in every call. And a
kernel of one position, f32[O,I,1,1], lies in tiles of one row, T(1,128), where the matrix unit reads it in tiles of
eight, T(8,128): the matrix f32[O,I] lies in those.

Before:

    func.func public @main(%x: tensor<1x512x7x7xf32> {tpuc.argument = "input:x"},
                           %w: tensor<2048x512x1x1xf32> {tpuc.argument = "weight:w"}) -> tensor<1x2048x7x7xf32> {
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {}
             : (tensor<1x512x7x7xf32>, tensor<2048x512x1x1xf32>) -> tensor<1x2048x7x7xf32>
      return %0 : tensor<1x2048x7x7xf32>
    }

After:

    func.func public @main(%x: tensor<1x512x7x7xf32> {tpuc.argument = "input:x"},
                           %0: tensor<2048x512xf32> {tpuc.argument = "prepared:prepare.0"}) -> tensor<1x2048x7x7xf32> {
      %1 = stablehlo.reshape %0 : (tensor<2048x512xf32>) -> tensor<2048x512x1x1xf32>
      %2 = stablehlo.convolution(%x, %1) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {}
             : (tensor<1x512x7x7xf32>, tensor<2048x512x1x1xf32>) -> tensor<1x2048x7x7xf32>
      return %2 : tensor<1x2048x7x7xf32>
    }
    func.func private @prepare.0(%w: tensor<2048x512x1x1xf32> {tpuc.argument = "weight:w"}) -> tensor<2048x512xf32> {
      %0 = stablehlo.reshape %w : (tensor<2048x512x1x1xf32>) -> tensor<2048x512xf32>
      return %0 : tensor<2048x512xf32>
    }

The reshape that is left in the program is none to the compiler: both shapes have the same layout. What reads a weight
is compiled alone for the target, before and after, and the weight is stored in the other shape where that costs less.

Why not let the compiler choose layouts (`mhlo.layout_mode = "auto"`), for the runtime to bring weights into: it has no
layout for a weight that is split and turned, and does worse on some models. Shapes also work through every plugin, and
need nothing of the runtime.

Measured, in estimated cycles of whole programs: as they were, with "auto", and with this pass.

    BERT-base, f32, batch 1, v5e               509,273     509,273     507,401
    ResNet-50, f32, batch 1, v5e               349,589     343,283     342,174
    EfficientNet-Lite0, f32, batch 1, v5e      590,753     593,578     588,720 *
    ResNet-50, bf16, batch 64, v5p           6,833,224   6,839,875   6,827,659 *

    * All that is rearranged was stored that way, without trials, and no kernel as a matrix.

For MiniLM and for four layers of LLaMA "auto" changes nothing, and nothing is rearranged. In ResNet-50, f32, three
forms of kernels pay when they are tried alone: 16,196 cycles become 14,401, 12,793 become 12,302, and 8,635 become
7,404. All kernels of one position as matrices, whether they pay alone or not, would make it 340,924.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.base import Pass, PassContext
from tpuc.passes.hoist_weights import is_worth_preparing, prepare
from tpuc.passes.main import Main
from tpuc.passes.rewrite import Tensor, captured_values, defining_op
from tpuc.passes.tensors import ELEMENTWISE, PRODUCTS, bytes_of, has_one_use, reshape, squeeze
from tpuc.passes.trial import Trials
from tpuc.passes.weight_only import Weights, slice_back

#: What moves elements and changes none.
_REARRANGING = (stablehlo.ReshapeOp, stablehlo.TransposeOp)
#: What may stand between a product and what the compiler computes with it.
_BETWEEN = (*ELEMENTWISE, stablehlo.ReshapeOp, stablehlo.SliceOp, stablehlo.TransposeOp)


@dataclass(frozen=True, kw_only=True)
class WeightLayout(Pass):
    """Stores weights in the shapes in which the program reads them, where the compiler says that it pays."""

    name: ClassVar[str] = "weight-layout"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place."""
        if context.estimator is None:
            return {}
        main = Main(module)
        trials = Trials(module, context.estimator)
        with module.context:
            rearranged = [
                value for value in _rearranged(main) if trials.pays(_with_readers(value), _store_all_rearranged)
            ]
            kernels = [op for op in _pointwise(main) if trials.pays([op], _store_all_pointwise)]
            if rearranged or kernels:
                prepare(main, [*rearranged, *map(_from_matrix, kernels)])
        counts = {"rearranged": len(rearranged), "pointwise": len(kernels)}
        return {rule: count for rule, count in counts.items() if count}


def _rearranged(main: Main) -> Iterator[Tensor]:
    """What the program reads of weights after it has reshaped or transposed them."""
    weights = Weights(main)
    for op in main.block.operations:
        if not isinstance(op, _REARRANGING) or not weights.is_weight_only(op.result):
            continue
        readers = _readers(op.result)
        if readers and all(
            _can_be_alone(each, main) and not weights.is_weight_only(each.results[0]) for each in readers
        ):
            ops, (weight,) = _rearranging(op.result)
            if _is_stored(weight, main) and all(
                has_one_use(each) for each in (weight, *(op.result for op in ops[:-1]))
            ):
                yield op.result


def _rearranging(value: Tensor) -> tuple[list[ir.OpView], list[Tensor]]:
    """The operations that rearrange what becomes a value, and what they begin with."""
    return slice_back([value], lambda each: not isinstance(defining_op(each), _REARRANGING))


def _readers(value: Tensor) -> list[ir.OpView]:
    """The operations that read a value, each once."""
    owners = [use.owner.operation.opview for use in value.uses]
    return list({owner.results[0] if len(owner.results) else None: owner for owner in owners}.values())


def _can_be_alone(op: ir.OpView, main: Main) -> bool:
    """Whether an operation can be compiled without those around it."""
    return len(op.results) > 0 and op.operation.parent == main.op.operation and not captured_values(op)


def _is_stored(weight: Tensor, main: Main) -> bool:
    """Whether the program takes a tensor as it is: a weight, or what is prepared from weights."""
    return defining_op(weight) is None or is_worth_preparing(weight)


def _with_readers(value: Tensor) -> Sequence[ir.OpView]:
    """What a value is tried with: what rearranges it, what reads it, and the products whose results that takes too.

    The compiler adds a bias, say, while it multiplies, and then wants it in the layout of the product.
    """
    ops, _ = _rearranging(value)
    readers = _readers(value)
    found = {op.results[0]: op for op in (*ops, *readers)}
    todo = [operand for op in readers if not isinstance(op, PRODUCTS) for operand in op.operands]
    while todo:
        each = todo.pop()
        op = defining_op(each)
        if op is None or each in found or not has_one_use(each) or not isinstance(op, (*PRODUCTS, *_BETWEEN)):
            continue
        found[each] = op
        if not isinstance(op, PRODUCTS):
            todo.extend(op.operands)
    return list(found.values())


def _store_all_rearranged(module: ir.Module) -> None:
    main = Main(module)
    prepare(main, list(_rearranged(main)))


def _pointwise(main: Main) -> Iterator[stablehlo.ConvolutionOp]:
    """The convolutions that take most of their time for their kernels, which have one position.

    These are kernels of more bytes than what they are applied to and give. For others, layouts were seen to make no
    difference, and each trial takes time.
    """
    weights = Weights(main)
    for op in main.block.operations:
        if (
            isinstance(op, stablehlo.ConvolutionOp)
            and op.rhs.type.rank - op.rhs.type.shape.count(1) == 2 < op.rhs.type.rank
            and bytes_of(op.rhs) > bytes_of(op.lhs) + bytes_of(op.result)
            and weights.is_weight_only(op.rhs)
            and has_one_use(op.rhs)
            and _is_stored(op.rhs, main)
        ):
            yield op


def _from_matrix(op: stablehlo.ConvolutionOp) -> Tensor:
    """Lets a convolution take its kernel from a matrix, which it returns."""
    with op.location, ir.InsertionPoint(op):
        matrix = squeeze(op.rhs)
        op.operands[1] = reshape(matrix, op.rhs.type.shape)
    return matrix


def _store_all_pointwise(module: ir.Module) -> None:
    main = Main(module)
    prepare(main, [_from_matrix(op) for op in list(_pointwise(main))])
