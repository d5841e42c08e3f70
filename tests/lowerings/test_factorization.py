"""Factorizations against eager; where several are right, what they make is compared."""

from typing import Any

import numpy as np
import pytest
import torch

from tpuc.lowerings.factorization import _svd_by_polar

from .support import check, lowered

DTYPES = [torch.float32, torch.complex64]


def _matrix(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(*shape, dtype=dtype)


def _definite(*batch: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = _matrix(*batch, 4, 4, dtype=dtype)
    return x @ x.mH + torch.eye(4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_reads_one_triangle(upper: bool, dtype: torch.dtype) -> None:
    x = _definite(2, dtype=dtype)
    junk = torch.full_like(x, 7)
    x = x.triu() + junk.tril(-1) if upper else x.tril() + junk.triu(1)
    check(torch.linalg.cholesky, x, upper=upper)
    check(torch.ops.aten.cholesky.default, x, upper)


def test_a_matrix_that_is_not_definite_is_told() -> None:
    matrices = torch.stack([torch.eye(2), torch.tensor([[1.0, 2.0], [2.0, 1.0]])])
    _, info = lowered(torch.linalg.cholesky_ex, matrices)
    assert info[0] == 0
    assert info[1] > 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 5), (2, 6, 3), (3, 6), (0, 3), (2, 0, 0)])
def test_lu(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = _matrix(*shape, dtype=dtype)
    check(torch.linalg.lu_factor_ex, x)
    check(torch.linalg.lu, x)


def test_lu_unpacks_what_is_asked_for() -> None:
    factors, pivots = torch.linalg.lu_factor(_matrix(5, 3))
    check(torch.lu_unpack, factors, pivots, unpack_data=False)
    check(torch.lu_unpack, factors, pivots, unpack_pivots=False)


def test_a_zero_pivot_is_told() -> None:
    check(torch.linalg.lu_factor_ex, torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0], [0.0, 0.0, 2.0]]))


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("shape", [(2, 5, 3), (3, 5), (4, 0), (0, 4)])
def test_qr(shape: tuple[int, ...], mode: str) -> None:
    check(torch.linalg.qr, _matrix(*shape), mode=mode)


@pytest.mark.parametrize("dtype", DTYPES)
def test_householder_vectors(dtype: torch.dtype) -> None:
    x = _matrix(2, 5, 3, dtype=dtype)
    check(torch.geqrf, x)
    vectors, tau = torch.geqrf(x)
    check(torch.linalg.householder_product, vectors, tau)
    other = _matrix(2, 5, 4, dtype=dtype)
    check(torch.ormqr, vectors, tau, other)
    check(torch.ormqr, vectors, tau, other, transpose=True)
    check(torch.ormqr, vectors, tau, other.mT, left=False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_eigh_reads_one_triangle(uplo: str, dtype: torch.dtype) -> None:
    x = _matrix(3, 4, 4, dtype=dtype)
    check(torch.linalg.eigvalsh, x, UPLO=uplo)
    values, vectors = lowered(torch.linalg.eigh, x, UPLO=uplo)
    triangle = (x.triu(1) + x.triu(1).mH if uplo == "U" else x.tril(-1) + x.tril(-1).mH).numpy()
    whole = triangle + np.eye(4) * np.diagonal(x.numpy(), axis1=-2, axis2=-1).real[..., None]
    np.testing.assert_allclose(vectors * values[..., None, :] @ _adjoint(vectors), whole, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eig(dtype: torch.dtype) -> None:
    x = _matrix(2, 4, 4, dtype=dtype)
    values, vectors = lowered(torch.linalg.eig, x)
    np.testing.assert_allclose(x.numpy() @ vectors, vectors * values[..., None, :], atol=1e-5)
    (alone,) = lowered(torch.linalg.eigvals, x)
    np.testing.assert_allclose(np.sort(alone), np.sort(values), atol=1e-5)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", [(2, 5, 3), (3, 5), (4, 4), (0, 3), (3, 0)])
def test_svd(shape: tuple[int, ...], full: bool) -> None:
    x = _matrix(*shape)
    check(torch.linalg.svdvals, x)
    _check_svd(lowered(torch.linalg.svd, x, full_matrices=full), torch.linalg.svd(x, full_matrices=full), x)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("rank", [4, 2])
@pytest.mark.parametrize("shape", [(2, 6, 4), (4, 6), (4, 4)])
def test_svd_as_a_tpu_computes_it(shape: tuple[int, ...], rank: int, full: bool) -> None:
    x = _matrix(*shape[:-1], rank) @ _matrix(*shape[:-2], rank, shape[-1])
    result = [np.asarray(each) for each in _svd_by_polar(x.numpy(), full_matrices=full)]
    _check_svd(result, torch.linalg.svd(x, full_matrices=full), x)


def _check_svd(result: list[Any], expected: tuple[torch.Tensor, ...], x: torch.Tensor) -> None:
    """Compares values, and vectors by what they make: they have any sign."""
    u, values, vh = result
    assert [each.shape for each in result] == [tuple(each.shape) for each in expected]
    np.testing.assert_allclose(values, expected[1].numpy(), atol=1e-5)
    k = values.shape[-1]
    np.testing.assert_allclose(u[..., :k] * values[..., None, :] @ vh[..., :k, :], x.numpy(), atol=2e-5)
    for basis in (u, _adjoint(vh)):
        np.testing.assert_allclose(
            _adjoint(basis) @ basis,
            np.broadcast_to(np.eye(basis.shape[-1]), (*basis.shape[:-2], *basis.shape[-1:] * 2)),
            atol=1e-5,
        )


def _adjoint(x: Any) -> Any:
    return x.conj().swapaxes(-1, -2)
