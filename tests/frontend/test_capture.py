"""Capturing modules: arguments, state, structure, and the errors of export."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tpuc.errors import ExportError
from tpuc.frontend.capture import Capture, capture, export
from tpuc.lowerings.call import TensorMeta


def _capture(module: nn.Module, *args: Any, **kwargs: Any) -> Capture:
    return capture(export(module, args, kwargs))


def _arguments(captured: Capture) -> list[tuple[str, str]]:
    return [(argument.kind, argument.name) for argument in captured.arguments]


def _results(captured: Capture) -> list[tuple[str, str]]:
    return [(result.kind, result.name) for result in captured.results]


class _Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.unused = nn.Linear(3, 4)
        self.scale = torch.full((4,), 2.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) * self.scale


def test_weights_lead_and_what_nobody_reads_is_left_out() -> None:
    captured = _capture(_Linear(), torch.zeros(2, 3))
    assert _arguments(captured) == [
        ("weight", "fc.weight"),
        ("weight", "fc.bias"),
        ("weight", "scale"),
        ("input", "x"),
    ]
    assert [argument.origin for argument in captured.arguments] == ["parameter", "parameter", "constant", ""]
    assert captured.arguments[3].meta == TensorMeta(shape=(2, 3), dtype=torch.float32)
    assert _results(captured) == [("output", "output")]
    assert captured.parameters == 16


def test_tied_weights_are_one_argument() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3, bias=False)
            self.b = nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x))

    captured = _capture(Tied(), torch.zeros(2, 3))
    weight, _ = captured.arguments
    assert {weight.name, *weight.aliases} == {"a.weight", "b.weight"}


class _Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.calls: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.norm(x) * self.calls


def test_what_forward_writes_to_is_state() -> None:
    captured = _capture(_Counter().train(), torch.zeros(2, 3))
    state = {"calls", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert {name for kind, name in _arguments(captured) if kind == "state"} == state
    assert {name for kind, name in _results(captured) if kind == "state"} == state
    assert _results(captured)[-1] == ("output", "output")


def test_in_inference_mode_only_the_counter_is() -> None:
    captured = _capture(_Counter().eval(), torch.zeros(2, 3))
    assert [name for kind, name in _arguments(captured) if kind == "state"] == ["calls"]


def test_writing_to_an_input_is_noted() -> None:
    class Writes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.add_(1)

    captured = _capture(Writes(), torch.zeros(2))
    assert captured.notes == ("forward writes to its input 'x'; a compiled program leaves its inputs alone",)
    assert _results(captured) == [("output", "output")]


class _Pair(NamedTuple):
    left: Tensor
    right: Tensor


@dataclass
class _Record:
    total: Tensor
    extra: Tensor | None = None


torch.export.register_dataclass(_Record, serialized_type_name="tests._Record")


class _Mapping(dict[str, Any]):
    """Registered without keys, as the outputs of diffusers are."""


class _Opaque:
    def __init__(self, total: Any) -> None:
        self.total = total


pytree.register_pytree_node(
    _Mapping, lambda m: (list(m.values()), list(m)), lambda v, k: _Mapping(zip(k, v, strict=True))
)
pytree.register_pytree_node(_Opaque, lambda opaque: ([opaque.total], None), lambda values, _: _Opaque(*values))


class _Nested(nn.Module):
    def forward(self, batch: dict[str, Any], *rest: Tensor, flag: bool = False, none: Any = None) -> dict[str, Any]:
        x = batch["x"] + batch["pieces"][0] + rest[0]
        return {
            "pair": _Pair(x, x + 1),
            "record": _Record(x.sum()),
            "flag": flag,
            "list": [x, (x,)],
            "same": batch["x"],
        }


def test_nested_structures_are_described() -> None:
    x = torch.ones(2)
    captured = _capture(_Nested(), {"x": x, "pieces": (x, x)}, x, flag=True, none=None)
    assert [name for _, name in _arguments(captured)] == ["batch.x", "batch.pieces[0]", "batch.pieces[1]", "rest_0"]
    assert captured.positional_names == ("batch", "rest_0")
    assert captured.input_structure == {
        "args": {"tuple": [{"dict": [["x", 0], ["pieces", {"tuple": [1, 2]}]]}, 3]},
        "kwargs": {"dict": [["flag", {"value": True}], ["none", None]]},
    }
    assert captured.output_structure == {
        "dict": [
            ["pair", {"namedtuple": {"name": "_Pair", "fields": [["left", 0], ["right", 1]]}}],
            ["record", {"record": {"type": f"{__name__}._Record", "fields": [["total", 2], ["extra", None]]}}],
            ["flag", {"value": True}],
            ["list", {"list": [3, {"tuple": [4]}]}],
            ["same", 5],
        ]
    }
    assert [name for _, name in _results(captured)] == [
        "pair.left",
        "pair.right",
        "record.total",
        "list[0]",
        "list[1][0]",
        "same",
    ]


class _Returns(nn.Module):
    def __init__(self, kind: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self._kind = kind

    def forward(self, x: Tensor) -> Any:
        return self._kind(x)


def test_a_container_that_names_its_fields_as_a_mapping_only() -> None:
    captured = _capture(_Returns(lambda x: (_Mapping(sample=x + 1, rest=(x,)),)), torch.zeros(2))
    assert _results(captured) == [("output", "output[0].sample"), ("output", "output[0].rest[0]")]
    fields = [["sample", 0], ["rest", {"tuple": [1]}]]
    assert captured.output_structure == {"tuple": [{"record": {"type": f"{__name__}._Mapping", "fields": fields}}]}


def test_a_container_without_names_is_refused() -> None:
    with pytest.raises(ExportError, match="the outputs holds a _Opaque, whose fields"):
        _capture(_Returns(_Opaque), torch.zeros(2))


def test_inputs_that_are_views_of_each_other() -> None:
    class Sum(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

    x = torch.arange(3.0)
    captured = capture(export(Sum(), (x[:, None], x), {}))
    assert [argument.meta.shape for argument in captured.arguments] == [(3, 1), (3,)]


def test_inputs_that_forward_does_not_take() -> None:
    with pytest.raises(ExportError, match=r"do not fit forward\(x: .*Tensor"):
        export(_Linear(), (torch.zeros(2, 3), torch.zeros(1)), {})


def test_inputs_of_another_shape_name_the_line() -> None:
    with pytest.raises(ExportError, match="RuntimeError") as error:
        export(_Linear(), (torch.zeros(2, 7),), {})
    assert error.value.where == f"{__file__}:{_line('return self.fc(x) * self.scale')}"


class _DataDependent(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:  # a choice by value
            return x
        return -x


def test_a_choice_by_value_names_the_line_and_a_way_out() -> None:
    with pytest.raises(ExportError, match="depends on the values of its tensors") as error:
        export(_DataDependent(), (torch.zeros(2),), {})
    assert error.value.where == f"{__file__}:{_line('if x.sum() > 0:  # a choice by value')}"
    assert "torch.where or torch.cond" in (error.value.hint or "")


def _line(text: str) -> int:
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if line.strip() == text)


def test_a_function_that_is_mapped_over_a_dimension_is_captured_as_operators() -> None:
    class Mapped(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return torch.vmap(torch.dot)(x, y)

    captured = _capture(Mapped(), torch.zeros(3, 4), torch.zeros(3, 4))
    targets = [node.target for node in captured.graph.nodes if node.op == "call_function"]
    assert all(isinstance(target, torch._ops.OpOverload) for target in targets)


def test_a_tensor_that_is_resized_when_it_is_new_has_its_size_at_once() -> None:
    class Resized(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            output = x.new().resize_as_(x)
            output.copy_(x)[0].zero_()
            return output + x.new().resize_(2, 3).fill_(1.0)

    captured = _capture(Resized(), torch.zeros(2, 3))
    assert captured.results[0].meta == TensorMeta(shape=(2, 3), dtype=torch.float32)
    assert "resize" not in str(captured.graph)
