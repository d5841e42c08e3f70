"""Evaluates small modules, to see that a pass leaves what they compute as it was."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc import mlir
from tpuc.passes.rewrite import nested_ops, op_name
from tpuc.runtime.device import Device, open_device
from tpuc.runtime.dtypes import Array
from tpuc.runtime.spec import TensorSpec

#: Floats that a rule gets wrong if it gets any wrong.
SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.5, float("inf"), float("-inf"), float("nan"))
#: StableHLO's reference interpreter takes seconds from about so many elements on.
_INTERPRETED_ELEMENTS = 50_000
#: Operations that StableHLO's reference interpreter ends the process over.
_NOT_INTERPRETED = ("stablehlo.custom_call", "stablehlo.dot", "stablehlo.rng")


def make_inputs(module: ir.Module, seed: int, *, special: bool = False) -> list[Array]:
    """Makes random arguments for `@main`: floats, normally distributed or special ones, small integers, bools."""
    random = np.random.default_rng(seed)
    arrays = []
    for spec in _specs(function(module, "main").regions[0].blocks[0].arguments):
        dtype, shape = spec.type.numpy, spec.shape
        array: Array
        if spec.dtype == "bool":
            array = random.integers(0, 2, shape)
        elif spec.dtype.startswith("u"):
            array = random.integers(0, 8, shape)
        elif spec.dtype.startswith("i"):
            array = random.integers(-4, 4, shape)
        else:
            array = random.choice(SPECIAL, shape) if special else random.standard_normal(shape)
        arrays.append(np.asarray(array).astype(dtype))
    return arrays


def cut_and_spoil(inputs: Sequence[Array], module: ir.Module) -> list[Array]:
    """Returns what `@reference` takes of the inputs of `@main`, which are longer, and spoils the rest of those."""
    cut = []
    for spec, array in zip(_specs(function(module, "reference").regions[0].blocks[0].arguments), inputs, strict=True):
        inside = tuple(map(slice, spec.shape))
        kept = array[inside].copy()
        array[...] = True if array.dtype == bool else np.nan if array.dtype.kind == "f" else 99
        array[inside] = kept
        cut.append(kept)
    return cut


def evaluate(module: ir.Module, inputs: Sequence[Array], name: str = "main") -> list[Array]:
    """Calls a function of a module: by StableHLO's reference interpreter if it can, else by XLA:CPU."""
    main = _alone(module, name)
    is_small = sum(each.size for each in inputs) < _INTERPRETED_ELEMENTS
    if is_small and all(_is_interpreted(op) for op in nested_ops(main.operation)):
        return _interpret(main, inputs)
    results = _specs(function(main, "main").regions[0].blocks[0].operations[-1].operands)
    executable = _cpu().compile(mlir.to_text(main).encode(), results)
    return [buffer.to_numpy() for buffer in executable.run([_cpu().put(np.ascontiguousarray(each)) for each in inputs])]


def function(module: ir.Module, name: str) -> ir.OpView:
    """Returns a function of a module."""
    return next(op for op in module.body.operations if ir.StringAttr(op.attributes["sym_name"]).value == name)


def has_function(module: ir.Module, name: str) -> bool:
    """Says whether a module has such a function."""
    return any(ir.StringAttr(op.attributes["sym_name"]).value == name for op in module.body.operations)


def _alone(module: ir.Module, name: str) -> ir.Module:
    """Returns a module with one function of another, as its `@main`, and the private functions that it may name."""
    with module.context, ir.Location.unknown():
        alone = ir.Module.create()
        with ir.InsertionPoint(alone.body):
            copy = function(module, name).operation.clone()
            for other in module.body.operations:
                if "sym_visibility" in other.attributes and "private" in str(other.attributes["sym_visibility"]):
                    other.operation.clone()
        copy.attributes["sym_name"] = ir.StringAttr.get("main")
        copy.attributes["sym_visibility"] = ir.StringAttr.get("public")
        return alone


def _is_interpreted(op: ir.OpView | ir.Operation) -> bool:
    if not op_name(op).startswith(("builtin.", "func.", "stablehlo.")) or op_name(op) in _NOT_INTERPRETED:
        return False
    # The bindings cannot read results of these types.
    return not any(name in str(result.type) for result in op.results for name in ("bf16", "complex"))


def _interpret(module: ir.Module, inputs: Sequence[Array]) -> list[Array]:
    types = [argument.type for argument in function(module, "main").regions[0].blocks[0].arguments]
    with module.context:
        dense: Any = [np.ascontiguousarray(array) for array in inputs]
        arguments = [ir.DenseElementsAttr.get(array, type=type_) for array, type_ in zip(dense, types, strict=True)]
        return [np.array(result) for result in stablehlo.eval_module(module, arguments)]


@cache
def _cpu() -> Device:
    return open_device("cpu")


def _specs(values: Sequence[ir.Value[ir.RankedTensorType]]) -> list[TensorSpec]:
    return [mlir.spec_of(value.type, "") for value in values]
