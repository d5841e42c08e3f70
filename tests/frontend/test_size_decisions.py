"""What forward decides by a size of one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, ExportedProgram

from tpuc.errors import RequestError
from tpuc.frontend.capture import export
from tpuc.frontend.size_decisions import Decision, check_decisions, recorded_decisions, squeezed_sizes
from tpuc.frontend.specialize import symbol_values

HERE = str(Path(__file__))


class Call(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("calls", torch.zeros(()))
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> Any:
        self.calls += 1
        return self.function(x * self.weight)


def decisions_of(function: Callable[[torch.Tensor], Any]) -> tuple[Call, ExportedProgram, list[Decision]]:
    module = Call(function)
    with recorded_decisions() as decisions:
        program = export(module, (torch.randn(4, 3),), {}, dynamic_shapes={"x": {0: Dim("s", min=1, max=9)}})
    return module, program, [*decisions, *squeezed_sizes(program)]


def check_at_one(function: Callable[[torch.Tensor], Any]) -> str | None:
    module, program, decisions = decisions_of(function)
    inputs = ((torch.randn(1, 3),), {})
    return check_decisions(decisions, program, module, inputs, symbol_values(program, [(1, 3)]))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2 if x.shape[0] > 1 else x,
        lambda x: x * 2 if x.shape[0] == 1 else x,
        lambda x: x if x.shape[0] != 1 else x * 2,
        lambda x: x.squeeze(0),
        lambda x: x[:, None].squeeze(),
        lambda x: x[None].squeeze((0, 1)),
    ],
)
def test_another_way_is_refused_and_named(function: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(RequestError, match="another way for a size of one") as caught:
        check_at_one(function)
    assert caught.value.where is not None
    assert caught.value.where.startswith(HERE)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2 if x.shape[0] > 1 else x + x,
        lambda x: x.squeeze().sum(),
        lambda x: x[:, None].squeeze(1),
        lambda x: x + x[:1],
        lambda x: x if x.shape[1] == 3 else x * 2,
    ],
)
def test_what_comes_to_the_same_is_taken(function: Callable[[torch.Tensor], Any]) -> None:
    assert check_at_one(function) is None


def test_the_check_leaves_the_state_as_it_is() -> None:
    module, program, decisions = decisions_of(lambda x: x * 2 if x.shape[0] > 1 else x + x)
    check_decisions(decisions, program, module, ((torch.randn(1, 3),), {}), symbol_values(program, [(1, 3)]))
    assert module.calls.item() == 0
    assert program.state_dict["calls"].item() == 0


def test_only_what_differs_is_checked() -> None:
    module, program, decisions = decisions_of(lambda x: x * 2 if x.shape[0] > 1 else x)
    assert [decision.answer for decision in decisions] == [True]
    # At a size of two there is nothing to find; these inputs could not be computed with.
    assert check_decisions(decisions, program, module, ((None,), {}), symbol_values(program, [(2, 3)])) is None


def test_without_weights_the_user_is_told() -> None:
    module, program, decisions = decisions_of(lambda x: x * 2 if x.shape[0] > 1 else x)
    with FakeTensorMode():
        module.weight = torch.nn.Parameter(torch.ones(3))
    note = check_decisions(decisions, program, module, ((torch.randn(1, 3),), {}), symbol_values(program, [(1, 3)]))
    assert note is not None
    assert "without weights it is not checked" in note
