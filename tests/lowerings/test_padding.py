"""Padding."""

import pytest
import torch
from torch.nn import functional as F

from .support import check

X = torch.arange(24.0).reshape(1, 2, 3, 4)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_each_mode_on_each_side(mode: str) -> None:
    def pad(x: torch.Tensor) -> list[torch.Tensor]:
        sides = [(0, 2, 1, 0), (1, 1, 2, 2), (-1, 2, 2, -1)]
        return [F.pad(x[0], (1, 2), mode), *(F.pad(x, amounts, mode) for amounts in sides)]

    check(pad, X)
    check(pad, X.to(torch.bfloat16))
    check(lambda x: F.pad(x, (3, 1, 0, 2, 1, 1), mode), torch.arange(48.0).reshape(1, 2, 2, 3, 4))


def test_edges_repeat_beyond_what_is_cut() -> None:
    check(lambda x: F.pad(x, (-4, 5), "replicate"), X[0])


def test_a_constant_takes_the_dtype_and_negative_amounts_cut() -> None:
    check(lambda x: F.pad(x, (1, -2, 0, 1), value=2.5), X)
    check(lambda x: F.pad(x, (1, -2), value=1), X > 5)
    check(lambda x: F.pad(x, (2, 0)), torch.zeros(2, 0, dtype=torch.int64))
