"""What each composite that passes build stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import jax
from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.lowerings.activation import gelu, silu
from tpuc.lowerings.attention import ATTENTION, attention
from tpuc.lowerings.normalization import root_mean_square_scaled, standardized

Array = jax.Array
#: What an attribute of a composite may be.
Attribute = bool | float | str | Sequence[int]

GELU = "tpuc.gelu"
LAYER_NORM = "tpuc.layer_norm"
RMS_NORM = "tpuc.rms_norm"
SILU = "tpuc.silu"
SOFTMAX = "tpuc.softmax"


def _softmax(x: Array, *, dimensions: Sequence[int]) -> Array:
    return jax.nn.softmax(x, axis=tuple(dimensions))


#: A JAX function by the name of the composite. It takes the operands, and the attributes by keyword.
COMPOSITES: Mapping[str, Callable[..., Array]] = {
    ATTENTION: attention,
    GELU: gelu,
    LAYER_NORM: standardized,
    RMS_NORM: root_mean_square_scaled,
    SILU: silu,
    SOFTMAX: _softmax,
}


def lower_composite(name: str, *operands: jax.ShapeDtypeStruct, **attributes: Attribute) -> bytes:
    """Lowers what a composite stands for to a StableHLO module of one function, `@main`, as MLIR bytecode."""
    traced = jax.jit(partial(COMPOSITES[name], **attributes)).trace(*operands)
    # Nothing of it differs between platforms.
    module: ir.Module = traced.lower(lowering_platforms=("cpu",)).compiler_ir("stablehlo")
    mlir.run_pipeline(module, "strip-debuginfo")
    mlir.inline_calls(module)
    mlir.run_pipeline(module, "symbol-dce")
    return mlir.to_bytecode(module)
