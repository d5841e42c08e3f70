"""What the compiler must not compute again and again while it multiplies, in layers that are the body of a loop.

The compiler computes elementwise operations together with the product that reads them. A product goes through its
operand once for each block of its columns, and computes them anew each time. Two such places are known to cost more
than they save:

- One product's result goes through a few elementwise operations into the next product: an activation, or a gate. Of
  layers one by one, the compiler makes these part of the first product, which computes them once; of layers in a loop,
  of the second. Where slices of a product are combined, they cannot be part of it, and the second is the better place.
- A norm's result goes into products that have many more columns than it has itself: it is normalized many times over.

Measured on v5p, in estimated cycles of a loop: ten layers of SDXL's transformers, 4 x 1024 tokens in bf16, cost
20,885,023 with the first rule for slices too and without the second, and 17,490,353 as it is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.layers import LayerOp, Layers, Row
from tpuc.passes.tensors import CHLO_ELEMENTWISE, ELEMENTWISE

#: What the compiler computes as a part of products.
_FUSED = (*ELEMENTWISE, *CHLO_ELEMENTWISE, stablehlo.BroadcastInDimOp, stablehlo.ReshapeOp)
#: Of these, what takes no time.
_FREE = (stablehlo.BroadcastInDimOp, stablehlo.ReshapeOp, stablehlo.ConvertOp)
#: For how many columns of products each column of their operand is computed once, at least. The products of queries,
#: keys and values have three, and are faster left alone; those of SDXL's and LLaMA's feed-forward layers five and more.
_LEAST_COLUMNS = 4


def find_kept_apart(layers: Layers, yielded: Sequence[Row]) -> set[Row]:
    """Returns the values of a layer that are to be computed before the products that read them.

    Args:
        layers: The layers.
        yielded: What goes from a layer to the next, or to others.
    """
    program = _Program(layers, yielded)
    read = {row for op in layers.own_ops if isinstance(op.ops[0], stablehlo.DotGeneralOp) for row in op.reads}
    return {row for row in read if program.joins_products(row) or program.is_read_again_and_again(row)}


class _Program:
    """Who makes and who reads the values of a layer."""

    def __init__(self, layers: Layers, yielded: Sequence[Row]) -> None:
        self._ops = layers.own_ops
        self._producers: Mapping[Row, LayerOp] = {row: op for op in layers.own_ops for row in op.results}
        self._readers: dict[Row, list[LayerOp]] = defaultdict(list)
        for op in layers.own_ops:
            for row in op.reads:
                self._readers[row].append(op)
        self._yielded = yielded

    def joins_products(self, row: Row) -> bool:
        """Whether elementwise operations lead from products to a value that one product reads, and to nothing else."""
        between: set[Row] = set()
        products: set[Row] = set()
        todo = [row]
        while todo:
            each = todo.pop()
            if self._is_product(each):
                products.add(each)
            elif self._is_fused(each) and each not in between:
                between.add(each)
                todo.extend(self._producers[each].reads)
        inner = (between | products) - {row}
        read = [result for each in inner for reader in self._readers[each] for result in reader.results]
        is_alone = between.issuperset(read) and (between | products).isdisjoint(self._yielded)
        return row in between and bool(products) and is_alone and len(self._readers[row]) == 1

    def is_read_again_and_again(self, row: Row) -> bool:
        """Whether operations that could be part of products compute a value for products of many columns alone."""
        products = [
            op
            for reader in self._readers[row]
            if isinstance(op := reader.ops[0], stablehlo.DotGeneralOp) and reader.reads[0] == row
        ]
        if row in self._yielded or len(products) < len(self._readers[row]):
            return False
        own = self._computed_for(row)
        sources = {read for each in own for read in self._producers[each].reads}
        if any(map(self._is_product, sources)) or all(isinstance(self._producers[each].ops[0], _FREE) for each in own):
            return False
        return sum(map(_columns, products)) >= _LEAST_COLUMNS * _contracted(products[0])

    def _computed_for(self, row: Row) -> set[Row]:
        """A value, and what is computed for nothing but it, as far as it could be part of a product."""
        found = {row} if self._is_fused(row) else set()
        for op in reversed(self._ops):
            for each in op.results:
                results = [result for reader in self._readers[each] for result in reader.results]
                if results and found.issuperset(results) and self._is_fused(each) and each not in self._yielded:
                    found.add(each)
        return found

    def _is_product(self, row: Row) -> bool:
        return row in self._producers and isinstance(self._producers[row].ops[0], stablehlo.DotGeneralOp)

    def _is_fused(self, row: Row) -> bool:
        return row in self._producers and isinstance(self._producers[row].ops[0], _FUSED)


def _columns(op: stablehlo.DotGeneralOp) -> int:
    """How many columns the second operand of a product has."""
    numbers = stablehlo.DotDimensionNumbers(op.dot_dimension_numbers)
    summed = {*numbers.rhs_batching_dimensions, *numbers.rhs_contracting_dimensions}
    return math.prod(size for dimension, size in enumerate(op.rhs.type.shape) if dimension not in summed)


def _contracted(op: stablehlo.DotGeneralOp) -> int:
    numbers = stablehlo.DotDimensionNumbers(op.dot_dimension_numbers)
    return math.prod(op.rhs.type.shape[dimension] for dimension in numbers.rhs_contracting_dimensions)
