"""Convolutions against eager."""

import torch

from .support import check


def test_time_in_the_first_dimension() -> None:
    x, weight, bias = torch.randn(7, 2, 3), torch.randn(4, 3, 5), torch.randn(5)
    check(torch.conv_tbc, x, weight, bias, 2)
    check(torch.conv_tbc, x, weight, bias)
