"""The values of tensors that depend on no argument of the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from tpuc import mlir
from tpuc.passes.rewrite import Tensor, defining_op, is_pure
from tpuc.runtime.device import open_device
from tpuc.runtime.dtypes import DTYPES, Array
from tpuc.runtime.spec import TensorSpec

#: The element types that masks and what they are made of have, as the runtime names them.
_DTYPE_NAMES: Mapping[str, str] = {"i1": "bool", "f32": "f32", "bf16": "bf16"}


def static_value(value: Tensor, *, max_operations: int = 256) -> Array | None:
    """Evaluates a tensor on the CPU.

    Args:
        value: A tensor of bool, f32 or bf16.
        max_operations: The most operations that may lead to it.

    Returns:
        Its elements, or None if it depends on an argument or on something that only a device knows, or has another
        element type.
    """
    dtype = _DTYPE_NAMES.get(str(value.type.element_type))
    operations = _operations(value, max_operations)
    if dtype is None or operations is None:
        return None
    with value.context, ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get([], [value.type]))
        with ir.InsertionPoint(ir.Block.create_at_start(main.regions[0], [])):
            func.ReturnOp([_clone(value, operations)])
    device = open_device("cpu")
    spec = TensorSpec(name="", dtype=dtype, dims=tuple(value.type.shape))
    (result,) = device.compile(mlir.to_bytecode(module), [spec]).run([])
    return np.asarray(result.to_numpy(), DTYPES[dtype].numpy)


def _operations(value: Tensor, most: int) -> list[ir.OpView] | None:
    """The operations that lead to a value, each before its readers, or None if an argument does."""
    ordered: dict[ir.Value[Any], ir.OpView] = {}  # by the first result, which hashes by identity
    todo = [(value, False)]
    while todo:
        current, is_ready = todo.pop()
        op = defining_op(current)
        if op is None or not is_pure(op) or len(ordered) > most:
            return None
        if op.results[0] in ordered:
            continue
        if is_ready:
            ordered[op.results[0]] = op
            continue
        todo.append((current, True))
        todo += [(operand, False) for operand in op.operands]
    return list(ordered.values())


def _clone(value: Tensor, operations: list[ir.OpView]) -> ir.Value[Any]:
    copies: dict[ir.Value[Any], ir.Value[Any]] = {}
    for op in operations:
        copy = op.operation.clone()
        for index, operand in enumerate(op.operands):
            copy.operands[index] = copies[operand]
        copies.update(zip(op.results, copy.results, strict=True))
    return copies[value]
