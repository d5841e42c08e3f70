"""What depends on the values of tensors: sizes, which are refused, and Python numbers, which become tensors.

`x.item()` is a number in an exported graph, and so is what Python computes from it. A compiled program has tensors
only, so each of them becomes one of no dimensions: i64, f64 or bool.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from tpuc.errors import UnsupportedOp, UnsupportedOpError
from tpuc.fake import fake_mode_of
from tpuc.frontend.locations import location_of
from tpuc.lowerings.call import operator_name
from tpuc.lowerings.subgraphs import graphs_in

_FIRST_PLACES = "torch.nonzero_static(x, size=n) gives the first n places, and -1 behind them."
_CHOSEN = (
    "With a bound n: x[tuple(torch.nonzero_static(mask, size=n).T)] gives the first n elements; those from "
    "mask.sum() on are no elements. docs/dynamic.md has more."
)
_UNIQUE = (
    "With a bound n: sort, and choose the elements that differ from the one before with torch.nonzero_static(..., "
    "size=n). docs/dynamic.md has more."
)
_COMPUTED_START = "x.index_select(dim, start + torch.arange(n)) takes n elements from a start that is computed."
#: What has a static size in place of an operator that has none.
_STATIC_FORMS = {
    "aten._unique2.default": _UNIQUE,
    "aten.argwhere.default": _FIRST_PLACES,
    "aten.bincount.default": "torch.zeros(n).index_add(0, x, weights) counts into n bins.",
    "aten.index.Tensor": _CHOSEN,
    "aten.masked_select.default": _CHOSEN,
    "aten.narrow.default": _COMPUTED_START,
    "aten.nonzero.default": _FIRST_PLACES,
    "aten.repeat_interleave.self_Tensor": "Give output_size, the sum of the repeats.",
    "aten.repeat_interleave.Tensor": "Give output_size, the sum of the repeats.",
    "aten.slice.Tensor": _COMPUTED_START,
    "aten.tensor_split.tensor_indices_or_sections": "Give the indices as a list of numbers.",
    "aten.unique_consecutive.default": _UNIQUE,
    "aten.unique_dim.default": _UNIQUE,
}
_READS = frozenset({"aten.item.default", "aten._local_scalar_dense.default"})
_DTYPES = {torch.SymInt: torch.int64, torch.SymFloat: torch.float64, torch.SymBool: torch.bool}
#: The operators on tensors that compute what Python's compute on numbers.
_ARITHMETIC: dict[Any, Any] = {
    operator.add: torch.ops.aten.add.Tensor,
    operator.sub: torch.ops.aten.sub.Tensor,
    operator.mul: torch.ops.aten.mul.Tensor,
    operator.truediv: torch.ops.aten.div.Tensor,
    operator.floordiv: torch.ops.aten.floor_divide.default,
    operator.mod: torch.ops.aten.remainder.Tensor,
    operator.pow: torch.ops.aten.pow.Tensor_Tensor,
    operator.neg: torch.ops.aten.neg.default,
    operator.eq: torch.ops.aten.eq.Tensor,
    operator.ne: torch.ops.aten.ne.Tensor,
    operator.lt: torch.ops.aten.lt.Tensor,
    operator.le: torch.ops.aten.le.Tensor,
    operator.gt: torch.ops.aten.gt.Tensor,
    operator.ge: torch.ops.aten.ge.Tensor,
    torch.sym_max: torch.ops.aten.maximum.default,
    torch.sym_min: torch.ops.aten.minimum.default,
    torch.sym_not: torch.ops.aten.logical_not.default,
    torch.sym_ite: torch.ops.aten.where.self,
    torch.sym_float: torch.ops.tpuc.number.default,
}


def refuse_dynamic_sizes(graph: torch.fx.Graph) -> None:
    """Checks that no tensor has a size that depends on the data.

    Raises:
        UnsupportedOpError: The operators at which such sizes begin, all of them.
    """
    refused = []
    for node in _nodes_in(graph):
        if (
            node.op != "call_function"
            or not _has_dynamic_size(node)
            or any(map(_has_dynamic_size, node.all_input_nodes))
        ):
            continue
        name, location = operator_name(node.target), location_of(node)
        refused.append(
            UnsupportedOp(
                operator=name,
                reason="its result has a size that depends on the data",
                location=location.place,
                module=location.module,
                hint=_STATIC_FORMS.get(name, "Keep the shape, and choose elements with torch.where."),
            )
        )
    if refused:
        raise UnsupportedOpError(tuple(refused))


def numbers_to_tensors(graph: torch.fx.Graph) -> None:
    """Turns the Python numbers of a graph whose tensors have static sizes into tensors, in place.

    Raises:
        UnsupportedOpError: What Python computes from such a number has no operator on tensors.
    """
    mode = fake_mode_of(graph)
    refused = []
    for node in _nodes_in(graph):
        if not any(isinstance(leaf, tuple(_DTYPES)) for leaf in pytree.tree_leaves(node.meta.get("val"))):
            continue
        if not _is_arithmetic(node):
            # What a loop carries as a number, it carries as a tensor.
            _make_tensors(node, mode)
            continue
        target = torch.ops.tpuc.number.default if str(node.target) in _READS else _ARITHMETIC.get(node.target)
        if target is None:
            location = location_of(node)
            refused.append(
                UnsupportedOp(
                    operator=operator_name(node.target),
                    reason="its result is a Python number that depends on the data",
                    location=location.place,
                    module=location.module,
                    hint="Keep it a tensor: leave out .item().",
                )
            )
            continue
        node.target = target
        _make_tensors(node, mode)
    if refused:
        raise UnsupportedOpError(tuple(refused))


def _nodes_in(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    for each in graphs_in(graph):
        yield from each.nodes


def _is_arithmetic(node: torch.fx.Node) -> bool:
    """Whether a node computes a number, and not just takes it from a higher-order operator, or hands it to a body."""
    if node.op != "call_function" or isinstance(node.target, torch._ops.HigherOrderOperator):
        return False
    return node.target is not operator.getitem


def _make_tensors(node: torch.fx.Node, mode: FakeTensorMode | None) -> None:
    """Lets a node's result hold tensors of no dimensions in place of numbers."""

    def tensor(number: torch.SymInt | torch.SymFloat | torch.SymBool) -> torch.Tensor:
        return torch.empty((), dtype=_DTYPES[type(number)])

    with mode or nullcontext():
        node.meta["val"] = pytree.tree_map_only(tuple(_DTYPES), tensor, node.meta["val"])


def _has_dynamic_size(node: torch.fx.Node) -> bool:
    return any(
        isinstance(leaf, torch.Tensor) and not all(isinstance(size, int) for size in leaf.shape)
        for leaf in pytree.tree_leaves(node.meta.get("val"))
    )
