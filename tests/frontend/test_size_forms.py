"""Functions that would bind an export to the example's sizes: their forms against themselves, and with symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim
from torch.nn import functional as F

from tpuc.frontend.capture import export
from tpuc.frontend.size_forms import SizeForms

torch.manual_seed(0)
LAYERS = {
    "lstm": torch.nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True),
    "gru": torch.nn.GRU(4, 5, bias=False),
    "rnn_tanh": torch.nn.RNN(4, 5),
    "rnn_relu": torch.nn.RNN(4, 5, nonlinearity="relu"),
}
FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "linspace": lambda x: torch.linspace(-1, 2.5, x.shape[1]),
    "linspace of integers": lambda x: torch.linspace(9, -3, x.shape[1], dtype=torch.int64),
    "kron": lambda x: torch.kron(x, x[0, 0]),
    "method": lambda x: x[0].kron(x),
    "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "max_pool1d of a layer": torch.nn.MaxPool1d(3, 2, padding=1, ceil_mode=True),
    "max_pool1d with places": lambda x: F.max_pool1d(x, 2, return_indices=True),
    **LAYERS,
}


class Call(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


@pytest.mark.filterwarnings("ignore:The tensor attributes .* were assigned during export:UserWarning")
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("length", [2, 7, 8])
def test_the_form_gives_what_the_function_gives(name: str, length: int) -> None:
    module = Call(FUNCTIONS[name]).eval()
    sizes = {"x": {1: Dim("length", min=1, max=9)}}
    program = export(module, (torch.randn(2, 5, 4),), {}, dynamic_shapes=sizes)
    x = torch.randn(2, length, 4)
    with torch.no_grad():
        torch.testing.assert_close(program.module(check_guards=False)(x), module(x))


def test_a_step_alone_is_the_start() -> None:
    module = Call(FUNCTIONS["linspace"])
    program = export(module, (torch.randn(2, 5),), {}, dynamic_shapes={"x": {1: Dim("length", min=1, max=9)}})
    assert program.module(check_guards=False)(torch.randn(2, 1)).tolist() == [-1]


def test_packed_sequences_are_left_alone() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.randn(3, 4), torch.randn(2, 4)])
    expected = LAYERS["gru"](packed)[0].data
    with SizeForms():
        torch.testing.assert_close(LAYERS["gru"](packed)[0].data, expected)
