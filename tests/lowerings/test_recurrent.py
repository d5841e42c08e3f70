"""Recurrent layers against eager."""

import pytest
import torch

from .support import check

pytestmark = [
    # torch.export sees the weights that a layer keeps in a list beside its parameters, and says so.
    pytest.mark.filterwarnings("ignore:The tensor attributes .* were assigned during export:UserWarning"),
    # Eager's choice of kernel.
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning"),
]
STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 4, 6


def _layer(kind: type[torch.nn.RNNBase], **options: object) -> torch.nn.Module:
    torch.manual_seed(0)
    return kind(INPUTS, HIDDEN, **options).eval()


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_layers": 2, "bidirectional": True},
        {"batch_first": True},
        {"bias": False},
    ],
    ids=["plain", "two layers both ways", "batch first", "no bias"],
)
def test_layers(kind: type[torch.nn.RNNBase], options: dict[str, object]) -> None:
    check(_layer(kind, **options), torch.randn(STEPS, BATCH, INPUTS))


def test_relu() -> None:
    check(_layer(torch.nn.RNN, nonlinearity="relu"), torch.randn(STEPS, BATCH, INPUTS))


def test_projection() -> None:
    check(_layer(torch.nn.LSTM, proj_size=2, num_layers=2), torch.randn(STEPS, BATCH, INPUTS))


def test_given_states() -> None:
    states = (torch.randn(1, BATCH, HIDDEN), torch.randn(1, BATCH, HIDDEN))
    check(_layer(torch.nn.LSTM), torch.randn(STEPS, BATCH, INPUTS), states)


def test_one_sequence_without_a_batch() -> None:
    check(_layer(torch.nn.GRU), torch.randn(STEPS, INPUTS))


def test_bf16() -> None:
    check(_layer(torch.nn.LSTM).bfloat16(), torch.randn(STEPS, BATCH, INPUTS, dtype=torch.bfloat16))


@pytest.mark.parametrize("kind", [torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell])
def test_cells(kind: type[torch.nn.RNNCellBase]) -> None:
    torch.manual_seed(0)
    check(kind(INPUTS, HIDDEN), torch.randn(BATCH, INPUTS))
