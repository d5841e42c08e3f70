"""Gives a program that was exported with named sizes the numbers of one call.

torch.export proves that one graph serves every size within the bounds. Here that graph is copied with numbers in
place of the symbols: Python's arithmetic on sizes is carried out, and every tensor gets its static shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.experimental.symbolic_shapes import ShapeEnv

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
            copies[node] = _copy(node, graph, copies, mode, by_name)
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
    mode: FakeTensorMode,
    shapes: Mapping[str, tuple[int, ...] | None],
) -> Any:
    """Copies a node into the new graph; what is a number by now is returned as such."""
    value: Any
    if node.op == "placeholder":
        value = _placeholder(node.meta["val"], mode, shapes.get(node.name))
    elif node.op == "call_function" and "val" in node.meta:
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda arg: _value_of(copies[arg]))
        value = node.target(*args, **kwargs)  # type: ignore[operator]
        if isinstance(value, _NUMBERS):
            return value
    else:
        value = node.meta.get("val")
    copy = graph.node_copy(node, copies.__getitem__)
    # What else there is may hold symbols: `tensor_meta`.
    copy.meta = {key: node.meta[key] for key in _KEPT if key in node.meta}
    if "val" in node.meta:
        copy.meta["val"] = value
    return copy


def _value_of(copy: Any) -> Any:
    if not isinstance(copy, torch.fx.Node):
        return copy
    if copy.op == "get_attr":
        return _attribute(copy)
    return copy.meta["val"]


def _attribute(node: torch.fx.Node) -> Any:
    raise NotImplementedError(node.target)


def _placeholder(value: Any, mode: FakeTensorMode, shape: tuple[int, ...] | None) -> Any:
    if not isinstance(value, FakeTensor):
        return value
    if shape is None:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    return torch.empty(shape, dtype=value.dtype)
