"""Links bodies: every call in a module is replaced by what it calls, at the caller's location."""

from __future__ import annotations

from collections.abc import Mapping

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs._jax_mlir_ext import inlined_func_call

from tpuc import mlir


def link(module: ir.Module, bodies: Mapping[str, bytes]) -> None:
    """Replaces the calls of a module by the bodies of what they call, in place.

    Args:
        module: A module whose `@main` calls functions that it only declares.
        bodies: For each of them, a module whose `@main` is the body, in any form that `mlir.parse` reads.
    """
    flat = {name: _flat_body(source, module.context) for name, source in bodies.items()}
    functions = {_name(op): op for op in module.body.operations}
    with module.context:
        _inline_calls(functions["main"], {name: _main(body) for name, body in flat.items()})
        for name, op in functions.items():
            if name in flat:
                op.erase()


def _flat_body(source: bytes, context: ir.Context) -> ir.Module:
    """Parses a body and inlines the private functions that JAX made of it."""
    module = mlir.parse(source, context)
    functions = {_name(op): op for op in module.body.operations}
    with context:
        done: set[str] = set()
        for name in functions:
            _flatten(name, functions, done)
    return module


def _flatten(name: str, functions: dict[str, ir.OpView], done: set[str]) -> None:
    # Callees first, so that each is inlined as it will be called.
    if name in done:
        return
    done.add(name)
    for call in _calls(functions[name]):
        _flatten(_callee(call), functions, done)
    _inline_calls(functions[name], functions)


def _inline_calls(function: ir.OpView, callees: Mapping[str, ir.OpView]) -> None:
    for call in _calls(function):
        callee = callees.get(_callee(call))
        if callee is None:
            continue
        location = call.location
        with ir.InsertionPoint(call), location:
            results = inlined_func_call(callee.operation, list(call.operands), location)
        for old, new in zip(call.results, results, strict=True):
            old.replace_all_uses_with(new)
        call.erase()


def _calls(function: ir.OpView) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "func.call":
            found.append(op)
        return ir.WalkResult.ADVANCE

    function.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def _callee(call: ir.Operation) -> str:
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def _name(op: ir.OpView) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value


def _main(module: ir.Module) -> ir.OpView:
    return next(op for op in module.body.operations if _name(op) == "main")
