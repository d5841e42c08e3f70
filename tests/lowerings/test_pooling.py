"""Pooling against eager: ceil mode, ties, NaN, uneven windows."""

import pytest
import torch
import torch.nn.functional as F

from .support import check

NAN = float("nan")
INF = float("inf")
POOLS = {1: (F.max_pool1d, F.avg_pool1d), 2: (F.max_pool2d, F.avg_pool2d), 3: (F.max_pool3d, F.avg_pool3d)}


def _input(rank: int, *, batched: bool = True) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(*([2] if batched else []), 3, *[7, 8, 6][:rank])


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_max(rank: int, ceil_mode: bool) -> None:
    for batched in (True, False):
        x = _input(rank, batched=batched)
        check(POOLS[rank][0], x, 3, stride=2, padding=1, ceil_mode=ceil_mode)
        check(POOLS[rank][0], x, 2, dilation=2, ceil_mode=ceil_mode, return_indices=True)


def test_the_first_of_equals_and_the_last_nan_have_the_index() -> None:
    x = torch.tensor([[[1.0, 1.0, 0.0, NAN], [1.0, NAN, NAN, 5.0], [-INF, -INF, 3.0, 3.0]]])
    check(F.max_pool2d, x, 2, stride=1, return_indices=True)
    check(F.max_pool2d, x, 2, stride=1, padding=1, return_indices=True)
    check(F.max_pool2d, x, (3, 4), return_indices=True)
    check(F.adaptive_max_pool2d, x, (2, 3), return_indices=True)


def test_integers() -> None:
    x = torch.randint(-9, 9, (1, 2, 6, 6))
    check(F.max_pool2d, x, 3, 2, 1, return_indices=True)
    check(F.avg_pool2d, x, 2)  # rounds to zero


@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_mean_counts_as_eager_does(rank: int, ceil_mode: bool, count_include_pad: bool) -> None:
    x = _input(rank)
    check(POOLS[rank][1], x, 3, stride=2, padding=1, ceil_mode=ceil_mode, count_include_pad=count_include_pad)
    check(POOLS[rank][1], x, 2, ceil_mode=ceil_mode, count_include_pad=count_include_pad)


def test_a_divisor_of_ones_own() -> None:
    check(F.avg_pool2d, _input(2), 3, padding=1, divisor_override=5)
    check(F.avg_pool3d, _input(3), 3, padding=1, divisor_override=5)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_adaptive_windows_of_one_length_and_of_several(rank: int) -> None:
    x = _input(rank)
    average = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[rank - 1]
    largest = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[rank - 1]
    for size in ([7, 4, 3], [5, 3, 4], [1, 9, 6]):
        check(average, x, size[:rank])
        check(largest, x, size[:rank], return_indices=True)
    check(average, x.bfloat16(), [3] * rank)


def test_nothing_to_pool() -> None:
    check(F.max_pool2d, torch.zeros(0, 3, 4, 4), 2, return_indices=True)
    check(F.adaptive_avg_pool2d, torch.zeros(2, 3, 4, 4), (0, 2))
    check(F.adaptive_max_pool2d, torch.zeros(0, 3, 4, 4), (2, 2), return_indices=True)


@pytest.mark.parametrize("rank", [2, 3])
def test_windows_at_given_distances(rank: int) -> None:
    function = getattr(torch.ops.aten, f"fractional_max_pool{rank}d").default
    samples = torch.rand(2, 3, rank, generator=torch.Generator().manual_seed(0))
    check(function, _input(rank), [2, 3, 2][:rank], [4, 5, 3][:rank], samples)
    check(function, _input(rank, batched=False), [2, 3, 2][:rank], [4, 1, 3][:rank], samples[:1])


def test_power_average_and_unpooling() -> None:
    check(F.lp_pool2d, _input(2), 3.0, 2)
    values, places = F.max_pool2d(_input(2), 2, return_indices=True)
    check(F.max_unpool2d, values, places, 2, output_size=(7, 8))
    check(F.max_unpool2d, values[:0], places[:0], 2, output_size=(7, 8))
    check(F.max_unpool3d, *F.max_pool3d(_input(3), 2, return_indices=True), 2)
