"""The LDL factorization against LAPACK's, pivots and all."""

import pytest
import torch

from .support import check

#: Indefinite, so that blocks of two rows appear.
KINDS = [(torch.float32, False), (torch.complex64, False), (torch.complex64, True)]


def _matrix(dtype: torch.dtype, hermitian: bool, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    x = torch.randn(3, 6, 6, dtype=dtype)
    x = x + (x.mH if hermitian else x.mT)
    # Small diagonals ask for blocks of two.
    return x - 0.9 * torch.diag_embed(x.diagonal(dim1=-2, dim2=-1))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("dtype", "hermitian"), KINDS)
def test_factor_and_solve(dtype: torch.dtype, hermitian: bool, seed: int) -> None:
    x = _matrix(dtype, hermitian, seed)
    check(torch.linalg.ldl_factor_ex, x, hermitian=hermitian)
    factors, pivots = torch.linalg.ldl_factor(x, hermitian=hermitian)
    assert (pivots < 0).any()
    b = torch.randn(6, 2, dtype=dtype)
    check(torch.linalg.ldl_solve, factors, pivots, b.expand(3, 6, 2), hermitian=hermitian)


def test_empty_and_zero() -> None:
    check(torch.linalg.ldl_factor_ex, torch.zeros(2, 0, 0))
    check(torch.linalg.ldl_factor_ex, torch.zeros(0, 3, 3))
    check(torch.linalg.ldl_factor_ex, torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
