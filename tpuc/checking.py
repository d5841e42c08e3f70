"""`tpuc check`: what stands in the way of a compile, and how each operator would be lowered, with nothing compiled.

It exports the model and lowers each kind of call to StableHLO alone, as a compile does, and stops there. What it cannot
foresee is whether the compiler takes the program: that it fits into the chip's memory, above all.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from tpuc.errors import UnsupportedOp, UnsupportedOpError
from tpuc.frontend.bodies import Failure, calls_in, lower_bodies, unsupported_in
from tpuc.frontend.capture import capture
from tpuc.loader import LoadedModel
from tpuc.lowerings.call import OpCall, operator_name
from tpuc.lowerings.evaluate import decompose
from tpuc.lowerings.native import is_native
from tpuc.lowerings.platforms import Platform
from tpuc.lowerings.registry import REGISTRY
from tpuc.lowerings.subgraphs import graphs_in
from tpuc.pipeline import exported
from tpuc.targets import Target

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
    """

    model: str
    targets: tuple[Target, ...]
    uses: tuple[OperatorUse, ...]
    unsupported: tuple[UnsupportedOp, ...]

    def raise_if_unsupported(self) -> None:
        """Raises the error that a compile would.

        Raises:
            UnsupportedOpError: Something stands in the way.
        """
        if self.unsupported:
            raise UnsupportedOpError(self.unsupported)

    def to_json(self) -> dict[str, Any]:
        """The check, as values that JSON has."""
        return {
            "model": self.model,
            "targets": [str(target) for target in self.targets],
            "operators": [dataclasses.asdict(use) for use in self.uses],
            "unsupported": [dataclasses.asdict(op) for op in self.unsupported],
        }


def check_model(model: LoadedModel, targets: Collection[Target]) -> Check:
    """Finds out how each operator of a model would be lowered for targets.

    Args:
        model: The model; its weights need no memory.
        targets: The targets.

    Raises:
        ExportError: torch.export cannot capture the model.
    """
    platforms = sorted({target.platform for target in targets})
    refused: tuple[UnsupportedOp, ...] = ()
    with exported(model, with_weights=False) as program:
        graph = program.graph
        try:
            graph = capture(program).graph
        except UnsupportedOpError as error:
            refused = error.operators
    failures = _failures(graph, platforms)
    return Check(
        model=model.source,
        targets=tuple(targets),
        uses=tuple(_uses(graph, failures, refused)),
        unsupported=(*refused, *unsupported_in(graph, failures)),
    )


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
