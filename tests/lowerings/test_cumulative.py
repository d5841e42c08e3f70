"""Running sums, products and extrema."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .support import check

NAN = float("nan")


@pytest.mark.parametrize("function", [torch.cummax, torch.cummin])
def test_running_extrema_name_the_last_of_equals_and_keep_nan(function: Callable[..., Any]) -> None:
    check(function, torch.tensor([[1.0, 1.0, NAN, 3.0, NAN], [2.0, 0.0, 2.0, 0.0, 1.0]]), 1)
    check(function, torch.tensor([[3, 1], [3, 1], [-5, 2]]), 0)
    check(function, torch.tensor([True, False, True]), 0)
    check(function, torch.tensor(2.0), 0)
    check(function, torch.zeros(0, 2), 0)


def test_integers_are_summed_and_multiplied_in_i64() -> None:
    x = torch.full((3, 4), 100, dtype=torch.int8)
    check(torch.cumsum, x, 1)
    check(torch.cumprod, x, 0)
    check(torch.cumsum, x > 0, -1)
    check(torch.cumsum, x, 1, dtype=torch.int8)


def test_halves_are_summed_in_f32_and_rounded_once() -> None:
    check(torch.cumsum, torch.full((600,), 1.0, dtype=torch.bfloat16), 0, dtype=torch.float32)
    check(torch.cumsum, torch.full((300,), 1.0, dtype=torch.bfloat16), 0)


def test_numbers_and_nothing() -> None:
    check(torch.cumsum, torch.tensor(2.5), 0)
    check(torch.cumprod, torch.zeros(2, 0), 1)
    check(torch.cumsum, torch.tensor([1 + 2j, 3 - 1j]), 0)


def test_logarithms_of_running_sums_do_not_overflow() -> None:
    inf = float("inf")
    check(torch.logcumsumexp, torch.tensor([[1e4, 1e4, -1e4], [-inf, -inf, 2.0], [1.0, inf, NAN]]), 1)
    check(torch.logcumsumexp, torch.tensor([1 + 2j, -3 + 0.5j, 0.5 - 3j]), 0)
    check(torch.logcumsumexp, torch.tensor(2.0), 0)
