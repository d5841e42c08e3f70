"""From a graph to StableHLO: locations, state, platforms, and what happens when torch-mlir or a lowering fails."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from jaxlib.mlir import ir
from torch import Tensor, nn

from tpuc import mlir
from tpuc.errors import UnsupportedOpError
from tpuc.frontend import stablehlo
from tpuc.frontend.capture import capture, export
from tpuc.frontend.stablehlo import WORKER, Lowered, lower
from tpuc.lowerings.call import OpCall
from tpuc.worker import Worker


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(WORKER) as worker:
        yield worker


def _lower(module: nn.Module, worker: Worker, *args: Any) -> Lowered:
    return lower(capture(export(module, args, {})), worker)


def _operations(module: ir.Module) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.fc = nn.Linear(8, 4)
        self.register_buffer("count", torch.zeros(()))
        self.count: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return torch.tanh(self.fc(self.norm(x))) + self.count


def test_calls_are_linked_and_every_operation_knows_its_line(worker: Worker) -> None:
    with mlir.make_context() as context:
        module = _lower(_Net(), worker, torch.zeros(2, 8)).module("cpu", context)
        names = {op.name for op in _operations(module)}
        assert "func.call" not in names
        assert len(module.body.operations) == 1
        for op in _operations(module):
            if op.name.startswith(("stablehlo.", "chlo.")) and op.name not in (
                "stablehlo.constant",
                "stablehlo.return",
            ):
                assert f'"{__file__}":' in str(op.location), op.name
        text = mlir.to_text(module, locations=True)
    assert 'loc("norm/layer_norm"(' in text
    assert 'loc("fc/linear"(' in text
    assert 'loc("tanh"(' in text


def test_arguments_are_named_and_state_is_donated(worker: Worker) -> None:
    with mlir.make_context() as context:
        module = _lower(_Net(), worker, torch.zeros(2, 8)).module("cpu", context)
        attributes = [ir.DictAttr(attribute) for attribute in module.body.operations[0].attributes["arg_attrs"]]
        names = [ir.StringAttr(each["tpuc.argument"]).value for each in attributes]
        donated = {
            name: str(each["tf.aliasing_output"])
            for name, each in zip(names, attributes, strict=True)
            if "tf.aliasing_output" in each
        }
    assert names == [
        "weight:norm.weight",
        "weight:norm.bias",
        "weight:fc.weight",
        "weight:fc.bias",
        "state:count",
        "input:x",
    ]
    assert donated == {"state:count": "0 : i32"}


def test_most_programs_serve_every_platform(worker: Worker) -> None:
    assert _lower(_Net(), worker, torch.zeros(2, 8)).is_portable


class _Eigenvalues(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.eigvals(x.double())  # not on a TPU


def test_an_operator_that_a_platform_lacks_is_an_error_there_alone(worker: Worker) -> None:
    lowered = _lower(_Eigenvalues(), worker, torch.eye(3))
    with mlir.make_context() as context:
        assert lowered.module("cpu", context)
        with pytest.raises(UnsupportedOpError) as error:
            lowered.module("tpu", context)
    (op,) = error.value.operators
    assert op.operator == "aten.linalg_eigvals.default"
    assert op.location == f"{__file__}:{_line('not on a TPU')}"


class _Unsupported(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = torch.ops.tpuc_tests.opaque(x)  # the first that cannot
        return first, torch.ops.tpuc_tests.opaque(first + 1)  # the second


@torch.library.custom_op("tpuc_tests::opaque", mutates_args=())
def _opaque(x: Tensor) -> Tensor:
    return x.clone()


@_opaque.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_everything_unsupported_is_said_at_once(worker: Worker) -> None:
    with pytest.raises(UnsupportedOpError) as error:
        _lower(_Unsupported(), worker, torch.zeros(3))
    places = [op.location for op in error.value.operators]
    assert places == [f"{__file__}:{_line('the first that cannot')}", f"{__file__}:{_line('the second')}"]
    assert {op.operator for op in error.value.operators} == {"tpuc_tests.opaque.default"}
    assert "1 operator cannot be lowered:" in str(error.value)


class _RankZero(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x) + torch.sum(x.mean(), dim=0, keepdim=True)


def test_what_ends_torch_mlirs_process_is_lowered_without_it(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch-mlir dies on a sum of rank 0 that keeps its dimensions; the registry does not give it such a call."""
    asked: list[str] = []

    def reckless(call: OpCall) -> bool:
        asked.append(call.operator)
        return call.operator in ("aten.sum.dim_IntList", "aten.sigmoid.default")

    monkeypatch.setattr(stablehlo, "is_native", reckless)
    with mlir.make_context() as context, Worker(WORKER) as doomed:
        module = _lower(_RankZero(), doomed, torch.zeros(3)).module("cpu", context)
        text = mlir.to_text(module)
    assert "aten.sum.dim_IntList" in asked
    assert "stablehlo.logistic" in text


def _line(text: str) -> int:
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if f"# {text}" in line)
