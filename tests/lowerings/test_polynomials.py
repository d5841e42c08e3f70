"""Orthogonal polynomials: degrees below zero and above where the closed form begins, and both ends of [-1, 1]."""

import pytest
import torch

from .support import check, lowered

CHEBYSHEV = [f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"]
OTHERS = ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]


@pytest.mark.parametrize("name", [*CHEBYSHEV, *OTHERS])
def test_degrees(name: str) -> None:
    function = getattr(torch.special, name)
    degrees = torch.tensor([-1.0, 0.0, 1.0, 2.0, 5.7, 6.0])
    check(function, torch.tensor([-2.0, -1.0, -0.3, 0.0, 0.6, 1.0, 1.5])[:, None], degrees)
    check(function, torch.tensor([0.25, 0.9], dtype=torch.float64), 12)
    check(function, 0.3, torch.tensor([3, 4]))


def test_hermite_polynomials_end_at_a_degree() -> None:
    (result,) = lowered(torch.special.hermite_polynomial_h, torch.tensor([0.1]), torch.tensor([129.0]))
    assert result != result
    check(torch.special.hermite_polynomial_he, torch.tensor([0.1]), torch.tensor([130.0]))
