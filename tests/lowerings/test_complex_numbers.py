"""Complex numbers and their views."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .support import check

NAN = float("nan")
COMPLEX = torch.tensor([1 + 2j, -3 + 0j, 0j, -1j])


@pytest.mark.parametrize(
    "function",
    [torch.angle, torch.sgn, torch.real, torch.imag, torch.view_as_real, torch.abs, torch.reciprocal],
)
def test_parts(function: Callable[..., Any]) -> None:
    check(function, COMPLEX)
    check(function, COMPLEX.to(torch.complex128))


def test_the_angle_of_real_numbers() -> None:
    check(torch.angle, torch.tensor([1.0, -1.0, 0.0, NAN]))
    check(torch.angle, torch.tensor([1, -1]))


def test_views_of_conjugates_are_conjugates() -> None:
    check(lambda x: torch.view_as_real(x.conj().resolve_conj()), COMPLEX)
    check(lambda x: x.conj() * x, COMPLEX)
    check(lambda x: x.conj().imag + 1, COMPLEX)


def test_pairs_are_complex_numbers() -> None:
    check(torch.view_as_complex, torch.tensor([[1.0, 2.0], [3.0, -0.0]]))
    check(torch.complex, torch.tensor([1.0, 2.0]), torch.tensor([[0.0], [-1.0]]))
    check(torch.polar, torch.tensor([1.0, 2.0]), torch.tensor([0.5, -3.0]))
    check(torch.polar, torch.tensor([2.0], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64))


def test_real_tensors_are_their_own_conjugates() -> None:
    check(torch.conj_physical, torch.tensor([1, 2]))
    check(torch.real, torch.tensor([1.5]))
