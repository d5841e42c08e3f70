"""Programs for tests of passes, written in JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.passes.main import ARGUMENT, Main


@contextmanager
def jax_module(function: Callable[..., Any], *shapes: Any) -> Iterator[ir.Module]:
    """A JAX function as a module; its arguments but the first are weights."""
    text = jax.jit(function).trace(*shapes).lower(lowering_platforms=("cpu",)).as_text()
    with mlir.make_context() as context:
        module = mlir.parse(text, context)
        mlir.inline_calls(module)
        mlir.run_pipeline(module, "symbol-dce,cse")
        main = Main(module)
        main.op.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [
                ir.DictAttr.get({ARGUMENT: ir.StringAttr.get(f"{'weight' if number else 'input'}:{number}")})
                for number in range(len(main.block.arguments))
            ]
        )
        yield module
