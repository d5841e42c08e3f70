"""Diagonals and triangles."""

import pytest
import torch

from .support import check

X = torch.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize("offset", [-3, -1, 0, 2, 4])
def test_diagonals_above_and_below(offset: int) -> None:
    def diagonals(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.diagonal(x, offset, 1, 2),
            torch.diagonal(x, offset, -1, 0),
            torch.diag(x[0], offset),
            torch.diag(x[0, 0], offset),
            torch.diag_embed(x[0], offset, 0, -1),
        ]

    check(diagonals, X)


@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 3])
def test_writing_a_diagonal(offset: int) -> None:
    values = -torch.ones_like(torch.diagonal(X, offset, 2, 1))
    check(lambda x, v: torch.diagonal_scatter(x, v, offset, 2, 1), X, values)


def test_writing_to_a_diagonal_in_place() -> None:
    def fill(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.diagonal(dim1=1, dim2=2).fill_(7)
        return y

    check(fill, X)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64, torch.complex64])
def test_triangles(dtype: torch.dtype) -> None:
    check(torch.tril, X.to(dtype), -1)
    check(torch.triu, X.to(dtype), 1)


def test_trace() -> None:
    check(torch.trace, X[0])
    check(torch.trace, torch.ones(3, 2, dtype=torch.int8))


@pytest.mark.parametrize(
    ("rows", "columns", "offset"), [(3, 4, -1), (4, 3, 1), (5, 2, -2), (2, 2, -5), (2, 3, 9), (0, 3, 0)]
)
def test_the_cells_of_triangles(rows: int, columns: int, offset: int) -> None:
    check(lambda: (torch.tril_indices(rows, columns, offset), torch.triu_indices(rows, columns, offset)))
