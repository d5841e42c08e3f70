"""The error function, products with logarithms."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from .support import check, lowered

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    "function",
    [
        torch.erf,
        torch.erfc,
        torch.erfinv,
        torch.special.entr,
        torch.special.erfcx,
        torch.special.log_ndtr,
        torch.special.ndtri,
    ],
)
def test_edges_of_the_domain(function: Callable[..., Any]) -> None:
    x = torch.tensor([-INF, -50.0, -2.5, -1.0, -0.3, 0.0, 0.2, 0.5, 0.999, 1.0, 2.0, 30.0, INF, NAN])
    check(function, x)
    check(function, x.double())
    check(function, torch.tensor([0, 1]))


def test_erfcx_where_erfc_leaves_the_normal_numbers() -> None:
    check(torch.special.erfcx, torch.linspace(9.0, 9.4, 41))
    check(torch.special.erfcx, torch.linspace(26.4, 26.7, 31, dtype=torch.float64))


def test_log_ndtr_keeps_its_digits_in_both_tails() -> None:
    x = torch.tensor([-30.0, -14.0, -1.01, -0.99, 5.0, 8.0])
    (result,) = lowered(torch.special.log_ndtr, x)
    expected = [math.log1p(-0.5 * math.erfc(v / math.sqrt(2))) if v > -6 else None for v in x.tolist()]
    for value, want, eager in zip(result, expected, torch.special.log_ndtr(x.double()).tolist(), strict=True):
        assert value == pytest.approx(eager if want is None else want, rel=2e-5)


@pytest.mark.parametrize("function", [torch.xlogy, torch.special.xlog1py])
def test_zero_times_a_logarithm(function: Callable[..., Any]) -> None:
    y = torch.tensor([0.0, -1.0, 2.0, INF, NAN])
    check(function, torch.tensor([0.0, 1.0, NAN])[:, None], y)
    check(function, 0, y)
    check(function, torch.tensor([0, 3]), 2)
    check(function, torch.tensor([0.0, 3.0], dtype=torch.float64), True)
