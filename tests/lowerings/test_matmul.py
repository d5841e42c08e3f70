"""Matrix products against eager."""

import pytest
import torch

from .support import check

NAN = float("nan")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int8, torch.complex64])
def test_dtypes(dtype: torch.dtype) -> None:
    x, y = (torch.randint(-9, 9, shape).to(dtype) for shape in ((3, 4), (4, 5)))
    check(torch.mm, x, y)
    check(torch.matmul, x.expand(2, 3, 4), y)
    check(torch.mv, x, y[:, 0])
    check(torch.nn.functional.linear, x, y.T.contiguous(), y[0])


def test_integers_wrap() -> None:
    check(torch.mm, torch.full((2, 3), 100, dtype=torch.int8), torch.full((3, 2), 3, dtype=torch.int8))
    check(torch.mm, torch.full((1, 2), 2**62), torch.full((2, 1), 2))


def test_beta_zero_ignores_the_bias() -> None:
    bias = torch.full((3, 5), NAN)
    check(torch.addmm, bias, torch.randn(3, 4), torch.randn(4, 5), beta=0, alpha=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_scales(dtype: torch.dtype) -> None:
    """PyTorch cuts the scales of integers: 0.6 is 0."""
    x, y, bias = (torch.randint(-9, 9, shape).to(dtype) for shape in ((2, 3, 4), (2, 4, 5), (3, 5)))
    check(torch.addmm, bias, x[0], y[0], beta=2.6, alpha=0.6)
    check(torch.baddbmm, bias, x, y, beta=0.6, alpha=3)
    check(torch.addbmm, bias, x, y, beta=0.6, alpha=2)
    check(torch.addmv, bias[:, 0], x[0], y[0, :, 0], alpha=2)
    check(torch.addr, bias, x[0, :, 0], y[0, 0], beta=3, alpha=2)


def test_vdot_conjugates_the_first() -> None:
    check(torch.vdot, torch.randn(4, dtype=torch.complex64), torch.randn(4, dtype=torch.complex64))


def test_nothing_to_sum() -> None:
    check(torch.mm, torch.zeros(3, 0), torch.zeros(0, 2))
    check(torch.addmm, torch.ones(3, 2), torch.zeros(3, 0), torch.zeros(0, 2))


def test_bilinear() -> None:
    check(
        torch.nn.functional.bilinear, torch.randn(2, 3, 4), torch.randn(2, 3, 5), torch.randn(6, 4, 5), torch.randn(6)
    )


@pytest.mark.parametrize("summed", [[], [0], [1, 3], [0, 1, 2, 3]])
def test_products_of_three(summed: list[int]) -> None:
    x, y, z = torch.randn(2, 3), torch.randn(3, 5), torch.randn(2, 3, 1, 5)
    check(torch.ops.aten._trilinear.default, x, y, z, [2, 3], [0, 2], [], summed)


@pytest.mark.parametrize("unroll_dim", [0, 1])
@pytest.mark.parametrize("summed", [[], [0], [3]])
def test_products_of_three_along_a_dimension_that_none_has(summed: list[int], unroll_dim: int) -> None:
    x, y, z = torch.randn(3, 2, 3, 6)
    check(torch.ops.aten._trilinear.default, x, y, z, [0], [0], [0], summed, unroll_dim)
