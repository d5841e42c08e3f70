"""MLIR through jaxlib's bindings: the one place that makes contexts, reads and writes modules.

Inside the compiler a program is a `jaxlib.mlir.ir.Module` of StableHLO, with CHLO where XLA has the operation
natively (erf, top_k). Between processes and in artifacts it is a portable artifact: StableHLO's versioned
bytecode, where a CHLO operation stands as a composite that XLA turns back.
"""

from __future__ import annotations

import io
from typing import cast

from jaxlib import _jax
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
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
