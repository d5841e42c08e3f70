"""merge-products: parallel products of one input become one, with their weights side by side, where that pays.

The queries, keys and values of attention, or the gate and the other half of an MLP, are products of one input. As one
product they fetch it once, wait once for a weight, and fill tiles that each alone might not fill.

Before:

    %0 = stablehlo.dot_general %x, %gate, contracting_dims = [1] x [1]
           : (tensor<8x576xf32>, tensor<1536x576xf32>) -> tensor<8x1536xf32>
    %1 = stablehlo.dot_general %x, %up, contracting_dims = [1] x [1]
           : (tensor<8x576xf32>, tensor<1536x576xf32>) -> tensor<8x1536xf32>
    %2 = stablehlo.logistic %0 : tensor<8x1536xf32>
    %3 = stablehlo.multiply %2, %1 : tensor<8x1536xf32>

After:

    %w = stablehlo.concatenate %gate, %up, dim = 0
           : (tensor<1536x576xf32>, tensor<1536x576xf32>) -> tensor<3072x576xf32>
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1]
           : (tensor<8x576xf32>, tensor<3072x576xf32>) -> tensor<8x3072xf32>
    %0 = stablehlo.slice %y [0:8, 0:1536] : (tensor<8x3072xf32>) -> tensor<8x1536xf32>
    %1 = stablehlo.slice %y [0:8, 1536:3072] : (tensor<8x3072xf32>) -> tensor<8x1536xf32>
    %2 = stablehlo.logistic %0 : tensor<8x1536xf32>
    %3 = stablehlo.multiply %2, %1 : tensor<8x1536xf32>

The weights, and the biases where each product has one, are joined before the program runs; int8 weights as int8.

The rule: the products' results meet before the next products with weights, and each product waits longer for memory
than for the matrix unit. Then the compiler is asked what they cost together with all that reads them, those next
products included, as they are and merged: the cost of a merge is in the slices, which keep the compiler from computing
what reads a product as a part of it. Of layers that are alike one is asked about. Alone it waits for its weights as it
never does in a program, which fetches them while something else is computed, and so a yes is only believed when the
layers one after the other, as many as compile in seconds, cost less merged, too.

Measured, in estimated cycles of whole programs, with all groups merged against none: four layers of a LLaMA of width
576 (1536 in the MLP, 9 heads, 3 of keys and values), 128 tokens, on v5e: in f32 209,377 become 207,145 where gates are
merged and 224,786 where queries, keys and values are; in bf16 251,082 become 254,694 and 253,442; in bf16 at 16 tokens
203,564 become 201,908 and 229,796. No model of models/ that was measured gains: MiniLM, f32, 2 x 128 tokens, on v5e,
271,146 and 271,524; BERT-base, f32, 128 tokens, on v5e, 509,273 and 601,113; two layers of LLaMA-7B, bf16, 2048 tokens,
on v5p, 10,691,614 and 11,371,473 (there the matrix unit is what is waited for, and the compiler is not asked).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc.passes.base import Pass, PassContext
from tpuc.passes.dataflow import is_free
from tpuc.passes.main import Main
from tpuc.passes.rewrite import Tensor, attributes_of, captured_values, defining_op, erase_dead, is_pure, op_name
from tpuc.passes.tensors import (
    ELEMENTWISE,
    PRODUCTS,
    OpT,
    broadcast,
    bytes_of,
    producer,
    rebuild,
    splat_constant,
    splat_element,
    tensor_type,
)
from tpuc.passes.trial import Trials
from tpuc.passes.weight_only import Weights, slice_back
from tpuc.targets import Chip

#: A trial compiles about so many operations at the most, which takes seconds; those of a model's layer are some dozens.
_MOST_OPERATIONS = 800


@dataclass(frozen=True, kw_only=True)
class MergeProducts(Pass):
    """Computes parallel products of one input as one, where the compiler says that it pays."""

    name: ClassVar[str] = "merge-products"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place."""
        chip = context.target.chip
        if context.estimator is None or chip is None:
            return {}
        trials = Trials(module, context.estimator)
        main = Main(module)
        alike: dict[Hashable, list[_Group]] = defaultdict(list)
        for group in _find_groups(main, lambda product: product.waits_for_memory(chip)):
            alike[group.likeness].append(group)
        merged = 0
        for groups in alike.values():
            if all(
                trials.pays_with_copies(_region(tried, main), partial(_merge_copies, tried))
                for tried in _tried(groups, main)
            ):
                for group in groups:
                    _merge(group.products)
                    merged += len(group.products)
        erase_dead(main.block)
        return {"merged": merged} if merged else {}


@dataclass(frozen=True, kw_only=True)
class _Product:
    """A product of an activation and a weight.

    Attributes:
        op: The product, whose second operand is the weight.
        columns: The weight's first dimension that is not summed over.
        dimension: The dimension of the result that it becomes.
        bias: What is added along that dimension, [columns], or None.
        sum: The product with the bias added; the product where there is none.
    """

    op: stablehlo.DotGeneralOp
    columns: int
    dimension: int
    bias: Tensor | None
    sum: Tensor

    @classmethod
    def of(cls, op: ir.OpView, weights: Weights) -> _Product | None:
        """Reads an operation; None if it is no product of an activation and a weight that only products read."""
        if not isinstance(op, stablehlo.DotGeneralOp):
            return None
        numbers = stablehlo.DotDimensionNumbers(op.dot_dimension_numbers)
        free = [each for each in range(op.rhs.type.rank) if each not in numbers.rhs_contracting_dimensions]
        if numbers.rhs_batching_dimensions or not free:
            return None
        if not weights.is_weight_only(op.rhs) or weights.is_weight_only(op.result):
            return None
        if not all(isinstance(use.owner, stablehlo.DotGeneralOp) and use.operand_number == 1 for use in op.rhs.uses):
            return None  # There would be two of the weight.
        dimension = op.lhs.type.rank - len(numbers.lhs_contracting_dimensions)
        bias, sum_ = _biased(op.result, dimension, weights)
        return cls(op=op, columns=free[0], dimension=dimension, bias=bias, sum=sum_)

    @property
    def kind(self) -> Hashable:
        """What must be equal of products that become one."""
        others = (size for number, size in enumerate(self.op.rhs.type.shape) if number != self.columns)
        types = (self.op.rhs.type.element_type, self.op.result.type.element_type)
        return self.op.lhs, types, tuple(others), attributes_of(self.op)

    @property
    def size(self) -> int:
        """How many columns it has."""
        return int(self.op.rhs.type.shape[self.columns])

    def waits_for_memory(self, chip: Chip) -> bool:
        """Whether a chip fetches the operands and writes the result more slowly than it multiplies."""
        tensors = (self.op.lhs, self.op.rhs, self.op.result)
        numbers = stablehlo.DotDimensionNumbers(self.op.dot_dimension_numbers)
        summed = math.prod(self.op.lhs.type.shape[each] for each in numbers.lhs_contracting_dimensions)
        flops = 2 * math.prod(self.op.result.type.shape) * summed
        bytes_ = sum(map(bytes_of, tensors))
        return bool(bytes_ / chip.hbm_bytes_per_second > flops / chip.peak_flops_per_second["bf16"])


def _biased(product: Tensor, dimension: int, weights: Weights) -> tuple[Tensor | None, Tensor]:
    """The bias that is added to a product, and the sum; None and the product if there is none."""
    readers = [use.owner for use in product.uses]
    if len(readers) == 1 and isinstance(readers[0], stablehlo.AddOp):
        added = readers[0]
        copied = producer(added.rhs if added.lhs == product else added.lhs, stablehlo.BroadcastInDimOp)
        if copied is not None and list(copied.broadcast_dimensions) == [dimension]:
            bias = copied.operand
            if bias.type.shape == [product.type.shape[dimension]] and weights.is_weight_only(bias):
                return bias, added.result
    return None, product


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Products of one kind, whose results meet before the next products with weights.

    Attributes:
        products: The products, in their order.
        reached: What is computed from their results, up to and with those next products or what a trial cannot hold,
            such as a kernel; by its first results.
    """

    products: Sequence[_Product]
    reached: Mapping[Tensor, ir.OpView]

    @property
    def ops(self) -> list[ir.OpView]:
        """The products' operations."""
        return [product.op for product in self.products]

    @property
    def likeness(self) -> Hashable:
        """What is equal of groups for which one answer is enough."""
        products = ((str(each.op.lhs.type), str(each.op.rhs.type), each.bias is None) for each in self.products)
        reached = ((op_name(op), *(str(result.type) for result in op.results)) for op in self.reached.values())
        return tuple(products), tuple(sorted(reached))


def _tried(groups: Sequence[_Group], main: Main) -> Iterator[Sequence[_Group]]:
    """What trials are made of: the first of some groups, which is soon compiled, then as many as one takes."""
    yield groups[:1]
    for count in range(len(groups), 1, -1):
        if len(_span(groups[:count], main)) <= _MOST_OPERATIONS:
            yield groups[:count]
            return


def _span(groups: Sequence[_Group], main: Main) -> list[ir.OpView]:
    """The operations of some groups; of several groups also those between them."""
    own = {op.results[0] for group in groups for op in (*group.ops, *group.reached.values())}
    ops = [op for op in main.block.operations if len(op.results)]
    if len(groups) == 1:
        return [op for op in ops if op.results[0] in own]
    places = [number for number, op in enumerate(ops) if op.results[0] in own]
    return ops[places[0] : places[-1] + 1]


def _region(groups: Sequence[_Group], main: Main) -> list[ir.OpView]:
    """What a trial computes: the products, what makes their weights, what reads them, and what is between groups."""
    weights = [product.op.rhs for group in groups for product in group.products]
    makers, _ = slice_back(weights, _is_argument)
    found = {op.results[0]: op for op in (*makers, *_span(groups, main)) if _fits_trial(op)}
    todo = list(found.values())
    while todo:  # What costs nothing where it is read would have to be fetched if it came from outside.
        for operand in todo.pop().operands:
            op = defining_op(operand)
            if op is not None and operand not in found and is_free(op):
                found[operand] = op
                todo.append(op)
    return list(found.values())


def _find_groups(main: Main, is_candidate: Callable[[_Product], bool]) -> list[_Group]:
    """Finds the products of a program that could become one."""
    weights = Weights(main)
    of_kind: dict[Hashable, list[_Product]] = defaultdict(list)
    for product in filter(is_candidate, _products(main, weights)):
        of_kind[product.kind].append(product)
    several = (products for products in of_kind.values() if len(products) > 1)
    return [group for products in several for group in _meeting(products, main, weights)]


def _products(main: Main, weights: Weights) -> Iterator[_Product]:
    for op in main.block.operations:
        product = _Product.of(op, weights)
        if product is not None:
            yield product


def _meeting(products: Sequence[_Product], main: Main, weights: Weights) -> list[_Group]:
    """Sorts products by whether their results meet; those that meet nothing are left out."""
    groups: list[_Group] = []
    for product in products:
        reached = _reached(product, main, weights)
        if reached is None:
            continue
        met = [group for group in groups if group.reached.keys() & reached.keys()]
        joined = _Group(
            products=[*(each for group in met for each in group.products), product],
            reached={key: op for each in (*(group.reached for group in met), reached) for key, op in each.items()},
        )
        groups = [*(group for group in groups if group not in met), joined]
    return [group for group in groups if len(group.products) > 1]


def _reached(product: _Product, main: Main, weights: Weights) -> dict[Tensor, ir.OpView] | None:
    """What is computed from a product, as `_Group.reached` has it; None if that is too much to ask about."""
    found: dict[Tensor, ir.OpView] = {}
    todo: list[Tensor] = [product.op.result]
    while todo:
        for use in todo.pop().uses:
            op = use.owner.operation.opview
            if op.operation.block != main.block or not len(op.results) or op.results[0] in found:
                continue
            found[op.results[0]] = op
            if len(found) > _MOST_OPERATIONS:
                return None
            is_next = isinstance(op, PRODUCTS) and any(map(weights.is_weight_only, op.operands))
            if _fits_trial(op) and not is_next:
                todo.extend(op.results)
    return found


def _fits_trial(op: ir.OpView) -> bool:
    """Whether an operation can be copied into a program of its own, and has an estimate there."""
    return is_pure(op) and not captured_values(op) and op_name(op) != "stablehlo.composite"


def _is_argument(value: Tensor) -> bool:
    return isinstance(value.owner, ir.Block)


def _merge_copies(groups: Sequence[_Group], program: ir.Module, copies: Mapping[Tensor, Tensor]) -> None:
    """Merges the copies of groups in a trial's program."""
    main = Main(program)
    product_of: dict[Tensor, _Product] = {product.op.result: product for product in _products(main, Weights(main))}
    for group in groups:
        _merge([product_of[copies[op.results[0]]] for op in group.ops])
    erase_dead(main.block)


def _merge(products: Sequence[_Product]) -> None:
    """Replaces products by one, where the first of them is."""
    first, dimension = products[0], products[0].dimension
    biases = [product.bias for product in products if product.bias is not None]
    makers, _ = slice_back([*(product.op.rhs for product in products), *biases], _is_argument)
    for op in makers:
        if first.op.operation.is_before_in_block(op.operation):
            op.operation.move_before(first.op.operation)
    shape = list(first.op.result.type.shape)
    shape[dimension] = sum(product.size for product in products)
    with first.op.location, ir.InsertionPoint(first.op):
        weight = _Joiner().join([product.op.rhs for product in products], first.columns)
        value = rebuild(first.op, [first.op.lhs, weight], tensor_type(shape, first.op.result.type.element_type))
        results: list[Tensor] = [product.op.result for product in products]
        if len(biases) == len(products):
            value = stablehlo.add(value, broadcast(_Joiner().join(biases, 0), shape, [dimension]))
            results = [product.sum for product in products]
        start = 0
        for product, result in zip(products, results, strict=True):
            result.replace_all_uses_with(_part(value, dimension, start, product.size))
            start += product.size


def _part(value: Tensor, dimension: int, start: int, size: int) -> Tensor:
    starts, ends = [0] * value.type.rank, list(value.type.shape)
    starts[dimension], ends[dimension] = start, start + size
    return stablehlo.slice(value, starts, ends, [1] * value.type.rank)


class _Joiner:
    """Builds concatenations of values that are computed alike as one computation of concatenated operands.

    So that an int8 weight, which becomes floats in the program, can be joined before it.
    """

    def __init__(self) -> None:
        self._joined: dict[tuple[tuple[Tensor, ...], int], Tensor] = {}

    def join(self, values: Sequence[Tensor], dimension: int) -> Tensor:
        """Builds the concatenation of values along a dimension; they are alike but for its size."""
        key = (tuple(values), dimension)
        if key not in self._joined:
            self._joined[key] = self._build(values, dimension)
        return self._joined[key]

    def _build(self, values: Sequence[Tensor], dimension: int) -> Tensor:
        shape = list(values[0].type.shape)
        shape[dimension] = sum(value.type.shape[dimension] for value in values)
        for rule in (self._of_splats, self._of_elementwise, self._of_copies):
            joined = rule(values, shape, dimension)
            if joined is not None:
                return joined
        return stablehlo.concatenate(list(values), dimension)

    def _of_splats(self, values: Sequence[Tensor], shape: list[int], dimension: int) -> Tensor | None:
        elements = [element for element in map(splat_element, values) if element is not None]
        if len(elements) < len(values) or len(set(elements)) > 1:
            return None
        return splat_constant(elements[0], tensor_type(shape, values[0].type.element_type))

    def _of_elementwise(self, values: Sequence[Tensor], shape: list[int], dimension: int) -> Tensor | None:
        ops = _alike(values, ELEMENTWISE)
        if not ops or any(operand.type.shape != op.results[0].type.shape for op in ops for operand in op.operands):
            return None
        operands = [self.join(each, dimension) for each in zip(*(op.operands for op in ops), strict=True)]
        return rebuild(ops[0], operands, tensor_type(shape, values[0].type.element_type))

    def _of_copies(self, values: Sequence[Tensor], shape: list[int], dimension: int) -> Tensor | None:
        ops = _alike(values, (stablehlo.BroadcastInDimOp,))
        if not ops:
            return None
        sources = [op.operand for op in ops]
        places = list(ops[0].broadcast_dimensions)
        if dimension not in places:
            return broadcast(sources[0], shape, places) if len(set(sources)) == 1 else None
        place = places.index(dimension)
        if any(
            source.type.shape[place] != value.type.shape[dimension]
            for source, value in zip(sources, values, strict=True)
        ):
            return None
        return broadcast(self.join(sources, place), shape, places)


def _alike(values: Sequence[Tensor], kinds: tuple[type[OpT], ...]) -> list[OpT]:
    """The operations that give values, if they are of one of these classes and differ in sizes only; else none."""
    ops = [op for op in map(defining_op, values) if isinstance(op, kinds)]
    return ops if len(ops) == len(values) and len(set(map(_likeness, ops))) == 1 else []


def _likeness(op: ir.OpView) -> Hashable:
    return op_name(op), attributes_of(op), tuple(operand.type.element_type for operand in op.operands)
