"""Linear systems, inverses and determinants against eager."""

import numpy as np
import pytest
import torch

from .support import check, lowered

DTYPES = [torch.float32, torch.complex64]


def _matrix(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(*shape, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("upper", [True, False])
def test_triangular(upper: bool, left: bool, dtype: torch.dtype) -> None:
    a, b = _matrix(3, 4, 4, dtype=dtype), _matrix(4, 4, dtype=dtype)
    check(torch.linalg.solve_triangular, a + 4 * torch.eye(4), b, upper=upper, left=left)
    check(torch.linalg.solve_triangular, a, b, upper=upper, left=left, unitriangular=True)


@pytest.mark.parametrize("transpose", [True, False])
def test_the_old_triangular_solver_returns_the_matrix_too(transpose: bool) -> None:
    a, b = _matrix(4, 4) + 4 * torch.eye(4), _matrix(2, 4, 3)
    check(torch.ops.aten.triangular_solve.default, b, a, False, transpose)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [True, False])
def test_by_cholesky_factors(upper: bool, dtype: torch.dtype) -> None:
    x = _matrix(2, 4, 4, dtype=dtype)
    factor = torch.linalg.cholesky(x @ x.mH + torch.eye(4), upper=upper)
    check(torch.cholesky_solve, _matrix(4, 2, dtype=dtype).expand(2, 4, 2), factor, upper=upper)
    check(torch.cholesky_inverse, factor, upper=upper)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("adjoint", [True, False])
@pytest.mark.parametrize("left", [True, False])
def test_by_lu_factors(left: bool, adjoint: bool, dtype: torch.dtype) -> None:
    factors, pivots = torch.linalg.lu_factor(_matrix(2, 4, 4, dtype=dtype))
    b = _matrix(1, 4, 3, dtype=dtype)
    check(torch.linalg.lu_solve, factors, pivots, b if left else b.mT, left=left, adjoint=adjoint)


def test_vectors_and_matrices_on_the_right() -> None:
    a = _matrix(2, 3, 3)
    check(torch.linalg.solve, a[0], _matrix(3))
    check(torch.linalg.solve, a, _matrix(2, 3))  # as many vectors as matrices
    check(torch.linalg.solve, a, _matrix(2, 3, 5))
    check(torch.linalg.solve, a, _matrix(2, 5, 3), left=False)


def test_empty_systems() -> None:
    check(torch.linalg.inv, torch.zeros(0, 0, 0))
    check(torch.linalg.solve, torch.zeros(2, 0, 0), torch.zeros(2, 0, 3))
    check(torch.linalg.det, torch.zeros(2, 0, 0))
    check(torch.linalg.slogdet, torch.zeros(0, 0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_inverse_and_determinant(dtype: torch.dtype) -> None:
    x = _matrix(3, 4, 4, dtype=dtype)
    check(torch.linalg.inv, x)
    check(torch.linalg.det, x)
    check(torch.linalg.slogdet, x)
    check(torch.linalg.slogdet, x[0] * 0)


def test_a_singular_matrix_is_told_and_not_finite() -> None:
    """Eager raises; a program cannot."""
    singular = torch.ones(2, 2)
    _, info = lowered(torch.linalg.inv_ex, singular)
    assert info == 2
    (inverse,) = lowered(torch.linalg.inv, singular)
    assert not np.isfinite(inverse).all()


@pytest.mark.parametrize("options", [{}, {"rtol": 0.5}, {"atol": 1.0}, {"atol": 0.1, "rtol": 0.2}])
def test_pseudoinverse_drops_small_singular_values(options: dict[str, float]) -> None:
    x = _matrix(2, 5, 3)
    check(torch.linalg.pinv, x, **options)
    check(torch.linalg.pinv, x[:, :3] + x[:, :3].mT, hermitian=True, **options)
    check(torch.linalg.pinv, x[..., :1] @ x[..., :1].mT)
