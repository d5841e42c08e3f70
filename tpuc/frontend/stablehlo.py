"""From a captured graph to StableHLO: import, torch-mlir, link."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.errors import BackendError, CrashError, UnsupportedOp, UnsupportedOpError
from tpuc.frontend.bodies import lower_bodies, unsupported_in
from tpuc.frontend.capture import Capture
from tpuc.frontend.importer import import_graph
from tpuc.frontend.link import link
from tpuc.lowerings.body import Body
from tpuc.lowerings.call import OpCall
from tpuc.lowerings.evaluate import call_of
from tpuc.lowerings.native import is_native
from tpuc.lowerings.platforms import PLATFORMS, Platform
from tpuc.runtime.sizes import SizeExpr, SizeRange
from tpuc.worker import Worker

#: The module that runs torch-mlir's passes.
WORKER = "tpuc.frontend.torch_mlir_worker"
#: torch-mlir converts thousands of operators a second; one that takes longer than this never ends.
_SECONDS = 60.0
_SECONDS_PER_NODE = 0.02


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """A graph after torch-mlir, with its bodies still apart.

    Attributes:
        text: The StableHLO that torch-mlir made; it calls the bodies.
        bodies: The body of each function that is called.
        unsupported: For each platform, the operators that have no body there.
        captured: The graph.
        arguments: What each argument of `@main` is: `weight:fc.bias`, `input:x`.
        results: What each result is, likewise: `state:cache`, `output:logits`.
    """

    text: str
    bodies: dict[str, Body]
    unsupported: dict[Platform, tuple[UnsupportedOp, ...]]
    captured: Capture
    arguments: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def is_portable(self) -> bool:
        """Whether all platforms share one program."""
        return all(body.is_portable for body in self.bodies.values())

    @property
    def dims(self) -> Mapping[str, tuple[SizeExpr, ...]]:
        """The dimensions of inputs and outputs that are expressions: none."""
        return {}

    def module(self, platform: Platform, context: ir.Context, ranges: Sequence[SizeRange] = ()) -> ir.Module:
        """Links the program for a platform.

        Args:
            platform: The platform.
            context: What the module is made in.
            ranges: What the sizes may be: a static program has none.

        Returns:
            A module with one function, `@main`, whose arguments carry `tpuc.argument = "<kind>:<name>"` and whose
            operations carry the user's file, line and module path.

        Raises:
            UnsupportedOpError: Operators that this platform lacks, all of them.
        """
        if self.unsupported[platform]:
            raise UnsupportedOpError(self.unsupported[platform])
        module = mlir.parse(self.text, context)
        link(module, {name: body.modules[platform] for name, body in self.bodies.items()})
        with context:
            module.body.operations[0].attributes["arg_attrs"] = ir.ArrayAttr.get(
                [ir.DictAttr.get(self._argument_attributes(name)) for name in self.arguments]
            )
        return module

    def _argument_attributes(self, name: str) -> dict[str, ir.Attribute]:
        attributes: dict[str, ir.Attribute] = {"tpuc.argument": ir.StringAttr.get(name)}
        if name in self.results:
            # XLA's name for it: state is donated, and its new value takes the same memory.
            attributes["tf.aliasing_output"] = ir.IntegerAttr.get(
                ir.IntegerType.get_signless(32), self.results.index(name)
            )
        return attributes


def lower(capture: Capture, worker: Worker, platforms: Collection[Platform] = ()) -> Lowered:
    """Lowers a captured graph to StableHLO, with CHLO where XLA has the operation natively.

    Args:
        capture: The graph.
        worker: A running `WORKER`.
        platforms: Platforms for which everything must be lowered.

    Raises:
        UnsupportedOpError: Operators that cannot be lowered for any platform, or not for these: all of them.
        CrashError: torch-mlir ended its process, or did not come back, and no single operator is to blame.
    """
    arguments = tuple(f"{argument.kind}:{argument.name}" for argument in capture.arguments)
    try:
        text, bodies, unsupported = _lower(capture.graph, is_native, worker, platforms)
    except (CrashError, BackendError):
        refused = _culprits(capture.graph)
        if not refused:
            raise
        # Whatever torch-mlir stumbles over has a JAX function too.
        with Worker(WORKER) as fresh:
            text, bodies, unsupported = _lower(
                capture.graph, lambda call: is_native(call) and call.signature() not in refused, fresh, platforms
            )
    results = tuple(f"{result.kind}:{result.name}" for result in capture.results)
    return Lowered(
        text=text,
        bodies=bodies,
        unsupported=unsupported,
        captured=capture,
        arguments=arguments,
        results=results,
    )


def _lower(
    graph: torch.fx.Graph, native: Callable[[OpCall], bool], worker: Worker, platforms: Collection[Platform]
) -> tuple[str, dict[str, Body], dict[Platform, tuple[UnsupportedOp, ...]]]:
    imported = import_graph(graph, native)
    with ThreadPoolExecutor(max_workers=1) as pool:
        # torch-mlir runs in its own process; meanwhile the bodies are lowered here.
        text = pool.submit(_convert, worker, imported.text, len(graph.nodes))
        lowered = lower_bodies(imported.bodies.values())
        if failures := lowered.failures_on(platforms):
            raise UnsupportedOpError(unsupported_in(graph, failures))
        bodies = {name: lowered.bodies[call.signature()] for name, call in imported.bodies.items()}
        unsupported = {platform: unsupported_in(graph, lowered.failures_on([platform])) for platform in PLATFORMS}
        return text.result(), bodies, unsupported


def _convert(worker: Worker, text: str, nodes: int) -> str:
    _, blobs = worker.call(
        {"do": "convert"},
        {"module": text.encode()},
        what="torch-mlir's conversion",
        timeout=_SECONDS + _SECONDS_PER_NODE * nodes,
    )
    return blobs["module"].decode()


def _culprits(graph: torch.fx.Graph) -> set[str]:
    """Converts each native call alone, and returns the signatures of those that torch-mlir cannot take."""
    culprits: set[str] = set()
    calls: dict[str, torch.fx.Node] = {}
    for node in graph.nodes:
        if node.op == "call_function" and "val" in node.meta and is_native(call := call_of(node)):
            calls.setdefault(call.signature(), node)
    worker = Worker(WORKER)
    try:
        for signature, node in calls.items():
            alone = import_graph(_only(node), is_native)
            try:
                _convert(worker, alone.text, 1)
            except CrashError:
                culprits.add(signature)
                worker.close()
                worker = Worker(WORKER)
            except BackendError:
                culprits.add(signature)
    finally:
        worker.close()
    return culprits


def _only(node: torch.fx.Node) -> torch.fx.Graph:
    """A graph of one call, its tensors as placeholders."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for source in node.all_input_nodes:
        copies[source] = graph.placeholder(source.name)
        copies[source].meta = source.meta
    graph.output((graph.node_copy(node, copies.__getitem__),))
    return graph
