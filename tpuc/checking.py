"""`tpuc check`: what stands in the way of a compile, and how each operator would be lowered, with nothing compiled.

It exports the model and lowers each kind of call to StableHLO alone, as a compile does, and stops there. Where sizes
are named, it does so at one choice of them, and then looks for the one form that the program needs for all. What it
cannot foresee is whether the compiler takes the program: that it fits into the chip's memory, above all.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.export import ExportedProgram

from tpuc import mlir
from tpuc.errors import TpucError, UnsupportedOp, UnsupportedOpError
from tpuc.frontend import stablehlo
from tpuc.frontend.bodies import Failure, calls_in, lower_bodies, unsupported_in
from tpuc.frontend.capture import capture
from tpuc.frontend.dynamic import DynamicModel, lower_dynamic, sample_sizes
from tpuc.loader import LoadedModel
from tpuc.lowerings.any_size import any_size
from tpuc.lowerings.call import OpCall, operator_name
from tpuc.lowerings.evaluate import decompose
from tpuc.lowerings.native import is_native
from tpuc.lowerings.platforms import Platform
from tpuc.lowerings.registry import REGISTRY
from tpuc.lowerings.subgraphs import graphs_in
from tpuc.passes import run_passes
from tpuc.passes.convert_arith import ConvertArith
from tpuc.passes.pad_dynamic import PadDynamic
from tpuc.pipeline import export_any_size, exported
from tpuc.runtime.sizes import SizeRange
from tpuc.shapes import InputSpec
from tpuc.targets import Target
from tpuc.worker import Worker

How = Literal["torch-mlir", "jax", "decomposition", "unsupported"]


@dataclass(frozen=True, kw_only=True)
class OperatorUse:
    """One operator in one program.

    Attributes:
        operator: Its name.
        how: How it is lowered.
        why: Why so; for a decomposition, the operators that it is made of.
        count: How often the program calls it.
    """

    operator: str
    how: How
    why: str
    count: int


@dataclass(frozen=True, kw_only=True)
class Check:
    """What a compile would find.

    Attributes:
        model: The model.
        targets: What was asked for.
        uses: Every operator, the most frequent first.
        unsupported: Every place that stands in the way.
        any_size_error: Where every operator can be lowered: why there is no exact program of any size; None if there is
            one, or no size is named.
    """

    model: str
    targets: tuple[Target, ...]
    uses: tuple[OperatorUse, ...]
    unsupported: tuple[UnsupportedOp, ...]
    any_size_error: TpucError | None = None

    def raise_if_unsupported(self) -> None:
        """Raises the error that a compile would.

        Raises:
            UnsupportedOpError: Operators cannot be lowered.
            ExportError: The program takes other forms at other sizes.
            PassError: Operations have no exact form in padding.
        """
        if self.unsupported:
            raise UnsupportedOpError(self.unsupported)
        if self.any_size_error is not None:
            raise self.any_size_error

    def to_json(self) -> dict[str, Any]:
        """The check, as values that JSON has."""
        return {
            "model": self.model,
            "targets": [str(target) for target in self.targets],
            "operators": [dataclasses.asdict(use) for use in self.uses],
            "unsupported": [dataclasses.asdict(op) for op in self.unsupported],
            "any_size_error": str(self.any_size_error) if self.any_size_error else None,
        }


def check_model(
    model: LoadedModel,
    targets: Collection[Target],
    *,
    shapes: Sequence[InputSpec] = (),
    sizes: Sequence[SizeRange] = (),
) -> Check:
    """Finds out how each operator of a model would be lowered for targets.

    Args:
        model: The model; its weights need no memory.
        targets: The targets.
        shapes: With named sizes: the inputs' specs.
        sizes: What the sizes may be.

    Raises:
        ExportError: torch.export cannot capture the model.
        RequestError: The model cannot take all of these sizes.
    """
    if not sizes or isinstance(model.program, ExportedProgram):
        with exported(model, with_weights=False) as program:
            return _check(program, model.source, targets)
    dynamic = export_any_size(model, shapes, sizes, with_weights=False)
    with any_size():
        check = _check(_at_a_sample(dynamic), model.source, targets)
    if check.unsupported:
        return check
    return dataclasses.replace(check, any_size_error=_any_size_error(dynamic, targets))


def _check(program: ExportedProgram, source: str, targets: Collection[Target]) -> Check:
    refused: tuple[UnsupportedOp, ...] = ()
    graph = program.graph
    try:
        graph = capture(program).graph
    except UnsupportedOpError as error:
        refused = error.operators
    failures = _failures(graph, sorted({target.platform for target in targets}))
    return Check(
        model=source,
        targets=tuple(targets),
        uses=tuple(_uses(graph, failures, refused)),
        unsupported=(*refused, *unsupported_in(graph, failures)),
    )


def _at_a_sample(dynamic: DynamicModel) -> ExportedProgram:
    """Returns the program at the sizes that a compile lowers it at first.

    Raises:
        RuntimeError: There are no sizes that it can be lowered at.
    """
    failure: RuntimeError | None = None
    for samples in sample_sizes(dynamic):
        try:
            return dynamic.at(samples[0])
        except RuntimeError as error:  # Such as a size that is too large for a table of the model's.
            failure = error
    assert failure is not None
    raise failure


def _any_size_error(dynamic: DynamicModel, targets: Collection[Target]) -> TpucError | None:
    """Brings a program to the form that it has for all sizes, and returns why that cannot be."""
    with Worker(stablehlo.WORKER) as torch_mlir:
        try:
            lowered = lower_dynamic(dynamic, torch_mlir, {target.platform for target in targets})
            for target in targets:
                module = lowered.module(target.platform, mlir.make_context(), dynamic.ranges)
                run_passes(module, (ConvertArith(), PadDynamic()), target)
        except TpucError as error:
            return error
    return None


def _failures(graph: torch.fx.Graph, platforms: Iterable[Platform]) -> dict[str, Failure]:
    bodies = lower_bodies(call for _, call in calls_in(graph) if not is_native(call))
    return bodies.failures_on(platforms)


def _uses(
    graph: torch.fx.Graph, failures: dict[str, Failure], refused: Iterable[UnsupportedOp]
) -> Iterable[OperatorUse]:
    counts: Counter[tuple[str, How, str]] = Counter()
    for each in graphs_in(graph):
        for _, call in calls_in(each):
            counts[call.operator, *_how(call, failures, may_be_native=each is graph)] += 1
    for op in refused:
        counts[op.operator, "unsupported", op.reason] += 1
    for (operator, how, why), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield OperatorUse(operator=operator, how=how, why=why, count=count)


def _how(call: OpCall, failures: dict[str, Failure], *, may_be_native: bool) -> tuple[How, str]:
    """How a call is lowered, and why so; what stands in a branch or a loop never goes through torch-mlir."""
    failure = failures.get(call.signature())
    if failure is not None:
        return "unsupported", failure.reason
    if may_be_native and is_native(call):
        return "torch-mlir", "right and clean for calls like this"
    found = REGISTRY.get(call.operator)
    if found is not None:
        return "jax", found.why
    parts = (
        operator_name(node.target) for node in decompose(call).nodes if isinstance(node.target, torch._ops.OpOverload)
    )
    return "decomposition", ", ".join(dict.fromkeys(parts))
