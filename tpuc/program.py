"""Optimized programs as an artifact holds them: `@main`, and what is prepared for it from weights, each by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.passes.main import ARGUMENT, Function, Main, name_of
from tpuc.passes.tensors import find_products, precisions
from tpuc.report.wide_arithmetic import WidePlace
from tpuc.runtime.manifest import Argument, ArgumentKind
from tpuc.runtime.spec import TensorSpec


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """A program that computes one tensor from weights.

    Attributes:
        program: Portable StableHLO: the sources are its arguments, the tensor its only result.
        spec: The tensor, under its name in the program that takes it.
        sources: The weights, in order.
    """

    program: bytes
    spec: TensorSpec
    sources: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OptimizedProgram:
    """A program after the passes.

    Attributes:
        main: Portable StableHLO.
        arguments: What `main` takes, in order.
        preparations: How each of its `prepared` arguments is computed.
        has_kernels: Whether it holds machine code for a TPU, and so runs nowhere else.
        products: How many products it has, by dtype and precision; see `ProgramInfo`.
        masks: How many masks keep padding from what it computes.
        wide_places: Where it computes with 64-bit numbers, if it is for a TPU.
        rolled_layers: How many layers of the model became loops.
    """

    main: bytes
    arguments: tuple[Argument, ...]
    preparations: tuple[Preparation, ...]
    has_kernels: bool
    products: dict[str, int]
    masks: int = 0
    wide_places: tuple[WidePlace, ...] = ()
    rolled_layers: int = 0


def take_apart(
    module: ir.Module, *, masks: int = 0, wide_places: tuple[WidePlace, ...] = (), rolled_layers: int = 0
) -> OptimizedProgram:
    """Makes portable programs of a module's `@main` and of the functions that prepare tensors for it.

    Args:
        module: A module after the passes; the functions for preparing leave it.
        masks: How many masks the passes put into it.
        wide_places: Where it computes with 64-bit numbers, if it is for a TPU.
        rolled_layers: How many layers they made loops of.
    """
    main = Main(module)
    arguments = tuple(_argument(each) for each in main.argument_names)
    preparations = tuple(_preparations(main))
    return OptimizedProgram(
        main=mlir.to_portable(module),
        arguments=arguments,
        preparations=preparations,
        products=dict(Counter(map(_product_text, find_products(module)))),
        has_kernels=any(map(_is_kernel, mlir.find(module, "stablehlo.custom_call"))),
        masks=masks,
        wide_places=wide_places,
        rolled_layers=rolled_layers,
    )


def _product_text(op: ir.Operation) -> str:
    """What a product multiplies, and how precisely: `bf16 default`."""
    dtypes = dict.fromkeys(mlir.spec_of(operand.type, "").dtype for operand in op.operands)
    asked = dict.fromkeys(precisions(op))
    return f"{' x '.join(dtypes)} {' x '.join(asked).lower() or 'default'}"


def _is_kernel(call: ir.Operation) -> bool:
    return ir.StringAttr(call.attributes["call_target_name"]).value == "tpu_custom_call"


def _argument(name: str) -> Argument:
    kind, _, rest = name.partition(":")
    return Argument(kind=cast(ArgumentKind, kind), name=rest)


def _preparations(main: Main) -> Iterator[Preparation]:
    for function in main.preparations():
        with function.op.context, ir.Location.unknown():
            alone = ir.Module.create()
            with ir.InsertionPoint(alone.body):
                copy = Function(function.op.operation.clone().opview)
            copy.op.attributes["sym_name"] = ir.StringAttr.get("main")
            copy.op.attributes["sym_visibility"] = ir.StringAttr.get("public")
        sources = tuple(_argument(name).name for name in copy.argument_names)
        # Layers of one form are prepared by one program.
        copy.remove_attribute(ARGUMENT)
        result = copy.block.operations[-1].operands[0]
        spec = mlir.spec_of(result.type, name_of(function.op))
        yield Preparation(program=_without_locations(alone), spec=spec, sources=sources)
        function.op.erase()


def _without_locations(module: ir.Module) -> bytes:
    mlir.run_pipeline(module, "strip-debuginfo")
    return mlir.to_portable(module)
