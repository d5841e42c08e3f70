"""The graphs that a graph's higher-order operators take: branches, and the bodies of loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def attribute_of(node: torch.fx.Node) -> Any:
    """Returns what a `get_attr` node names: a tensor, or the `GraphModule` of a branch or a body."""
    value: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value


def subgraphs_of(node: torch.fx.Node) -> list[torch.fx.Graph]:
    """Returns the graphs that a higher-order operator's node takes as arguments."""
    values = [attribute_of(source) for source in node.all_input_nodes if source.op == "get_attr"]
    return [value.graph for value in values if isinstance(value, torch.fx.GraphModule)]


def graphs_in(graph: torch.fx.Graph) -> Iterator[torch.fx.Graph]:
    """Yields a graph and, each after the one that uses it, all below it."""
    yield graph
    for node in graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.HigherOrderOperator):
            for subgraph in subgraphs_of(node):
                yield from graphs_in(subgraph)
