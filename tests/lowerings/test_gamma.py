"""The gamma function and its relatives."""

import pytest
import torch

from .support import check, lowered

INF, NAN = float("inf"), float("nan")


def test_digamma_at_its_poles() -> None:
    check(torch.digamma, torch.tensor([0.0, -0.0, -1.0, -2.5, 1.0, 100.0, INF, NAN]))
    check(torch.lgamma, torch.tensor([0.0, -1.0, -2.5, 1.0, 100.0, INF, NAN]))


@pytest.mark.parametrize("n", range(5))
def test_polygamma_of_negative_numbers(n: int) -> None:
    check(torch.polygamma, n, torch.tensor([-3.75, -0.3, 0.4, 1.0, 12.5, INF]))


def test_trigamma_far_below_zero() -> None:
    x = torch.tensor([-6.977325, -100.25])
    (result,) = lowered(torch.polygamma, 1, x)
    torch.testing.assert_close(
        torch.from_numpy(result.copy()).double(), torch.polygamma(1, x.double()), rtol=1e-5, atol=0
    )


def test_zeta_outside_its_domain() -> None:
    s = torch.tensor([0.5, 1.0, 2.0, 3.0, 2.5, NAN])[:, None]
    check(torch.special.zeta, s, torch.tensor([-1.0, -0.5, -2.5, -7.25, 0.0, 0.3, 1.0, 50.0]))
    check(torch.special.zeta, torch.tensor([2, 300]), 1.5)


def test_zeta_of_a_large_exponent_is_its_first_term() -> None:
    check(torch.special.zeta, torch.tensor([2000.0, INF]), 1.0)


def test_mvlgamma() -> None:
    check(torch.mvlgamma, torch.tensor([2.5, 10.0, 1000.0]), 3)


@pytest.mark.parametrize("function", [torch.igamma, torch.igammac])
def test_incomplete_gamma_at_the_edges(function: object) -> None:
    a = torch.tensor([0.0, 0.5, 3.0, INF, -1.0])[:, None]
    check(function, a, torch.tensor([0.0, 0.1, 2.0, 50.0, INF, -1.0]))


@pytest.mark.parametrize("function", [torch.igamma, torch.igammac])
def test_incomplete_gamma_of_a_large_shape_keeps_the_digits_of_f32(function: object) -> None:
    a = torch.tensor([21.0, 100.0, 1e3, 1e4, 1e5])
    for ratio in (0.99, 1.0, 1.002):
        check(function, a, a * ratio)
