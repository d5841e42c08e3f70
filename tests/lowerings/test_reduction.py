"""Reductions."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .support import check

NAN = float("nan")
X = torch.tensor([[1.0, NAN, 3.0], [2.0, 2.0, -1.0]])


@pytest.mark.parametrize("function", [torch.amax, torch.amin, torch.argmax, torch.argmin])
def test_nan_wins_and_the_first_of_equals_is_named(function: Callable[..., Any]) -> None:
    check(lambda x: [function(x, 1), function(x, 0, keepdim=True)], X)


def test_extrema_and_their_places() -> None:
    check(lambda x: [torch.max(x, 1), torch.min(x, 1, True), torch.aminmax(x)], X)


@pytest.mark.parametrize("function", [torch.sum, torch.mean, torch.amax, torch.logsumexp, torch.nansum, torch.nanmean])
def test_numbers_have_dimensions_to_reduce(function: Callable[..., Any]) -> None:
    check(function, torch.tensor(2.0), 0, True)
    check(function, torch.tensor(2.0), -1)


def test_sums_of_integers_and_bools_are_i64_and_wrap() -> None:
    check(torch.sum, torch.full((3,), 2**62))
    check(torch.prod, torch.full((9,), 100, dtype=torch.uint8))
    check(torch.sum, X > 0, 1)
    check(torch.prod, X > 0, 1)


def test_halves_are_summed_in_f32() -> None:
    check(torch.sum, torch.full((1000,), 1.0, dtype=torch.bfloat16))
    check(torch.mean, torch.full((1000,), 3.0, dtype=torch.float16))


def test_reducing_nothing() -> None:
    empty = torch.zeros(2, 0)
    functions = (torch.sum, torch.mean, torch.prod, torch.all, torch.any, torch.logsumexp)
    check(lambda x: [function(x, 1) for function in functions], empty)
    check(torch.amax, torch.zeros(0, 2), 1)


def test_whether_any_or_all_hold() -> None:
    check(torch.any, X)
    check(torch.all, torch.tensor([[1, 0], [2, 3]]), 1)
    check(torch.all, torch.tensor([1 + 0j, 0j]))
    check(torch.any, torch.tensor([0, 3], dtype=torch.uint8))
    check(torch.count_nonzero, X, 0)


@pytest.mark.parametrize("p", [0, 1, 2, 3, -1, float("inf"), -float("inf")])
def test_norms(p: float) -> None:
    def norms(x: torch.Tensor) -> list[torch.Tensor]:
        norm = torch.linalg.vector_norm
        return [norm(x, p, 1), norm(x.to(torch.bfloat16), p), torch.dist(x, x.flip(0), p), norm(torch.complex(x, x), p)]

    check(norms, torch.tensor([[3.0, -4.0], [1.0, 2.0]]))


def test_logarithms_of_sums_do_not_overflow() -> None:
    check(torch.logsumexp, torch.tensor([[1e4, 1e4], [-float("inf"), -float("inf")]]), 1)
    check(torch.logsumexp, torch.tensor([[1, 2], [3, 4]]), 0)
