"""Variance, standard deviation and histograms."""

import pytest
import torch

from .support import check

_DEGREES = "ignore:.*degrees of freedom is <= 0"  # PyTorch warns of what is tested here.
X = torch.tensor([[1.0, 4.0, 2.5, -3.0], [0.0, 2.0, 2.0, 9.0]])


@pytest.mark.filterwarnings(_DEGREES)
@pytest.mark.parametrize("correction", [0, 1, 0.5, 4, 7])
def test_a_correction_beyond_the_count_divides_by_zero(correction: float) -> None:
    check(lambda x: torch.var(x, 1, correction=correction), X)
    check(lambda x: torch.std_mean(x, 0, correction=correction, keepdim=True), X)


def test_every_overload() -> None:
    check(torch.var, X)
    check(lambda x: torch.std(x, False), X)
    check(lambda x: torch.var_mean(x, 1, True, True), X)
    check(lambda x: torch.std_mean(x, unbiased=False), X)
    check(lambda x: torch.var(x, (0, 1)), X.to(torch.bfloat16))
    check(torch.var, torch.complex(X, -2 * X))


@pytest.mark.filterwarnings(_DEGREES)
def test_nothing_and_one_number_have_no_variance() -> None:
    check(torch.var, torch.zeros(0))
    check(lambda x: torch.var(x, 1), torch.zeros(2, 0))
    check(torch.std, torch.tensor(3.0))


def test_a_large_mean_does_not_swallow_the_variance() -> None:
    check(torch.var, X + 1e4)


def test_histc_counts_the_edge_and_leaves_out_the_rest() -> None:
    x = torch.tensor([0.0, 1.0, 1.0, 2.0, 4.0, 5.0, -1.0, float("nan")])
    check(lambda x: torch.histc(x, 4, 0, 4), x)
    check(lambda x: torch.histc(x, 3), x[:-1])
    check(lambda x: torch.histc(x, 3), torch.full((2,), 7.0))
    check(lambda x: torch.histc(x, 2), torch.zeros(0))


def test_histograms_by_count_and_by_edges() -> None:
    weight = torch.arange(8.0).reshape(2, 4)
    check(lambda x: torch.histogram(x, 3), X)
    check(lambda x, w: torch.histogram(x, 3, range=(0.0, 4.0), weight=w, density=True), X, weight)
    check(lambda x, e: torch.histogram(x, e), X, torch.tensor([-3.0, 0.0, 2.0, 9.0]))
    check(lambda x: torch.histogram(x, 2), torch.zeros(0))


def test_a_grid_of_bins_comes_back_with_a_list_of_edges() -> None:
    points = torch.tensor([[0.0, 0.0], [1.0, 3.0], [1.0, 1.0], [2.0, 4.0]])
    check(lambda x: torch.histogramdd(x, [2, 3]), points)
    check(lambda x: torch.histogramdd(x, [2, 3], range=[0.0, 1.0, 0.0, 3.0]), points)
