"""Nested inputs and outputs: a description of their structure, and the way to and from a flat list of tensors.

The description is JSON, so that the runtime can give a model's outputs back in the model's own structure without
importing the model's classes. A node is one of:

    3                                                   tensor number 3
    null                                                None
    {"value": x}                                        a bool, int, float or text that is part of the program;
                                                        x is {"float": "inf"} (or "-inf", "nan") where JSON has none
    {"tuple": [node, ...]}    {"list": [node, ...]}
    {"dict": [[key, node], ...]}                        keys are texts or ints
    {"namedtuple": {"name": "Pair", "fields": [["left", node], ...]}}
    {"record": {"type": "pkg.Output", "fields": [["logits", node], ...]}}     a dataclass, or a Hugging Face ModelOutput
"""

from __future__ import annotations

import dataclasses
import difflib
import keyword
import math
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from tpuc.runtime.errors import ArtifactError, InputError

#: How deeply structures may nest: far more than models use, far less than Python's recursion limit.
MAX_DEPTH = 64

Scalar: TypeAlias = bool | int | float | str
Key: TypeAlias = str | int
#: Writes the place of a part: from `batch` and `mask`, `batch["mask"]` or `batch.mask`.
PathText: TypeAlias = Callable[[str, Key], str]


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """A tensor, by its number."""

    index: int


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A Python value that became part of the program when it was compiled."""

    value: Scalar | None


@dataclass(frozen=True, kw_only=True)
class TupleNode:
    """A tuple."""

    items: tuple[Node, ...]


@dataclass(frozen=True, kw_only=True)
class ListNode:
    """A list."""

    items: tuple[Node, ...]


@dataclass(frozen=True, kw_only=True)
class DictNode:
    """A dict, in its order."""

    items: tuple[tuple[Key, Node], ...]


@dataclass(frozen=True, kw_only=True)
class NamedTupleNode:
    """A named tuple: the name of its class, and its fields in order."""

    name: str
    fields: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, kw_only=True)
class RecordNode:
    """An instance of a class with named fields: the full name of the class, and the fields in order."""

    type: str
    fields: tuple[tuple[str, Node], ...]


Node: TypeAlias = Leaf | Constant | TupleNode | ListNode | DictNode | NamedTupleNode | RecordNode


class Record(dict[str, Any]):
    """What stands where the model returned a dataclass or a ModelOutput: `out["logits"]`, `out.logits`, `out[0]`.

    Attributes:
        record_type: The full name of the model's class.
    """

    record_type: str = "Record"

    def __init__(self, record_type: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.record_type = record_type

    def __getattr__(self, name: str) -> Any:
        try:
            return dict.__getitem__(self, name)
        except KeyError:
            raise AttributeError(
                f"{_short(self.record_type)} has no field {name!r}; it has {', '.join(self)}"
            ) from None

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int | slice):
            return self.to_tuple()[key]
        return dict.__getitem__(self, key)

    def to_tuple(self) -> tuple[Any, ...]:
        """Returns the fields that are not None, in order: what integer indexing counts."""
        return tuple(value for value in self.values() if value is not None)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.items())
        return f"{_short(self.record_type)}({fields})"


@dataclass(frozen=True, kw_only=True)
class InputStructure:
    """How a program is called.

    Attributes:
        args: The positional arguments.
        kwargs: The keyword arguments.
        names: The names of the positional arguments, where they are known: they may be given by name too.
    """

    args: TupleNode
    kwargs: DictNode
    names: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: object, where: str = "input_structure") -> InputStructure:
        """Reads `{"args": node, "kwargs": node, "names": [text, ...]}`; the names may be missing.

        Raises:
            ArtifactError: It is something else; the place is named.
        """
        match value:
            case {"args": args, "kwargs": kwargs, **rest} if rest.keys() <= {"names"}:
                names = rest.get("names", [])
            case _:
                raise ArtifactError(f"{where}: expected an object with args, kwargs and names")
        positional = node_from_json(args, f"{where}.args")
        by_name = node_from_json(kwargs, f"{where}.kwargs")
        if not isinstance(positional, TupleNode):
            raise ArtifactError(f"{where}.args: expected a tuple")
        if not isinstance(by_name, DictNode) or not all(isinstance(key, str) for key, _ in by_name.items):
            raise ArtifactError(f"{where}.kwargs: expected a dict with texts as keys")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ArtifactError(f"{where}.names: expected an array of texts")
        return cls(args=positional, kwargs=by_name, names=tuple(names))

    def to_json(self) -> dict[str, object]:
        """Writes it as a value that `json.dumps` takes."""
        return {"args": node_to_json(self.args), "kwargs": node_to_json(self.kwargs), "names": list(self.names)}

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[int, tuple[str, Any]]:
        """Takes the arguments of a call apart into tensors.

        An argument that became part of the program when it was compiled may be left out.

        Returns:
            For each tensor's number its place, such as `batch["mask"]`, and the value there.

        Raises:
            InputError: Arguments are missing or unknown, structured otherwise, or differ from a constant.
        """
        names = [self._name(number) for number in range(len(self.args.items))]
        if len(args) > len(names):
            raise InputError(
                f"expected at most {len(names)} positional arguments, got {len(args)}", hint=self._call_hint()
            )
        expected = dict(zip(names, self.args.items, strict=True)) | {str(key): node for key, node in self.kwargs.items}
        twice = [name for name in names[: len(args)] if name in kwargs]
        given = dict(zip(names, args, strict=False)) | dict(kwargs)
        missing = [name for name, node in expected.items() if name not in given and not isinstance(node, Constant)]
        unknown = [name for name in given if name not in expected]
        problems = [f"{name} is given twice" for name in twice]
        problems += _name_problems(missing, unknown, list(expected), "", lambda _, name: str(name))
        if problems:
            raise InputError("\n".join(problems), hint=self._call_hint())
        found: dict[int, tuple[str, Any]] = {}
        for name, value in given.items():
            _flatten(expected[name], value, name, found)
        return found

    def _name(self, number: int) -> str:
        return self.names[number] if number < len(self.names) else f"args[{number}]"

    def _call_hint(self) -> str:
        names = [self._name(number) for number in range(len(self.args.items))]
        keywords = [f"{key}=..." for key, node in self.kwargs.items if not isinstance(node, Constant)]
        return f"Call it as program({', '.join(names + keywords)})."


def node_from_json(value: object, where: str = "structure", depth: int = 0) -> Node:
    """Reads a node from parsed JSON.

    Args:
        value: The parsed JSON.
        where: What it is, for errors.
        depth: How deeply it is nested already.

    Raises:
        ArtifactError: It describes no structure; the place is named.
    """
    if depth > MAX_DEPTH:
        raise ArtifactError(f"{where}: nested more than {MAX_DEPTH} deep")
    match value:
        case None:
            return Constant(value=None)
        case bool():
            raise ArtifactError(f"{where}: expected a node, got {value}")
        case int():
            if value < 0:
                raise ArtifactError(f"{where}: expected the number of a tensor, got {value}")
            return Leaf(index=value)
        case {"value": scalar, **rest} if not rest:
            return Constant(value=_scalar_from_json(scalar, where))
        case {"tuple": list(items), **rest} if not rest:
            return TupleNode(items=_items_from_json(items, where, depth))
        case {"list": list(items), **rest} if not rest:
            return ListNode(items=_items_from_json(items, where, depth))
        case {"dict": list(pairs), **rest} if not rest:
            return DictNode(items=_pairs_from_json(pairs, where, depth))
        case {"namedtuple": {"name": str(name), "fields": list(pairs), **more}, **rest} if not rest and not more:
            fields = _fields_from_json(pairs, where, depth)
            for text in (name, *(field for field, _ in fields)):
                _check_identifier(text, where)
            return NamedTupleNode(name=name, fields=fields)
        case {"record": {"type": str(name), "fields": list(pairs), **more}, **rest} if not rest and not more:
            return RecordNode(type=name, fields=_fields_from_json(pairs, where, depth))
        case _:
            raise ArtifactError(f"{where}: expected a node, got {_brief(value)}")


def node_to_json(node: Node) -> object:
    """Writes a node as a value that `json.dumps` takes."""
    match node:
        case Leaf(index=index):
            return index
        case Constant(value=None):
            return None
        case Constant(value=value):
            return {"value": {"float": str(value)} if isinstance(value, float) and not math.isfinite(value) else value}
        case TupleNode(items=items):
            return {"tuple": [node_to_json(item) for item in items]}
        case ListNode(items=items):
            return {"list": [node_to_json(item) for item in items]}
        case DictNode(items=pairs):
            return {"dict": [[key, node_to_json(item)] for key, item in pairs]}
        case NamedTupleNode(name=name, fields=fields):
            return {"namedtuple": {"name": name, "fields": [[field, node_to_json(item)] for field, item in fields]}}
        case RecordNode(type=name, fields=fields):
            return {"record": {"type": name, "fields": [[field, node_to_json(item)] for field, item in fields]}}


def leaves(node: Node) -> Iterator[int]:
    """Yields the numbers of the tensors in a structure, in order."""
    match node:
        case Leaf(index=index):
            yield index
        case Constant():
            return
        case TupleNode(items=items) | ListNode(items=items):
            for item in items:
                yield from leaves(item)
        case DictNode(items=pairs):
            for _, item in pairs:
                yield from leaves(item)
        case NamedTupleNode(fields=fields) | RecordNode(fields=fields):
            for _, item in fields:
                yield from leaves(item)


def unflatten(node: Node, values: Sequence[Any]) -> Any:
    """Builds the structure that a node describes.

    Args:
        node: The description.
        values: What to put in the place of each tensor, by number.
    """
    match node:
        case Leaf(index=index):
            return values[index]
        case Constant(value=value):
            return value
        case TupleNode(items=items):
            return tuple(unflatten(item, values) for item in items)
        case ListNode(items=items):
            return [unflatten(item, values) for item in items]
        case DictNode(items=pairs):
            return {key: unflatten(item, values) for key, item in pairs}
        case NamedTupleNode(name=name, fields=fields):
            names = tuple(field for field, _ in fields)
            return _namedtuple_class(name, names)(*(unflatten(item, values) for _, item in fields))
        case RecordNode(type=name, fields=fields):
            return Record(name, {field: unflatten(item, values) for field, item in fields})


def flatten(node: Node, value: Any, where: str) -> dict[int, tuple[str, Any]]:
    """Takes a value apart into the tensors of a structure.

    Where a dict or a record stands, any mapping, dataclass or named tuple with those names is taken; where a tuple
    or a list stands, either of them.

    Args:
        node: The structure.
        value: A value of that structure.
        where: What the value is called, for errors: `batch`.

    Returns:
        For each number its place, such as `batch["mask"]`, and the value there.

    Raises:
        InputError: The value is structured otherwise, or differs from a constant of the program.
    """
    found: dict[int, tuple[str, Any]] = {}
    _flatten(node, value, where, found)
    return found


def _flatten(node: Node, value: Any, where: str, found: dict[int, tuple[str, Any]]) -> None:
    match node:
        case Leaf(index=index):
            if value is None:
                raise InputError(f"{where}: expected a tensor, got None")
            found[index] = (where, value)
        case Constant(value=expected):
            _check_constant(expected, value, where)
        case TupleNode(items=items):
            _flatten_items(items, value, where, "tuple", found)
        case ListNode(items=items):
            _flatten_items(items, value, where, "list", found)
        case DictNode(items=pairs):
            given = _named_values(value, where, "a dict")
            _flatten_named(pairs, given, where, _item_path, found)
        case NamedTupleNode(name=name, fields=fields):
            if isinstance(value, tuple) and not hasattr(value, "_fields"):
                _flatten_items(tuple(item for _, item in fields), value, where, name, found)
                return
            _flatten_named(fields, _named_values(value, where, f"a {name}"), where, _field_path, found)
        case RecordNode(type=name, fields=fields):
            given = _named_values(value, where, f"a {_short(name)}, or a dict with its fields")
            # Fields that were None when the model was compiled may be absent, and absent ones may be None.
            absent = {key: None for key, item in fields if item == Constant(value=None)}
            known = {key for key, _ in fields}
            given = absent | {key: item for key, item in given.items() if key in known or item is not None}
            _flatten_named(fields, given, where, _field_path, found)


def _check_constant(expected: Scalar | None, value: Any, where: str) -> None:
    plain = value.item() if _is_array_scalar(value) else value
    both_nan = isinstance(expected, float) and isinstance(plain, float) and expected != expected and plain != plain
    if type(plain) is type(expected) and (both_nan or plain == expected):
        return
    raise InputError(
        f"{where}: expected {expected!r}, got {_brief(value)}",
        hint="It became part of the program when it was compiled; compile again to have another value.",
    )


def _is_array_scalar(value: Any) -> bool:
    return hasattr(value, "item") and getattr(value, "shape", None) == ()


def _item_path(where: str, key: Key) -> str:
    return f'{where}["{key}"]' if isinstance(key, str) else f"{where}[{key}]"


def _field_path(where: str, key: Key) -> str:
    return f"{where}.{key}"


def _flatten_items(
    items: tuple[Node, ...], value: Any, where: str, kind: str, found: dict[int, tuple[str, Any]]
) -> None:
    if not isinstance(value, tuple | list):
        raise InputError(f"{where}: expected a {kind} of {len(items)}, got {_brief(value)}")
    if len(value) != len(items):
        raise InputError(f"{where}: expected {len(items)} items, got {len(value)}")
    for number, (item, part) in enumerate(zip(items, value, strict=True)):
        _flatten(item, part, f"{where}[{number}]", found)


def _flatten_named(
    pairs: Sequence[tuple[Key, Node]],
    given: Mapping[Any, Any],
    where: str,
    path: PathText,
    found: dict[int, tuple[str, Any]],
) -> None:
    names = [key for key, _ in pairs]
    missing = [key for key in names if key not in given]
    unknown = [key for key in given if key not in names]
    if missing or unknown:
        raise InputError("\n".join(_name_problems(missing, unknown, names, where, path)))
    for key, item in pairs:
        _flatten(item, given[key], path(where, key), found)


def _name_problems(
    missing: Sequence[Key], unknown: Sequence[Any], names: Sequence[Key], where: str, path: PathText
) -> Iterator[str]:
    for key in missing:
        yield f"{path(where, key)} is missing"
    for key in unknown:
        near = difflib.get_close_matches(str(key), [str(name) for name in names], n=1)
        yield f"{path(where, key)} is unknown" + (f"; did you mean {near[0]}?" if near else "")


def _named_values(value: Any, where: str, expected: str) -> Mapping[Any, Any]:
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    raise InputError(f"{where}: expected {expected}, got {_brief(value)}")


@lru_cache(maxsize=256)
def _namedtuple_class(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name, fields)


def _items_from_json(items: list[Any], where: str, depth: int) -> tuple[Node, ...]:
    return tuple(node_from_json(item, f"{where}[{number}]", depth + 1) for number, item in enumerate(items))


def _pairs_from_json(pairs: list[Any], where: str, depth: int) -> tuple[tuple[Key, Node], ...]:
    read: dict[Key, Node] = {}
    for number, pair in enumerate(pairs):
        match pair:
            case [bool(), _]:
                raise ArtifactError(f"{where}[{number}]: a bool is no key")
            case [str() | int() as key, item] if key not in read:
                read[key] = node_from_json(item, f"{where}[{key!r}]", depth + 1)
            case [str() | int() as key, _]:
                raise ArtifactError(f"{where}: the key {key!r} stands there twice")
            case _:
                raise ArtifactError(f"{where}[{number}]: expected a key and a node, got {_brief(pair)}")
    return tuple(read.items())


def _fields_from_json(pairs: list[Any], where: str, depth: int) -> tuple[tuple[str, Node], ...]:
    fields = []
    for key, item in _pairs_from_json(pairs, where, depth):
        if not isinstance(key, str):
            raise ArtifactError(f"{where}: expected the name of a field, got {key}")
        fields.append((key, item))
    return tuple(fields)


def _scalar_from_json(value: object, where: str) -> Scalar:
    match value:
        case bool() | int() | float() | str():
            return value
        case {"float": "inf" | "-inf" | "nan" as text, **rest} if not rest:
            return float(text)
        case _:
            raise ArtifactError(f"{where}: expected a bool, a number or a text, got {_brief(value)}")


def _check_identifier(text: str, where: str) -> None:
    # What collections.namedtuple takes; anything else would be an error of Python's own, much later.
    if not text.isidentifier() or keyword.iskeyword(text) or text.startswith("_"):
        raise ArtifactError(f"{where}: {text!r} is not the name of a named tuple or of its field")


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _brief(value: object) -> str:
    """Names a value for an error: short ones by their text, others by their type."""
    if isinstance(value, bool | int | float | str | None):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" + (f" of shape {tuple(shape)}" if isinstance(shape, tuple) else "")
