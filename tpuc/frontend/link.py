"""Links bodies: every call in a module is replaced by what it calls, at the caller's location.

Functions that a body does not call but names, the decompositions of its composites, come along under names of their
own.
"""

from __future__ import annotations

from collections.abc import Mapping

from jaxlib.mlir import ir

from tpuc import mlir

_DECOMPOSITION = "decomposition"


def link(module: ir.Module, bodies: Mapping[str, bytes]) -> None:
    """Replaces the calls of a module by the bodies of what they call, in place.

    Args:
        module: A module whose `@main` calls functions that it only declares.
        bodies: For each of them, a module whose `@main` is the body, in any form that `mlir.parse` reads.
    """
    flat = {name: _flat_body(name, source, module.context) for name, source in bodies.items()}
    functions = mlir.functions(module)
    with module.context:
        for call in mlir.find(functions["main"], "func.call"):
            body = flat.get(mlir.symbol(call, "callee"))
            if body is not None:
                mlir.inline(call, mlir.functions(body)["main"])
        for name in flat:
            functions[name].erase()
        with ir.InsertionPoint(module.body):
            for body in flat.values():
                for name, function in mlir.functions(body).items():
                    if name != "main":
                        function.operation.clone()


def _flat_body(name: str, source: bytes, context: ir.Context) -> ir.Module:
    """Parses a body and inlines the private functions that JAX made of it.

    Returns:
        A module of `@main` and the decompositions of its composites, which are called `<name>.<their name>` now.
    """
    module = mlir.parse(source, context)
    mlir.inline_calls(module)
    functions = mlir.functions(module)
    with context:
        kept = {"main"}
        todo = [functions["main"]]
        while todo:
            for composite in mlir.find(todo.pop(), "stablehlo.composite"):
                old = mlir.symbol(composite, _DECOMPOSITION)
                new = f"{name}.{old}"
                composite.attributes[_DECOMPOSITION] = ir.FlatSymbolRefAttr.get(new)
                if old not in kept:
                    kept.add(old)
                    functions[old].attributes["sym_name"] = ir.StringAttr.get(new)
                    todo.append(functions[old])
        for function in functions.keys() - kept:
            functions[function].erase()
    return module
