"""Gives a program that was exported with named sizes the numbers of one call.

torch.export proves that one graph serves every size within the bounds. Here that graph is copied with numbers in
place of the symbols: Python's arithmetic on sizes is carried out, and every tensor gets its static shape. The graphs
of branches and loops are copied with it, since they have the same symbols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from tpuc.errors import ExportError
from tpuc.frontend.locations import location_of
from tpuc.lowerings.subgraphs import attribute_of

#: The number of each symbol.
Sizes: TypeAlias = "Mapping[sympy.Symbol, int]"

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
        The static program, which shares weights with the other.

    Raises:
        ExportError: A branch or a loop works on tensors whose size depends on data.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    with mode, torch.no_grad():
        copy = _Specializer(symbol_values(program, shapes)).copy(program.graph, "")
    return ExportedProgram(
        root=dict(copy.attributes),
        graph=copy.graph,
        graph_signature=program.graph_signature,
        state_dict=program.state_dict,
        range_constraints={},
        module_call_graph=program.module_call_graph,
        constants=program.constants,
        verifiers=program.verifiers,
    )


def symbol_values(program: ExportedProgram, shapes: Sequence[tuple[int, ...] | None]) -> Sizes:
    """Solves the dimensions of the inputs, each of which is linear in one symbol, for the symbols.

    Args:
        program: A program with symbolic sizes.
        shapes: The shape of each of the user's inputs, as for `specialize`.
    """
    inputs = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    sizes: dict[sympy.Symbol, int] = {}
    for name, shape in zip(program.graph_signature.user_inputs, shapes, strict=True):
        if shape is None:
            continue
        for dim, number in zip(inputs[str(name)].meta["val"].shape, shape, strict=True):
            if isinstance(dim, torch.SymInt):
                (symbol,) = dim.node.expr.free_symbols
                offset = dim.node.expr.subs(symbol, 0)
                sizes[symbol] = int((number - offset) / (dim.node.expr.subs(symbol, 1) - offset))
    return sizes


@dataclass(frozen=True, kw_only=True)
class _Copy:
    """A graph of static shapes.

    Attributes:
        graph: The graph.
        attributes: What its `get_attr` nodes name.
    """

    graph: torch.fx.Graph
    attributes: Mapping[str, Any]

    def module(self) -> torch.fx.GraphModule:
        """Makes a module of it."""
        return torch.fx.GraphModule(dict(self.attributes), self.graph)


class _Specializer:
    """Copies graphs with numbers in place of symbols."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes

    def copy(self, graph: torch.fx.Graph, place: str) -> _Copy:
        """Copies a graph and those of the branches and loops in it.

        Args:
            graph: The graph.
            place: The user's line of the branch or loop that it is for.
        """
        new = torch.fx.Graph()
        attributes: dict[str, Any] = {}
        copies: dict[torch.fx.Node, Any] = {}
        for node in graph.nodes:
            if node.op == "get_attr":
                value = attribute_of(node)
                if isinstance(value, torch.fx.GraphModule):
                    value = self.copy(value.graph, location_of(next(iter(node.users))).place).module()
                attributes[str(node.target)] = value
            copies[node] = self._copy_node(node, new, copies, place)
        return _Copy(graph=new, attributes=attributes)

    def _copy_node(
        self, node: torch.fx.Node, graph: torch.fx.Graph, copies: Mapping[torch.fx.Node, Any], place: str
    ) -> Any:
        """Copies a node into the new graph; what is a number by now is returned as such."""
        value = node.meta.get("val")
        if node.op == "placeholder" or isinstance(node.target, torch._ops.HigherOrderOperator):
            own_place = location_of(node).place or place
            value = pytree.tree_map(lambda leaf: self._at_sizes(leaf, own_place), value)
        elif node.op == "call_function":
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda arg: _value_of(copies[arg]))
            assert callable(node.target)
            value = node.target(*args, **kwargs)
            if isinstance(value, _NUMBERS):
                return value
        copy = graph.node_copy(node, copies.__getitem__)
        if node.op == "placeholder":
            # The signature goes by names, and fx would rename what is one of Python's own, such as `input`.
            copy.name = node.name
        # What else there is may hold symbols: `tensor_meta`.
        copy.meta = {key: node.meta[key] for key in _KEPT if key in node.meta}
        if "val" in node.meta:
            copy.meta["val"] = value
        # A size that a branch or a loop takes has a place among its arguments, but nobody reads it there.
        return value if isinstance(node.meta.get("val"), torch.SymInt) and isinstance(value, int) else copy

    def _at_sizes(self, value: Any, place: str) -> Any:
        """Returns a value with numbers in place of symbols."""
        if isinstance(value, torch.SymInt):
            return self._number(value, place)
        if not isinstance(value, torch.Tensor):
            return value
        if any(isinstance(size, torch.SymInt) for size in value.shape):
            return torch.empty([self._number(size, place) for size in value.shape], dtype=value.dtype)
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)

    def _number(self, size: int | torch.SymInt, place: str) -> int:
        if isinstance(size, int):
            return size
        if not size.node.expr.free_symbols <= self._sizes.keys():
            raise ExportError(
                "a branch or a loop works on a number that depends on data",
                where=place or None,
                hint="Let a loop carry a tensor in its place, and let sizes be those of inputs.",
            )
        return int(size.node.expr.subs(self._sizes))


def _value_of(copy: Any) -> Any:
    return copy.meta["val"] if isinstance(copy, torch.fx.Node) else copy
