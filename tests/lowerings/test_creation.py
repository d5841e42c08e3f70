"""Tensors out of nothing."""

from typing import Any

import pytest
import torch

from .support import check


@pytest.mark.parametrize(
    ("bounds", "dtype"),
    [
        ((5,), None),
        ((2, 9, 3), None),
        ((9, 2, -3), None),
        ((3, 3), None),
        ((0.5, 2.1, 0.4), None),
        ((2.1, -2.9, -1.0), torch.int64),
        ((0, 1, 0.1), torch.bfloat16),
        ((2**40, 2**40 + 3), torch.int64),
    ],
)
def test_ranges(bounds: tuple[Any, ...], dtype: torch.dtype | None) -> None:
    check(lambda: torch.arange(*bounds, dtype=dtype))


@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_spaces_hold_both_ends(steps: int) -> None:
    def spaces() -> list[torch.Tensor]:
        return [
            torch.linspace(-2.0, 5.0, steps),
            torch.linspace(7, -3, steps, dtype=torch.int64),
            torch.linspace(1, 2, steps, dtype=torch.complex64),
            torch.logspace(0, 3, steps, base=2.0),
        ]

    check(spaces)


def test_dtypes_that_are_not_named() -> None:
    def make(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.full((2, 2), 3),
            torch.full((2,), True),
            torch.full((2,), 1.5),
            torch.full_like(x, 7),
            torch.eye(2, 3, dtype=torch.bool),
            torch.scalar_tensor(3),
        ]

    check(make, torch.zeros(2, dtype=torch.int8))
