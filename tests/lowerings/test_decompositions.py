"""Decompositions of our own."""

import pytest
import torch

from .support import check


@pytest.mark.parametrize("with_replacement", [True, False])
@pytest.mark.parametrize("r", [0, 1, 2, 3, 5])
def test_combinations_have_a_static_size(r: int, with_replacement: bool) -> None:
    x = torch.tensor([3.0, 1.0, 2.0, 5.0])
    check(lambda x: torch.combinations(x, r, with_replacement) * 2, x)
