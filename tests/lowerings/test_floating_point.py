"""Signs, exponents and neighbours of floats."""

import pytest
import torch

from .support import check

INF, NAN = float("inf"), float("nan")
FLOATS = [0.0, -0.0, 1.0, -1.5, INF, -INF, NAN, 1e-3]
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nextafter_steps_in_the_dtype_itself(dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, -1.0, 3.0, NAN], dtype=dtype)
    check(lambda x, y: torch.nextafter(x, y) - x, x[:, None], torch.tensor([INF, -INF, 1.0], dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_frexp(dtype: torch.dtype) -> None:
    check(torch.frexp, torch.tensor([0.0, 1.0, -3.25, 1000.0, 2**-10], dtype=dtype))


def test_sign_bits() -> None:
    check(torch.signbit, torch.tensor(FLOATS))
    check(torch.signbit, torch.tensor([-1, 0, 1]))
    check(torch.signbit, torch.tensor([True, False]))


def test_copysign_keeps_the_sign_of_zero() -> None:
    check(lambda x, y: 1 / torch.copysign(x, y), torch.tensor([0.0, 2.0]), torch.tensor([-0.0, -3.0]))
    check(torch.copysign, torch.tensor([1, -2]), -0.0)
