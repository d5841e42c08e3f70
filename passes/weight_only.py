"""What of a program depends on weights alone, and taking such computations out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from tpuc.passes.main import Function, Main
from tpuc.passes.rewrite import Tensor, captured_values, defining_op, is_pure, op_name

#: How far back `is_weight_only` looks. What is computed from weights in models is far shorter.
_OPERATIONS = 100


class Weights:
    """The arguments of `@main` that hold weights, and what is computed from them alone."""

    def __init__(self, main: Function) -> None:
        """Reads the arguments as they are now."""
        self._arguments = set(main.arguments_of("weight", "prepared"))

    def is_weight_only(self, value: ir.Value[Any]) -> bool:
        """Says whether a value depends on at least one weight, and on nothing but weights and constants."""
        found, todo, seen = False, [value], set[ir.Value[Any]]()
        while todo:
            each = todo.pop()
            if each in seen:
                continue
            seen.add(each)
            op = defining_op(each)
            if op is None:
                if each not in self._arguments:
                    return False
                found = True
            elif not can_prepare(op) or len(seen) > _OPERATIONS:
                return False
            else:
                todo.extend(op.operands)
        return found


def weights_and_constants(main: Main) -> tuple[set[Tensor], set[Tensor]]:
    """Sorts what a program computes before it looks at any input.

    Returns:
        The results of operations in `@main` that depend on weights, and on constants besides; and those of operations
        that depend on nothing.
    """
    weights: set[ir.Value[Any]] = set(main.arguments_of("weight"))
    constants: set[ir.Value[Any]] = set()
    for op in main.block.operations:
        if not can_prepare(op):
            continue
        operands = list(op.operands)
        if not all(operand in weights or operand in constants for operand in operands):
            continue
        (constants if all(operand in constants for operand in operands) else weights).add(op.results[0])
    return weights - set(main.block.arguments), constants


def can_prepare(op: ir.OpView) -> bool:
    """Says whether an operation may run before the program: it has one result and no effect, and captures nothing."""
    return len(op.results) == 1 and is_pure(op) and op_name(op) != "stablehlo.composite" and not captured_values(op)


def slice_back(values: Sequence[Tensor], is_leaf: Callable[[Tensor], bool]) -> tuple[list[ir.OpView], list[Tensor]]:
    """Finds what values are computed from.

    Args:
        values: The values.
        is_leaf: Where to stop.

    Returns:
        The operations, each after those that it reads, and the leaves in the order in which they are met.
    """
    ops: dict[Tensor, ir.OpView] = {}  # by their first results, in order
    leaves: dict[Tensor, None] = {}
    todo: list[tuple[Tensor, bool]] = [(value, False) for value in reversed(values)]
    while todo:
        value, are_operands_done = todo.pop()
        if value in leaves:
            continue
        if is_leaf(value):
            leaves[value] = None
            continue
        op = defining_op(value)
        assert op is not None, "an argument is a leaf"
        if op.results[0] in ops:
            continue
        if are_operands_done:
            ops[op.results[0]] = op
        else:
            todo.append((value, True))
            todo.extend((operand, False) for operand in reversed(list(op.operands)))
    return list(ops.values()), list(leaves)


def clone_into(
    function: Function, ops: Iterable[ir.OpView], leaves: Sequence[Tensor], results: Sequence[Tensor]
) -> dict[Tensor, Tensor]:
    """Gives an empty function copies of operations, with its arguments for the leaves, and lets it return results.

    Returns:
        What stands for each value in the function.
    """
    new: dict[Tensor, Tensor] = dict(zip(leaves, function.block.arguments, strict=True))
    with ir.InsertionPoint(function.block):
        for op in ops:
            copy = op.operation.clone()
            for number, operand in enumerate(op.operands):
                copy.operands[number] = new[operand]
            new.update(zip(op.results, copy.results, strict=True))
        with function.op.location:
            func.ReturnOp([new[result] for result in results])
    return new
