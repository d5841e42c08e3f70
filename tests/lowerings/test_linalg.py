"""Functions of matrices and distances against eager."""

import numpy as np
import pytest
import torch

from .support import check, lowered


def test_matrix_exponential_of_any_norm() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 3) * torch.tensor([0, 1e-3, 1, 3])[:, None, None]
    check(torch.matrix_exp, x)
    check(torch.matrix_exp, x.to(torch.complex64) * 1j)
    check(torch.matrix_exp, x.double())
    check(torch.matrix_exp, torch.zeros(2, 0, 0))


def test_matrix_exponential_that_is_not_finite_ends() -> None:
    (result,) = lowered(torch.matrix_exp, torch.tensor([[float("inf"), 1.0], [0.0, 1.0]]))
    assert not np.isfinite(result).all()


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, float("inf")])
def test_distances(p: float) -> None:
    torch.manual_seed(0)
    check(torch.cdist, torch.randn(2, 4, 3), torch.randn(1, 5, 3), p=p)
    check(torch.nn.functional.pdist, torch.randn(5, 3), p=p)


@pytest.mark.parametrize(
    "mode", ["use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"]
)
def test_euclidean_distances_of_many_vectors(mode: str) -> None:
    torch.manual_seed(0)
    check(torch.cdist, torch.randn(30, 3), torch.randn(40, 3), compute_mode=mode)


def test_distances_of_nothing() -> None:
    check(torch.cdist, torch.randn(2, 0, 3), torch.randn(2, 5, 3))
    check(torch.cdist, torch.randn(2, 4, 0), torch.randn(2, 5, 0))
    check(torch.nn.functional.pdist, torch.randn(1, 3))


@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf")])
def test_matrix_norms(order: object) -> None:
    torch.manual_seed(0)
    check(torch.linalg.matrix_norm, torch.randn(2, 4, 3), ord=order)


def test_powers_and_products() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 3)
    check(torch.linalg.matrix_power, x, 5)
    check(torch.linalg.matrix_power, x, -2)
    check(torch.linalg.multi_dot, [torch.randn(4), torch.randn(4, 5), torch.randn(5, 2)])
    check(torch.linalg.tensorsolve, torch.randn(2, 3, 6), torch.randn(2, 3))
