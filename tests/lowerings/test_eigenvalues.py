"""The QR algorithm: what `a @ v = v * values` says of it, and LAPACK's eigenvalues."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from tpuc.lowerings.eigenvalues import eig_by_qr

EIG = jax.jit(eig_by_qr)
RANDOM = np.random.default_rng(0)
#: Most have one size, so that few programs are compiled.
MATRICES = {
    "one element": [[3.0]],
    "two eigenvalues": [[0, -1], [1, 0]],
    "real": RANDOM.standard_normal((6, 6)),
    "complex": RANDOM.standard_normal((20, 20)) + 1j * RANDOM.standard_normal((20, 20)),
    "huge": RANDOM.standard_normal((6, 6)) * 1e15,
    "tiny": RANDOM.standard_normal((6, 6)) * 1e-15,
    "zero": np.zeros((6, 6)),
    "all eigenvalues equal": np.eye(6),
    "too few eigenvectors": 2 * np.eye(6) + np.eye(6, k=1),
    "nilpotent": np.eye(6, k=1),
    "of rank one": np.ones((6, 6)),
    "a permutation, of which every eigenvalue is as large": np.roll(np.eye(6), 1, axis=0),
    "rotations": np.kron(np.eye(3), [[0, 1], [-1, 0]]),
    "lower triangular": np.tril(RANDOM.standard_normal((6, 6)), -1) + np.diag(np.arange(6)),
}


def _eig(matrix: Any, dtype: Any) -> tuple[Any, Any]:
    with jax.enable_x64(True):
        values, vectors = EIG(np.asarray(matrix).astype(dtype))
    return np.asarray(values), np.asarray(vectors)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.complex64, 2e-5), (np.complex128, 1e-13)])
@pytest.mark.parametrize("name", MATRICES)
def test_values_and_vectors(name: str, dtype: Any, tolerance: float) -> None:
    matrix = np.asarray(MATRICES[name]).astype(dtype)
    values, vectors = _eig(matrix, dtype)
    scale = np.abs(matrix).max() or 1
    assert np.abs(matrix @ vectors - vectors * values).max() / scale < tolerance
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=0), 1, rtol=tolerance)
    is_large = np.abs(vectors) > np.abs(vectors).max(axis=0) - tolerance
    assert (is_large & (np.abs(vectors.imag) < tolerance) & (vectors.real > 0)).any(axis=0).all()
    left = list(np.linalg.eigvals(matrix.astype(np.complex128)))
    for value in values:
        nearest = int(np.abs(np.array(left) - value).argmin())
        assert abs(left.pop(nearest) - value) / scale < tolerance


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (0, 3, 3), (2, 0, 0)])
def test_batches(shape: tuple[int, ...]) -> None:
    matrices = RANDOM.standard_normal(shape)
    values, vectors = _eig(matrices, np.complex128)
    assert (values.shape, vectors.shape) == (shape[:-1], shape)
    np.testing.assert_allclose(matrices @ vectors, vectors * values[..., None, :], atol=1e-12)
