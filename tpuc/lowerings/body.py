"""Lowers the body of one call to StableHLO, through JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jaxlib.mlir import ir
from torch.utils import _pytree as pytree

from tpuc import mlir
from tpuc.lowerings.call import OpCall
from tpuc.lowerings.dtypes import to_jax
from tpuc.lowerings.evaluate import evaluate_call
from tpuc.lowerings.platforms import PLATFORMS, Platform


@dataclass(frozen=True, kw_only=True)
class Body:
    """The body of a call for each platform.

    JAX lowers some operations (linear algebra, random bits) differently for each; most are the same.

    Attributes:
        modules: A StableHLO module as MLIR bytecode, whose `@main` takes the tensors.
        missing: The platforms that have none, and why.
    """

    modules: Mapping[Platform, bytes]
    missing: Mapping[Platform, str]

    @property
    def is_portable(self) -> bool:
        """Whether the platforms share it."""
        return not self.missing and len(set(self.modules.values())) == 1


def lower_body(call: OpCall) -> Body:
    """Lowers a call to StableHLO.

    Args:
        call: The call; the body takes its tensors in the order of flattening, and returns its results so.

    Raises:
        MissingLoweringError: The operator, or one that it decomposes into, cannot be lowered.
        LoweringMismatchError: A lowering returned another shape than PyTorch says.
        NotImplementedError: A lowering says that it cannot do this call, or JAX has it for no platform.
    """

    def body(*tensors: Any) -> list[Any]:
        args, kwargs = call.with_tensors(list(tensors))
        return pytree.tree_leaves(evaluate_call(call.target, args, kwargs, call.results))

    shapes = [jax.ShapeDtypeStruct(meta.shape, to_jax(meta.dtype)) for meta in call.tensors]
    with jax.enable_x64(True):
        traced = jax.jit(body, keep_unused=True).trace(*shapes)
        modules: dict[Platform, bytes] = {}
        missing: dict[Platform, str] = {}
        for platform in PLATFORMS:
            try:
                modules[platform] = _lower(traced, platform)
            except NotImplementedError as error:
                missing[platform] = f"it cannot be lowered for a {platform}: {error}"
    if not modules:
        raise NotImplementedError("; ".join(missing.values()))
    return Body(modules=modules, missing=missing)


def _lower(traced: Any, platform: Platform) -> bytes:
    module: ir.Module = traced.lower(lowering_platforms=(platform,)).compiler_ir("stablehlo")
    # Without JAX's own locations: equal bodies are equal bytes, and the caller's location is what counts.
    mlir.run_pipeline(module, "strip-debuginfo")
    return mlir.to_bytecode(module)
