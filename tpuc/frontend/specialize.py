"""Gives a program that was exported with named sizes the numbers of one call.

torch.export proves that one graph serves every size within the bounds. Here that graph is copied with numbers in
place of the symbols: Python's arithmetic on sizes is carried out, and every tensor gets its static shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from tpuc.errors import ExportError
from tpuc.frontend.locations import location_of
from tpuc.lowerings.call import operator_name
from tpuc.lowerings.subgraphs import graphs_in, subgraphs_of

#: What a node computes when it is a Python number; such nodes leave the graph.
_NUMBERS = (bool, int, float)
#: What is copied of a node's description: where it comes from in the user's code.
_KEPT = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")


def specialize(program: ExportedProgram, shapes: Sequence[tuple[int, ...] | None]) -> ExportedProgram:
    """Copies a program with static shapes.

    Args:
        program: A program with symbolic sizes, all of which come from the shapes of inputs.
        shapes: The shape of each of the user's inputs, in order; None for those that are no tensors.

    Returns:
        The static program, which shares weights and subgraphs with the other.

    Raises:
        ExportError: A branch or a loop works on tensors whose size varies.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    given = iter(shapes)
    by_name = {
        spec.arg.name: next(given) if spec.kind is InputKind.USER_INPUT else None
        for spec in program.graph_signature.input_specs
    }
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, Any] = {}
    with mode, torch.no_grad():
        for node in program.graph.nodes:
            copies[node] = _copy(node, graph, copies, by_name)
    module = program.graph_module
    return ExportedProgram(
        root=module,
        graph=graph,
        graph_signature=program.graph_signature,
        state_dict=program.state_dict,
        range_constraints={},
        module_call_graph=program.module_call_graph,
        constants=program.constants,
        verifiers=program.verifiers,
    )


def _copy(
    node: torch.fx.Node,
    graph: torch.fx.Graph,
    copies: Mapping[torch.fx.Node, Any],
    shapes: Mapping[str, tuple[int, ...] | None],
) -> Any:
    """Copies a node into the new graph; what is a number by now is returned as such."""
    value = node.meta.get("val")
    if node.op == "placeholder":
        value = _placeholder(value, shapes.get(node.name))
    elif isinstance(node.target, torch._ops.HigherOrderOperator):
        value = _of_subgraphs(node)
    elif node.op == "call_function":
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda arg: _value_of(copies[arg]))
        assert callable(node.target)
        value = node.target(*args, **kwargs)
        if isinstance(value, _NUMBERS):
            return value
    copy = graph.node_copy(node, copies.__getitem__)
    # What else there is may hold symbols: `tensor_meta`.
    copy.meta = {key: node.meta[key] for key in _KEPT if key in node.meta}
    if "val" in node.meta:
        copy.meta["val"] = value
    return copy


def _value_of(copy: Any) -> Any:
    return copy.meta["val"] if isinstance(copy, torch.fx.Node) else copy


def _of_subgraphs(node: torch.fx.Node) -> Any:
    """Returns what a branch or a loop returns, if no size varies inside it.

    Raises:
        ExportError: One does: the graphs inside have symbols for it.
    """
    graphs = [graph for subgraph in subgraphs_of(node) for graph in graphs_in(subgraph)]
    inside = [each for graph in graphs for each in graph.nodes]
    for each in (node, *inside):
        for leaf in pytree.tree_leaves(each.meta.get("val")):
            sizes = leaf.shape if isinstance(leaf, torch.Tensor) else [leaf]
            if any(isinstance(size, torch.SymInt) for size in sizes):
                location = location_of(node)
                raise ExportError(
                    f"{operator_name(node.target)} works on tensors whose size varies",
                    where=location.place or None,
                    hint="Branches and loops take tensors of fixed sizes; give that dimension as a number.",
                )
    return pytree.tree_map_only(torch.Tensor, lambda tensor: _placeholder(tensor, None), node.meta["val"])


def _placeholder(value: Any, shape: tuple[int, ...] | None) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if shape is None:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    return torch.empty(shape, dtype=value.dtype)
