"""The bodies of a graph's calls, and everything that stands in the way of them, at the user's own lines."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from tpuc.errors import UnsupportedOp, UnsupportedOpError
from tpuc.frontend.capture import ASSERTIONS, Capture, capture
from tpuc.frontend.locations import location_of
from tpuc.lowerings.body import Body, lower_body
from tpuc.lowerings.call import OpCall
from tpuc.lowerings.evaluate import MissingLoweringError, call_of
from tpuc.lowerings.native import is_native
from tpuc.lowerings.platforms import Platform
from tpuc.lowerings.registry import REGISTRY
from tpuc.lowerings.skeleton import skeleton_of
from tpuc.lowerings.subgraphs import graphs_in

_WRITE_ONE = "Write a lowering of it, in the model's file or in a plugin."
_WRITE_ANOTHER = "Compute it otherwise, or as an operator of your own with a lowering (tpuc.lowering)."


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a call has no body.

    Attributes:
        reason: Why, in words.
        is_missing: Whether it has neither a lowering nor a decomposition, so that the user may write a lowering.
    """

    reason: str
    is_missing: bool = False


@dataclass(frozen=True, kw_only=True)
class Bodies:
    """The bodies of calls.

    Attributes:
        bodies: The body of each call that has one, by the call's signature.
        failures: Why each of the others has none, likewise.
    """

    bodies: Mapping[str, Body]
    failures: Mapping[str, Failure]

    def failures_on(self, platforms: Iterable[Platform]) -> dict[str, Failure]:
        """Returns why calls have no body at all, or none for one of these platforms, by signature."""
        found = dict(self.failures)
        for platform in platforms:
            for signature, body in self.bodies.items():
                if platform in body.missing:
                    found.setdefault(signature, Failure(reason=body.missing[platform]))
        return found


def lower_bodies(calls: Iterable[OpCall]) -> Bodies:
    """Lowers each call to StableHLO; equal calls share a body."""
    bodies: dict[str, Body] = {}
    failures: dict[str, Failure] = {}
    for signature, call in {call.signature(): call for call in calls}.items():
        try:
            bodies[signature] = lower_body(call)
        except Exception as error:  # A lowering is anybody's code; its failure belongs to the user's line.
            failures |= _failures_within(call) or {signature: _failure_of(call, error)}
    return Bodies(bodies=bodies, failures=failures)


def _failure_of(call: OpCall, error: Exception) -> Failure:
    match error:
        case MissingLoweringError():
            within = "" if error.operator == call.operator else f"it decomposes into {error.operator}: "
            return Failure(reason=within + error.reason, is_missing=True)
        case NotImplementedError():
            return Failure(reason=str(error))
    return Failure(reason=_fault(call, error))


def _fault(call: OpCall, error: Exception) -> str:
    """Says that a lowering raised, what, and where in its file; JAX's long explanations are cut to their first line."""
    found = REGISTRY.get(call.operator)
    file = found.place.rpartition(":")[0] if found else ""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    place = f" at {file}:{lines[-1]}" if lines else ""
    text = str(error).strip().partition("\n")[0]
    return f"its lowering failed{place}: {type(error).__name__}: {text}"


def _failures_within(call: OpCall) -> dict[str, Failure]:
    """Returns why calls in the branches and bodies of a higher-order operator have no body, by signature."""
    modules = [leaf for leaf in pytree.tree_leaves((call.args, call.kwargs)) if isinstance(leaf, torch.fx.GraphModule)]
    return dict(lower_bodies(inner for module in modules for _, inner in calls_in(module.graph)).failures)


def calls_in(graph: torch.fx.Graph) -> Iterator[tuple[torch.fx.Node, OpCall]]:
    """Yields the calls of a graph whose sizes are static, in program order.

    A graph that could not be captured has others too: results of dynamic sizes, Python numbers, writes.
    """
    for node in graph.nodes:
        if node.op == "call_function" and "val" in node.meta and _is_callable_node(node):
            yield node, call_of(node)


def unsupported_in(graph: torch.fx.Graph, failures: Mapping[str, Failure]) -> tuple[UnsupportedOp, ...]:
    """Reports the calls of a graph that have no body: every place, in program order, then those in its branches.

    Args:
        graph: The graph.
        failures: Why calls have none, by signature.
    """
    return tuple(
        _report(node, call, failures[call.signature()])
        for each in graphs_in(graph)
        for node, call in calls_in(each)
        if call.signature() in failures
    )


def capture_for(program: ExportedProgram, platforms: Iterable[Platform]) -> Capture:
    """Captures an exported program that is to be lowered for platforms.

    Raises:
        UnsupportedOpError: Sizes depend on the data; all else that the platforms lack is reported with them.
    """
    try:
        return capture(program)
    except UnsupportedOpError as error:
        refused = error.operators
    raise UnsupportedOpError((*refused, *survey(program.graph, platforms)))


def survey(graph: torch.fx.Graph, platforms: Iterable[Platform]) -> tuple[UnsupportedOp, ...]:
    """Lowers every call of a graph that torch-mlir does not convert, and reports those that some platform lacks."""
    bodies = lower_bodies(call for _, call in calls_in(graph) if not is_native(call))
    return unsupported_in(graph, bodies.failures_on(platforms))


def _is_callable_node(node: torch.fx.Node) -> bool:
    """Whether a node calls an operator that computes something and writes to nothing, on tensors of static sizes."""
    if str(node.target) in ASSERTIONS:
        return False
    schema = getattr(node.target, "_schema", None)
    if schema is None and not isinstance(node.target, torch._ops.HigherOrderOperator):
        return False
    if schema is not None and schema.is_mutable:
        return False
    return all(_is_static(each) for each in (node, *node.all_input_nodes) if each.op != "get_attr")


def _is_static(node: torch.fx.Node) -> bool:
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return all(
        all(isinstance(size, int) for size in leaf.shape)
        if isinstance(leaf, torch.Tensor)
        else not isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool)
        for leaf in leaves
    )


def _report(node: torch.fx.Node, call: OpCall, failure: Failure) -> UnsupportedOp:
    location = location_of(node)
    skeleton = skeleton_of(call) if failure.is_missing else ""
    return UnsupportedOp(
        operator=call.operator,
        reason=failure.reason,
        location=location.place,
        module=location.module,
        hint=_WRITE_ONE if skeleton else _WRITE_ANOTHER,
        skeleton=skeleton,
    )
