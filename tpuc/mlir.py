"""MLIR through jaxlib's bindings: the one place that makes contexts, reads and writes modules.

Inside the compiler a program is a `jaxlib.mlir.ir.Module` of StableHLO, with CHLO where XLA has the operation
natively (erf, top_k). Between processes and in artifacts it is a portable artifact: StableHLO's versioned
bytecode, where a CHLO operation stands as a composite that XLA turns back.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, cast

from jaxlib import _jax
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir._mlir_libs._jax_mlir_ext import inlined_func_call
from jaxlib.mlir.dialects import chlo, sdy, stablehlo
from jaxlib.mlir.passmanager import PassManager

from tpuc.runtime.spec import TensorSpec

#: Where the runtime has another name for an element type than MLIR.
_DTYPE_NAMES = {"i1": "bool", "complex<f32>": "c64", "complex<f64>": "c128"}
#: The first bytes of every MLIR bytecode file, portable artifacts included.
BYTECODE_MAGIC = b"ML\xefR"

_registry = ir.DialectRegistry()
_jax_mlir_ext.register_dialects(_registry)
stablehlo.register_stablehlo_passes()


def make_context() -> ir.Context:
    """Returns a context with the dialects that XLA reads: func, arith, stablehlo, chlo, sdy."""
    context = ir.Context()
    context.append_dialect_registry(_registry)
    context.load_all_available_dialects()
    for dialect in (stablehlo, chlo, sdy):
        dialect.register_dialect(context)
    return context


def parse(source: str | bytes, context: ir.Context) -> ir.Module:
    """Reads a module from MLIR text, bytecode, or a portable artifact.

    Raises:
        ir.MLIRError: `source` is not a valid module.
        ValueError: `source` is a portable artifact of a version that this StableHLO cannot read.
    """
    if isinstance(source, bytes) and source.startswith(BYTECODE_MAGIC + b"\rStableHLO"):
        return stablehlo.deserialize_portable_artifact(context, source)
    return ir.Module.parse(source, context)


def to_text(module: ir.Module, *, locations: bool = False, large_elements: int | None = None) -> str:
    """Prints a module.

    Args:
        module: The module.
        locations: Whether each operation's source location is printed.
        large_elements: Constants with more elements than this are elided; None prints all of them.
    """
    return cast(str, module.operation.get_asm(enable_debug_info=locations, large_elements_limit=large_elements))


def to_bytecode(module: ir.Module) -> bytes:
    """Writes a module as MLIR bytecode, which only the same MLIR build is sure to read."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def copy(module: ir.Module) -> ir.Module:
    """Returns a copy of a module, in the same context, source locations included."""
    return parse(to_bytecode(module), module.context)


def to_portable(module: ir.Module, version: str | None = None) -> bytes:
    """Writes a module as a StableHLO portable artifact, source locations included.

    Args:
        module: A module of stablehlo, chlo and func.
        version: The StableHLO version to write, such as "1.17.0"; None writes the current one.

    Raises:
        ValueError: The module holds an operation that StableHLO cannot version.
    """
    target = version or stablehlo.get_current_version()
    return cast(bytes, _jax.mlir.serialize_portable_artifact(to_bytecode(module), target))


def spec_of(type_: ir.RankedTensorType, name: str) -> TensorSpec:
    """Describes a tensor of a static shape, under the names that the runtime has for element types."""
    element = str(type_.element_type)
    dtype = _DTYPE_NAMES.get(element, element.replace("ui", "u").lower())
    return TensorSpec(name=name, dtype=dtype, dims=tuple(type_.shape))


def run_pipeline(module: ir.Module, pipeline: str) -> None:
    """Runs passes of MLIR's own, such as `canonicalize,cse`, over a module in place.

    Raises:
        ir.MLIRError: A pass failed.
    """
    with module.context:
        PassManager.parse(f"builtin.module({pipeline})").run(module.operation)


def functions(module: ir.Module) -> dict[str, ir.OpView]:
    """Returns the functions of a module by name."""
    return {ir.StringAttr(op.attributes["sym_name"]).value: op for op in module.body.operations}


def inline(
    call: ir.OpView | ir.Operation, function: ir.OpView, operands: Sequence[ir.Value[Any]] | None = None
) -> None:
    """Replaces an operation by the body of a function, at the operation's location.

    Args:
        call: A call, or whatever else stands for one; it is erased.
        function: The function, of the same module or another of its context.
        operands: What the function is given; None means the operation's own operands.
    """
    location = call.location
    if isinstance(location, ir.NameLoc) and not location.name_str:
        location = location.child_loc  # The bindings put such a name around it, each time.
    with ir.InsertionPoint(call), location:
        results = inlined_func_call(function.operation, list(call.operands if operands is None else operands), location)
    for old, new in zip(call.results, results, strict=True):
        old.replace_all_uses_with(new)
    call.operation.erase()


def inline_calls(module: ir.Module) -> None:
    """Replaces every call of a function that the module defines by the function's body; the functions stay."""
    defined = functions(module)
    done: set[str] = set()

    def visit(name: str) -> None:
        # Callees first, so that each is inlined as it will be called.
        if name in done:
            return
        done.add(name)
        for call in find(defined[name], "func.call"):
            visit(symbol(call, "callee"))
            inline(call, defined[symbol(call, "callee")])

    with module.context:
        for name in defined:
            visit(name)


def inline_composites(module: ir.Module) -> None:
    """Replaces every composite by its decomposition; the functions that are decompositions go."""
    with module.context:
        while composites := find(module, "stablehlo.composite"):
            for composite in composites:
                inline(composite, functions(module)[symbol(composite, "decomposition")])
        for name, function in functions(module).items():
            if name != "main":
                function.erase()


def find(op: ir.OpView | ir.Module, name: str) -> list[ir.Operation]:
    """Returns the operations of this name inside another, in their order."""
    found: list[ir.Operation] = []

    def visit(inner: ir.Operation) -> ir.WalkResult:
        if inner.name == name:
            found.append(inner)
        return ir.WalkResult.ADVANCE

    op.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def symbol(op: ir.Operation, attribute: str) -> str:
    """Returns the name of the function that an attribute refers to."""
    return ir.FlatSymbolRefAttr(op.attributes[attribute]).value
