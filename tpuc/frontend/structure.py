"""Describes the nested inputs and outputs of a program, in the form that `tpuc.runtime.structure` defines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch.utils import _pytree as pytree

from tpuc.errors import ExportError

Node = Any
_BAKED = (bool, int, float, str)


def describe(spec: pytree.TreeSpec, leaves: list[Node], what: str) -> Node:
    """Describes a structure.

    Args:
        spec: PyTorch's description.
        leaves: For each leaf its node: the index of a tensor, None, or {"value": constant}.
        what: What it is, for the error: `the inputs`.

    Raises:
        ExportError: A container that JSON cannot describe.
    """
    return _describe(pytree.tree_unflatten([_Leaf(node) for node in leaves], spec), what)


def constant(value: Any, what: str) -> Node:
    """Describes a Python value that is part of the program.

    Raises:
        ExportError: It is not None, a bool, a number or a text.
    """
    if value is None:
        return None
    if isinstance(value, _BAKED):
        return {"value": value}
    raise ExportError(f"{what} holds {value!r}: only tensors, None, bools, numbers and texts can be kept")


@dataclasses.dataclass(frozen=True)
class _Leaf:
    node: Node


def _describe(value: Any, what: str) -> Node:
    match value:
        case _Leaf(node):
            return node
        case None:
            return None
        case tuple() if hasattr(value, "_fields"):
            fields = [[name, _describe(item, what)] for name, item in zip(value._fields, value, strict=True)]
            return {"namedtuple": {"name": type(value).__name__, "fields": fields}}
        case tuple():
            return {"tuple": [_describe(item, what) for item in value]}
        case list():
            return {"list": [_describe(item, what) for item in value]}
        case _ if type(value) is dict:
            return {"dict": [[_key(key, what), _describe(item, what)] for key, item in value.items()]}
    kind = type(value)
    children = _children(value)
    if any(isinstance(key, pytree.SequenceKey) for key, _ in children):
        raise ExportError(f"{what} holds a {kind.__qualname__}, whose fields PyTorch's pytree does not name")
    fields = [[key_name(key), _describe(item, what)] for key, item in children]
    if dataclasses.is_dataclass(kind) and not isinstance(value, dict):
        # Fields that are None are not flattened, but the object has them.
        found = dict(fields)
        fields = [[field.name, found.get(field.name)] for field in dataclasses.fields(kind)]
    return {"record": {"type": f"{kind.__module__}.{kind.__qualname__}", "fields": fields}}


def _key(key: Any, what: str) -> Any:
    if isinstance(key, str | int):
        return key
    raise ExportError(f"{what} holds a dict with the key {key!r}: only texts and ints can be kept")


def key_name(key: Any) -> str:
    """Returns the text of a pytree key."""
    match key:
        case pytree.MappingKey(key=name):
            return str(name)
        case pytree.GetAttrKey(name=name):
            return str(name)
        case _:
            return str(key)


def leaf_paths(spec: pytree.TreeSpec) -> list[tuple[Any, ...]]:
    """Returns the path of pytree keys to each leaf."""
    return list(_leaf_paths(pytree.tree_unflatten(list(range(spec.num_leaves)), spec), ()))


def _leaf_paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, int):
        yield path
        return
    for key, child in _children(value):
        yield from _leaf_paths(child, (*path, key))


def _children(value: Any) -> list[tuple[Any, Any]]:
    """Returns what a container of PyTorch's pytree holds, by key.

    One that is registered without keys, as diffusers' outputs are, has those of the mapping that it is, or numbers.
    """
    registered = pytree.SUPPORTED_NODES[pytree._get_node_type(value)]
    if registered.flatten_with_keys_fn is not None:
        keyed: list[tuple[Any, Any]] = registered.flatten_with_keys_fn(value)[0]
        return keyed
    children, _ = registered.flatten_fn(value)
    if isinstance(value, Mapping) and list(value.values()) == children:
        return [(pytree.MappingKey(key), child) for key, child in zip(value, children, strict=True)]
    return [(pytree.SequenceKey(number), child) for number, child in enumerate(children)]


def path_text(path: Sequence[Any]) -> str:
    """Writes a path as Python would: `.mask[0]`; "" for none."""
    return "".join(f"[{key.idx}]" if isinstance(key, pytree.SequenceKey) else f".{key_name(key)}" for key in path)
