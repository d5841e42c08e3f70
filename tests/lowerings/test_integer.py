"""Shifts, divisors and bits."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .support import check

INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)


@pytest.mark.parametrize("function", [torch.bitwise_left_shift, torch.bitwise_right_shift])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_by_more_than_the_width(function: Callable[..., Any], dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    x = torch.tensor([1, 5, info.max, info.min, 100], dtype=dtype)[:, None]
    check(function, x, torch.tensor([0, 1, 7, info.bits - 1, info.bits, 100], dtype=dtype))
    if dtype.is_signed:
        check(function, x, torch.tensor([-1, -7], dtype=dtype))


def test_a_number_is_shifted() -> None:
    check(torch.bitwise_left_shift, 3, torch.tensor([0, 5, 64]))


@pytest.mark.parametrize("function", [torch.gcd, torch.lcm])
def test_divisors(function: Callable[..., Any]) -> None:
    x = torch.tensor([0, 1, 12, -18, 35, 2**40])
    check(function, x[:, None], x)
    check(function, torch.tensor([65, 127, -126], dtype=torch.int8), torch.tensor([2, 3, 4], dtype=torch.int8))


def test_a_divisor_of_the_least_integer() -> None:
    least = torch.full((2,), -(2**63))
    check(torch.gcd, least, torch.tensor([3, 6]))
    check(torch.gcd, torch.tensor([3, 6]), least)


@pytest.mark.parametrize("function", [torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor])
def test_bits_of_mixed_dtypes(function: Callable[..., Any]) -> None:
    check(function, torch.tensor([-1, 6, 9], dtype=torch.int8), torch.tensor([255, 3, 5], dtype=torch.uint8))
    check(function, torch.tensor([True, False]), torch.tensor([True, True]))
    check(function, torch.tensor([1, 2]), 3)


def test_bitwise_not() -> None:
    check(torch.bitwise_not, torch.tensor([True, False]))
    check(torch.bitwise_not, torch.tensor([0, 5, 255], dtype=torch.uint8))


def test_hash_tensor() -> None:
    check(torch.hash_tensor, torch.tensor([[1.5, float("nan")], [-0.0, 3.0]]), dim=1)
    check(torch.hash_tensor, torch.tensor([3, -4], dtype=torch.int16), keepdim=True)
