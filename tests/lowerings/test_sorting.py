"""Sorting, selection by rank, and search."""

import pytest
import torch

from .support import check, lowered

NAN = float("nan")
INF = float("inf")
VALUES = torch.tensor([[2.0, NAN, -1.0, 2.0, -INF], [0.0, -0.0, 3.0, NAN, NAN]])


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_a_stable_sort_keeps_equals_in_order_and_puts_nan_above_all(dtype: torch.dtype, descending: bool) -> None:
    x = VALUES if dtype.is_floating_point else VALUES.nan_to_num(1, 5, -5)
    check(lambda x: torch.sort(x, stable=True, dim=1, descending=descending), x.to(dtype))


def test_sorting_nothing_and_a_number() -> None:
    check(torch.sort, torch.zeros(2, 0))
    check(torch.sort, torch.tensor(3.0))
    check(torch.argsort, torch.zeros(0, 3), dim=0)


@pytest.mark.parametrize("largest", [True, False])
def test_topk_puts_nan_above_all_whatever_its_sign(largest: bool) -> None:
    x = torch.tensor([1.0, NAN, 3.0, INF, -INF])
    check(lambda x: torch.topk(x, 4, largest=largest), x)
    check(lambda x: torch.topk(-x, 4, largest=largest), x)


def test_topk_of_integers_does_not_overflow() -> None:
    x = torch.tensor([5, -(2**63), 2**63 - 1, 0])
    check(lambda x: torch.topk(x, 3, largest=False), x)
    check(lambda x: torch.topk(x.reshape(4, 1), 2, dim=0), x)
    check(lambda x: torch.topk(x, 0), x)


@pytest.mark.parametrize("keepdim", [True, False])
def test_medians_are_the_lower_ones_and_nan_wins_or_does_not_count(keepdim: bool) -> None:
    x = torch.tensor([[4.0, 1.0, 3.0, 2.0], [NAN, 1.0, NAN, 0.0]])
    check(torch.median, x, 1, keepdim)
    check(torch.nanmedian, x, 1, keepdim)
    check(lambda x: torch.nanmedian(x), x)
    check(lambda x: torch.median(x), torch.zeros(0))
    check(torch.kthvalue, x[:1], 3, 1, keepdim)


def test_mode_is_the_smallest_of_the_most_frequent() -> None:
    check(torch.mode, torch.tensor([[3, 1, 3, 1, 2], [2, 2, 5, 5, 5]]))
    check(torch.mode, torch.tensor([[True, False], [False, False]]), 0, keepdim=True)


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("size", [3, 1000])
def test_searching_finds_the_ends_equals_and_nan(right: bool, size: int) -> None:
    sequence = torch.arange(size, dtype=torch.float32)
    values = torch.tensor([[-1.0, 0.0, 1.5], [2.0, size - 1.0, NAN]])
    check(lambda s, v: torch.searchsorted(s, v, right=right), sequence, values)
    check(lambda s, v: torch.bucketize(v, s, right=right, out_int32=True), sequence, values)
    check(lambda s: torch.searchsorted(s, 1.0, right=right), sequence)


def test_searching_rows_in_another_order() -> None:
    sequence = torch.tensor([[3, 1, 2], [6, 4, 5]])
    values = torch.tensor([[0, 2], [6, 7]])
    check(lambda s, v: torch.searchsorted(s, v, sorter=torch.argsort(s, -1), side="right"), sequence, values)
    check(torch.searchsorted, torch.zeros(2, 0), torch.ones(2, 3))


def test_a_search_is_a_comparison_where_boundaries_are_few() -> None:
    (few,) = lowered(torch.bucketize, torch.tensor([0.5, 2.5]), torch.tensor([0.0, 1.0, 2.0]))
    assert few.tolist() == [1, 3]
