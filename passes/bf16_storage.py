"""Which f32 values of a program may be stored in bf16; `precision` moves them there.

A value is read by a product (a matrix product, a convolution, attention), which multiplies bf16 and adds in f32; or it
is moved (transposed, gathered, padded, its maximum pooled), which is exact in any type; or it is computed with. Then:

- What a product reads, directly or after moves, is stored in bf16. So are weights of two dimensions or more.
- What several operations read and a sum is taken of, as of a residual before a norm, is stored in bf16 too, since XLA
  writes it to memory. Other values are parts of fusions, and stay in f32 on their way.
- Statistics stay in f32: what a sum or a maximum, an exponential, a logarithm, a root or a power gives, and what is
  computed with it, until a product reads that or a residual is added to it. Thus norms, softmax and losses are in f32.
- So does what a maximum is taken of, which are the scores of a softmax.
- So does what a sine, a rounding or an integer is computed from: positions, frequencies, coordinates, indices; and what
  is computed with numbers that bf16 does not reach, as masks are.
- So do vectors: biases, scales and shifts of norms, running statistics. And inputs and state, but for the copies that
  products read: their dtypes are the program's interface.
- So does what reads a product of which more precision than the default was asked.

With `everything` false, only what products read is stored in bf16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.lowerings.attention import ATTENTION
from tpuc.passes.composites import is_composite
from tpuc.passes.rewrite import Tensor
from tpuc.passes.tensors import (
    CHLO_ELEMENTWISE,
    ELEMENTWISE,
    MOVES,
    PRODUCTS,
    both_ways,
    constant_elements,
    is_static,
    precisions,
    producer,
    reduced_by,
    splat_number,
)

#: What moves elements, also to places that are known late.
_MOVES = (*MOVES, stablehlo.DynamicSliceOp, stablehlo.DynamicUpdateSliceOp, stablehlo.GatherOp)
#: What makes statistics.
_STATISTICS = (
    stablehlo.CbrtOp,
    stablehlo.ExpOp,
    stablehlo.Expm1Op,
    stablehlo.LogOp,
    stablehlo.Log1pOp,
    stablehlo.PowOp,
    stablehlo.ReduceOp,
    stablehlo.RsqrtOp,
    stablehlo.SqrtOp,
)
#: What small errors in the operand turn into large ones.
_STEEP = (
    stablehlo.CeilOp,
    stablehlo.CosineOp,
    stablehlo.FloorOp,
    stablehlo.RoundNearestEvenOp,
    stablehlo.RoundOp,
    stablehlo.SineOp,
    stablehlo.TanOp,
)
_ALL_ELEMENTWISE = (*ELEMENTWISE, *CHLO_ELEMENTWISE)
_BF16_MAX = float.fromhex("0x1.fep127")


class Bf16Storage:
    """What of one block is stored in bf16.

    Attributes:
        rounded: The values that are.
        narrow_ops: The results of the moves that are themselves done in bf16.
    """

    def __init__(self, block: ir.Block, weights: set[Tensor], constants: set[Tensor], *, everything: bool) -> None:
        """Decides.

        Args:
            block: The block.
            weights: Arguments that hold weights, and what is computed from weights alone.
            constants: What is computed from nothing.
            everything: Whether what no product reads is stored in bf16 as well.
        """
        self._block = block
        self._ops: list[ir.OpView] = [op for op in block.operations if len(op.results)]
        self._weights = weights
        self._constants = constants
        self._everything = everything
        self._sensitive = self._find_sensitive()
        self._exact = self._find_exact()
        self.rounded: set[Tensor] = set()
        self.narrow_ops: set[Tensor] = set()
        self._summed: set[Tensor] = set()
        self._go_back()
        self._go_forward()

    def reads_bf16(self, use: ir.OpOperand) -> bool:
        """Says whether an operand of an operation of this block takes bf16."""
        op = use.owner
        if op.operation.block != self._block:
            return False
        return self.is_product(op, use.operand_number) or (len(op.results) > 0 and op.results[0] in self.narrow_ops)

    def is_product(self, op: ir.OpView, operand: int) -> bool:
        """Says whether an operation is a product that takes this operand in bf16."""
        if is_attention(op):
            return operand < 3 and is_f32(op.operands[0])
        return (
            isinstance(op, PRODUCTS)
            and set(precisions(op)) <= {"DEFAULT"}
            and all(map(is_f32, (*op.operands, *op.results)))
            and not any(value in self._exact for value in op.results)
        )

    def _find_sensitive(self) -> set[Tensor]:
        """Statistics, what is computed with them, and with numbers that bf16 does not reach."""
        found: set[Tensor] = set()
        for op in self._ops:
            result = op.results[0]
            if result in self._weights:
                continue
            if isinstance(op, stablehlo.ConstantOp):
                if not _fits(result):
                    found.add(result)
            elif isinstance(op, _STATISTICS) and not self._is_constant(result):
                found.update(op.results)
            elif isinstance(op, stablehlo.AddOp) and not self._is_constant(result):
                if any(self._decides(operand, other, found) for operand, other in both_ways(op)):
                    found.add(result)
            elif _is_computing(op) and any(operand in found for operand in op.operands):
                found.add(result)
        return found

    def _decides(self, operand: Tensor, other: Tensor, sensitive: set[Tensor]) -> bool:
        """Whether a term is a statistic that its sum is one, too: not where a residual is added to it."""
        is_residual = other not in sensitive and not self._is_resident(other)
        return operand in sensitive and (not is_residual or producer(operand, stablehlo.BroadcastInDimOp) is not None)

    def _find_exact(self) -> set[Tensor]:
        """What integers, roundings and sines are computed from."""
        found: set[Tensor] = set()
        for op in reversed(self._ops):
            is_asked = any(result in found for result in op.results)
            passes_on = _is_computing(op) or _has_one_term(op)
            if isinstance(op, _STEEP) or _makes_integers(op) or (is_asked and passes_on):
                found.update(filter(is_f32, op.operands))
            elif isinstance(op, stablehlo.ConstantOp) and not _fits(op.results[0]):
                found.add(op.results[0])
        return found

    def _is_constant(self, value: Tensor) -> bool:
        return value in self._constants

    def _is_resident(self, value: Tensor) -> bool:
        """Whether a value is there before the program runs."""
        return value in self._weights or value in self._constants or isinstance(value.owner, ir.Block)

    def _go_back(self) -> None:
        """Goes from what reads to what is read."""
        for op in reversed(self._ops):
            for result in filter(is_f32, op.results):
                if self._is_summed(result):
                    self._summed.add(result)
                if self._is_rounded(result):
                    self.rounded.add(result)
            result = op.results[0]
            if not _is_move(op) or result not in self.rounded:
                continue
            is_shared = self._everything or all(map(self.reads_bf16, result.uses))
            if is_shared and not any(operand in self._exact for operand in op.operands):
                self.narrow_ops.add(result)
        self.rounded.update(each for each in self._block.arguments if is_f32(each) and self._is_rounded(each))

    def _is_rounded(self, value: Tensor) -> bool:
        if value in self._exact:
            return False
        if any(map(self.reads_bf16, value.uses)):
            return True
        if not self._everything or not _is_matrix(value):
            return False
        if value in self._weights:
            return any(not self._is_of_weights(use.owner) for use in value.uses)
        if self._is_resident(value) or value in self._sensitive:
            return False
        readers = [use.owner for use in value.uses]
        return len(readers) > 1 and value in self._summed and not any(map(_takes_maximum, readers))

    def _is_summed(self, value: Tensor) -> bool:
        """Whether a sum is taken of what is computed from a value: XLA reads it from memory twice, for it and after."""
        readers = [use.owner for use in value.uses]
        return any(isinstance(reader, stablehlo.ReduceOp) or self._leads_to_sum(reader) for reader in readers)

    def _leads_to_sum(self, op: ir.OpView) -> bool:
        return _is_computing(op) and op.results[0] in self._summed and op.results[0] not in self.rounded

    def _is_of_weights(self, op: ir.OpView) -> bool:
        return len(op.results) == 1 and op.results[0] in self._weights

    def _go_forward(self) -> None:
        """Lets what is stored in bf16 be moved as it is."""
        for op in self._ops:
            result = op.results[0]
            operands = [operand for operand in op.operands if is_f32(operand)]
            if _is_move(op) and operands and all(map(self._is_stored, operands)):
                self.narrow_ops.add(result)
                self.rounded.add(result)

    def _is_stored(self, value: Tensor) -> bool:
        if self._everything:
            return value in self.rounded or (producer(value, stablehlo.ConstantOp) is not None and _fits(value))
        return value in self.rounded and value in self._weights


def is_attention(op: ir.OpView | ir.Operation) -> bool:
    """Says whether an operation is a composite of attention."""
    return is_composite(op, ATTENTION)


def is_f32(value: ir.Value[Any]) -> bool:
    """Says whether a value is a tensor of f32 whose shape is known."""
    return is_static(value) and isinstance(value.type.element_type, ir.F32Type)


def _is_matrix(value: Tensor) -> bool:
    """Whether a value has more than one dimension to speak of, and is no copied vector."""
    while (copied := producer(value, stablehlo.BroadcastInDimOp)) is not None:
        value = copied.operand
    return sum(size != 1 for size in value.type.shape) > 1


def _is_move(op: ir.OpView) -> bool:
    if isinstance(op, stablehlo.ReduceWindowOp):
        return is_f32(op.results[0]) and reduced_by(op) is stablehlo.MaxOp
    return isinstance(op, _MOVES) and is_f32(op.results[0])


def _is_computing(op: ir.OpView) -> bool:
    """Whether each element of the result hangs on few of the operands'."""
    return isinstance(op, _ALL_ELEMENTWISE) or _is_move(op)


def _has_one_term(op: ir.OpView) -> bool:
    """Whether a product sums over nothing: positions times frequencies are often written so."""
    if not isinstance(op, stablehlo.DotGeneralOp):
        return False
    numbers = stablehlo.DotDimensionNumbers(op.dot_dimension_numbers)
    return all(op.lhs.type.shape[dimension] == 1 for dimension in numbers.lhs_contracting_dimensions)


def _makes_integers(op: ir.OpView) -> bool:
    """Whether this turns floats into numbers without a fraction; into a truth value is no matter of precision."""
    if not isinstance(op, stablehlo.ConvertOp):
        return False
    element_type = op.result.type.element_type
    return isinstance(element_type, ir.IntegerType) and element_type.width > 1


def _takes_maximum(op: ir.OpView) -> bool:
    return isinstance(op, stablehlo.ReduceOp) and reduced_by(op) is stablehlo.MaxOp


def _fits(constant: Tensor) -> bool:
    """Whether the finite numbers of a constant are finite in bf16."""
    elements = constant_elements(constant)
    if elements is None or not is_f32(constant):
        return True
    number = splat_number(constant)
    numbers = np.array(elements if number is None else number, np.float64)
    return bool(np.all(np.abs(numbers[np.isfinite(numbers)]) <= _BF16_MAX))
