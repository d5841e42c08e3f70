"""Tests of nested inputs and outputs."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

from tpuc.runtime.errors import ArtifactError, InputError
from tpuc.runtime.structure import (
    MAX_DEPTH,
    Constant,
    DictNode,
    InputStructure,
    Leaf,
    NamedTupleNode,
    Record,
    RecordNode,
    TupleNode,
    flatten,
    leaves,
    node_from_json,
    node_to_json,
    unflatten,
)

NESTED = {
    "dict": [
        ["ids", 0],
        ["pair", {"namedtuple": {"name": "Pair", "fields": [["left", 1], ["right", {"list": [2, None]}]]}}],
        [7, {"tuple": [{"value": True}, {"value": 2.5}, {"value": "mean"}]}],
        ["out", {"record": {"type": "pkg.models.Output", "fields": [["logits", 3], ["loss", None]]}}],
    ]
}
Pair = namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Output:
    logits: Any
    loss: Any = None


def value(out: Any) -> dict[Any, Any]:
    return {"ids": "a", "pair": Pair("b", ["c", None]), 7: (True, 2.5, "mean"), "out": out}


def test_json_and_back() -> None:
    node = node_from_json(NESTED)
    assert json.loads(json.dumps(node_to_json(node))) == NESTED
    assert list(leaves(node)) == [0, 1, 2, 3]


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_constants_without_a_json_number(number: float) -> None:
    node = Constant(value=number)
    text = json.dumps(node_to_json(node), allow_nan=False)
    assert flatten(node_from_json(json.loads(text)), number, "x") == {}


def test_unflatten_builds_the_structure() -> None:
    built = unflatten(node_from_json(NESTED), ["a", "b", "c", "d"])
    assert built["ids"] == "a"
    assert built["pair"] == ("b", ["c", None])
    assert built["pair"].right == ["c", None]
    assert type(built["pair"]).__name__ == "Pair"
    assert built[7] == (True, 2.5, "mean")
    assert built["out"].logits == "d"


@pytest.mark.parametrize(
    "out",
    [
        Output("d"),
        {"logits": "d"},
        {"logits": "d", "loss": None},
        OrderedDict(logits="d"),
        Record("O", {"logits": "d"}),
    ],
)
def test_flatten_takes_whatever_has_the_fields(out: Any) -> None:
    found = flatten(node_from_json(NESTED), value(out), "batch")
    places = {number: place for number, (place, _) in found.items()}
    assert [found[number][1] for number in range(4)] == ["a", "b", "c", "d"]
    assert places == {
        0: 'batch["ids"]',
        1: 'batch["pair"].left',
        2: 'batch["pair"].right[0]',
        3: 'batch["out"].logits',
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": None}, r'batch\["ids"\]: expected a tensor, got None'),
        ({"pair": "text"}, r'batch\["pair"\]: expected a Pair, got \'text\''),
        ({"pair": Pair("b", "c")}, r'batch\["pair"\].right: expected a list of 2, got \'c\''),
        ({"pair": Pair("b", ["c"])}, r'batch\["pair"\].right: expected 2 items, got 1'),
        ({"pair": Pair("b", ["c", "d"])}, r'batch\["pair"\].right\[1\]: expected None, got \'d\''),
        ({7: (1, 2.5, "mean")}, r"batch\[7\]\[0\]: expected True, got 1"),
        ({7: (True, 2.5, "sum")}, r"batch\[7\]\[2\]: expected 'mean', got 'sum'"),
        ({"out": Output("d", loss="e")}, r'batch\["out"\].loss: expected None, got \'e\''),
        ({"out": {"logit": "d"}}, r'(?s)batch\["out"\].logits is missing.*logit is unknown; did you mean logits\?'),
        ({"extra": 1}, r'batch\["extra"\] is unknown'),
    ],
)
def test_errors_name_the_place(change: dict[Any, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        flatten(node_from_json(NESTED), value(Output("d")) | change, "batch")


def test_a_missing_key_is_named() -> None:
    with pytest.raises(InputError, match=r'batch\["mask"\] is missing'):
        flatten(DictNode(items=(("mask", Leaf(index=0)),)), {}, "batch")


def test_a_constant_may_be_a_numpy_scalar() -> None:
    assert flatten(Constant(value=3), np.int64(3), "x") == {}
    with pytest.raises(InputError, match="expected 3"):
        flatten(Constant(value=3), np.int64(4), "x")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (-1, "expected the number of a tensor"),
        (True, "expected a node"),
        (1.5, "expected a node"),
        ("text", "expected a node"),
        ({}, "expected a node"),
        ({"tuple": [0], "list": [0]}, "expected a node"),
        ({"value": [1]}, "expected a bool, a number or a text"),
        ({"value": {"float": "1"}}, "expected a bool, a number or a text"),
        ({"dict": [["a", 0], ["a", 1]]}, "'a' stands there twice"),
        ({"dict": [[1.5, 0]]}, "expected a key and a node"),
        ({"dict": [[True, 0]]}, "a bool is no key"),
        ({"record": {"type": "T", "fields": [[1, 0]]}}, "expected the name of a field"),
        ({"namedtuple": {"name": "class", "fields": []}}, "'class' is not the name"),
        ({"namedtuple": {"name": "T", "fields": [["_x", 0]]}}, "'_x' is not the name"),
        ({"namedtuple": {"name": "T", "fields": [["a b", 0]]}}, "'a b' is not the name"),
    ],
)
def test_json_that_describes_nothing_is_refused(data: object, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        node_from_json(data)


def test_deep_nesting_is_refused() -> None:
    data: object = 0
    for _ in range(MAX_DEPTH + 1):
        data = {"tuple": [data]}
    with pytest.raises(ArtifactError, match="deep"):
        node_from_json(data)


class TestRecord:
    record = Record("pkg.models.Output", {"logits": 1, "hidden": None, "loss": 2})

    def test_access(self) -> None:
        assert self.record.logits == self.record["logits"] == self.record[0] == 1
        assert self.record.hidden is None
        assert self.record[1] == 2
        assert self.record[:] == self.record.to_tuple() == (1, 2)

    def test_repr_has_the_short_name(self) -> None:
        assert repr(self.record) == "Output(logits=1, hidden=None, loss=2)"

    def test_an_unknown_field_is_an_attribute_error(self) -> None:
        with pytest.raises(AttributeError, match="Output has no field 'logit'; it has logits, hidden, loss"):
            _ = self.record.logit

    def test_it_can_be_copied(self) -> None:
        copied = copy.deepcopy(self.record)
        assert copied == self.record
        assert repr(copied) == repr(self.record)


class TestInputStructure:
    structure = InputStructure(
        args=TupleNode(items=(Leaf(index=0), DictNode(items=(("mask", Leaf(index=1)),)), Constant(value=False))),
        kwargs=DictNode(items=(("scale", Leaf(index=2)), ("mode", Constant(value="mean")))),
        names=("x", "batch", "flag"),
    )

    @pytest.mark.parametrize(
        ("args", "kwargs"),
        [
            (("a", {"mask": "b"}, False), {"scale": "c", "mode": "mean"}),
            (("a", {"mask": "b"}), {"scale": "c"}),
            (("a",), {"batch": {"mask": "b"}, "scale": "c"}),
            ((), {"x": "a", "batch": {"mask": "b"}, "flag": False, "scale": "c"}),
        ],
    )
    def test_bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found = self.structure.bind(args, kwargs)
        assert found == {0: ("x", "a"), 1: ('batch["mask"]', "b"), 2: ("scale", "c")}

    @pytest.mark.parametrize(
        ("args", "kwargs", "message"),
        [
            (("a",), {}, "(?s)batch is missing.*scale is missing.*Call it as program"),
            (("a", {"mask": "b"}), {"scal": "c"}, "(?s)scale is missing.*scal is unknown; did you mean scale"),
            (("a", {"mask": "b"}), {"scale": "c", "x": "a"}, "x is given twice"),
            (("a", {"mask": "b"}, False, 1), {"scale": "c"}, "at most 3 positional arguments, got 4"),
            (("a", {"mask": "b"}, True), {"scale": "c"}, "flag: expected False, got True"),
            (("a", {"mask": "b"}), {"scale": "c", "mode": "sum"}, "mode: expected 'mean', got 'sum'"),
        ],
    )
    def test_calls_that_do_not_fit(self, args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            self.structure.bind(args, kwargs)

    def test_names_that_are_not_known(self) -> None:
        structure = InputStructure(args=TupleNode(items=(Leaf(index=0),)), kwargs=DictNode(items=()))
        assert structure.bind(("a",), {}) == {0: ("args[0]", "a")}
        with pytest.raises(InputError, match=r"args\[0\] is missing"):
            structure.bind((), {})


def test_named_tuples_of_one_shape_share_a_class() -> None:
    node = NamedTupleNode(name="Pair", fields=(("left", Leaf(index=0)),))
    assert type(unflatten(node, [1])) is type(unflatten(node, [2]))


def test_records_keep_the_name_of_their_class() -> None:
    record = unflatten(RecordNode(type="pkg.Output", fields=(("y", Leaf(index=0)),)), [1])
    assert record.record_type == "pkg.Output"
