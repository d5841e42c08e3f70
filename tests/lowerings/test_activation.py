"""Activation functions where they are easily wrong: far out, at the corner, NaN, bf16, integers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from .support import check

NAN = float("nan")
FAR = torch.tensor([-1e4, -100.0, -20.0, -3.0, -0.5, -0.0, 0.0, 0.5, 3.0, 20.0, 100.0, 1e4, NAN])


@pytest.mark.parametrize(
    "function",
    [
        F.celu,
        F.elu,
        F.gelu,
        F.hardshrink,
        F.hardsigmoid,
        F.hardswish,
        F.hardtanh,
        F.leaky_relu,
        F.logsigmoid,
        F.mish,
        F.relu,
        F.relu6,
        F.selu,
        F.silu,
        F.softplus,
        F.softshrink,
        F.softsign,
        F.tanhshrink,
        torch.sigmoid,
    ],
)
def test_far_out_and_nan(function: Callable[..., Any]) -> None:
    check(function, FAR)
    check(function, FAR.bfloat16())


def test_options() -> None:
    check(F.gelu, FAR, approximate="tanh")
    check(F.softplus, FAR, beta=2.0, threshold=5.0)
    check(F.threshold, FAR, 0.5, -1.0)
    check(F.elu, FAR, alpha=2.0)
    check(F.hardtanh, FAR, -0.25, 0.75)
    check(F.rrelu, FAR, 0.1, 0.5)


def test_silu_of_complex_numbers() -> None:
    check(F.silu, torch.tensor([1 + 2j, -3 + 0.5j, 0j]))


def test_relu_of_integers() -> None:
    check(F.relu, torch.tensor([-3, 0, 2**62]))


def test_prelu_has_a_slope_for_each_channel() -> None:
    check(F.prelu, torch.linspace(-1, 1, 12).reshape(2, 3, 2), torch.tensor([0.1, 0.2, 0.3]))
    check(F.prelu, torch.tensor([-1.0, 2.0]), torch.tensor([0.25]))


@pytest.mark.parametrize("dim", [0, -1])
def test_glu_halves_a_dimension(dim: int) -> None:
    check(F.glu, torch.linspace(-2, 2, 24).reshape(4, 6), dim)


def test_softmax_of_numbers_and_of_masked_rows() -> None:
    check(torch.softmax, torch.tensor(2.0), 0)
    check(torch.log_softmax, torch.tensor([[0.0, 100.0], [-float("inf"), 1.0]]), 1)
    check(torch.softmax, torch.tensor([1, 2, 3]), 0, dtype=torch.float32)
