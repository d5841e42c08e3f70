"""Convolutions against eager."""

import torch

from .support import check


def test_time_in_the_first_dimension() -> None:
    x, weight, bias = torch.randn(7, 2, 3), torch.randn(4, 3, 5), torch.randn(5)
    check(torch.conv_tbc, x, weight, bias, 2)
    check(torch.conv_tbc, x, weight, bias)


def _integers(*shape: int) -> torch.Tensor:
    return torch.randint(-(2**40), 2**40, shape)


def test_i64() -> None:
    x = _integers(2, 4, 9, 7)
    functional = torch.nn.functional
    check(functional.conv2d, x, _integers(6, 4, 3, 2), _integers(6), 2, (1, 0), (2, 1))
    check(functional.conv2d, x, _integers(6, 2, 3, 2), None, (1, 2), 2, 1, 2)
    check(functional.conv1d, _integers(4, 9), _integers(3, 4, 3), padding="same")
    check(functional.conv_transpose2d, x, _integers(4, 3, 3, 2), _integers(6), (2, 3), (1, 1), (1, 0), 2, (1, 2))
    check(functional.conv_transpose2d, x, _integers(4, 3, 2, 2), None, 1, 1)
