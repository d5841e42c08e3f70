"""Writing at indices."""

import pytest
import torch

from .support import check

X = torch.arange(12.0).reshape(3, 4)
INDEX = torch.tensor([[0, 2, 2], [1, 0, 2]])
REDUCTIONS = ("prod", "mean", "amax", "amin")
SRC = torch.tensor([[1.5, 2.0, -3.0, 7.0], [4.0, 0.5, 6.0, 7.0], [9.0, 9.0, 9.0, 9.0]])


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter with Tensor src is deprecated")
def test_a_source_larger_than_the_index_is_cut() -> None:
    index = torch.tensor([[0, 1, 2], [1, 0, 0]])
    check(torch.scatter, X, 0, index, SRC)
    check(torch.scatter, X, -1, index, 5.0)
    check(lambda x, i, s: torch.scatter(x, 0, i, s, reduce="multiply"), X, index, SRC)
    check(torch.scatter, torch.tensor(1.0), 0, torch.tensor(0), torch.tensor(2.0))


@pytest.mark.filterwarnings("ignore:index_reduce.. is in beta")
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_every_reduction_with_and_without_the_destination(include_self: bool, dtype: torch.dtype) -> None:
    def reduce_all(x: torch.Tensor, index: torch.Tensor, src: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.scatter_reduce(x, 0, index, src, kind, include_self=include_self) for kind in ("sum", *REDUCTIONS)
        ]

    def reduce_slices(x: torch.Tensor, index: torch.Tensor, src: torch.Tensor) -> list[torch.Tensor]:
        return [torch.index_reduce(x, 0, index, src, kind, include_self=include_self) for kind in REDUCTIONS]

    check(reduce_all, X.to(dtype) - 5, INDEX, SRC.to(dtype))
    check(reduce_slices, X.to(dtype) - 5, torch.tensor([2, 0, 2]), SRC.to(dtype))


def test_a_maximum_keeps_nan() -> None:
    src = torch.tensor([[float("nan"), 1.0]])
    check(lambda x, i, s: torch.scatter_reduce(x, 1, i, s, "amax"), X[:1], torch.tensor([[0, 1]]), src)


def test_halves_are_summed_in_f32() -> None:
    # In bf16, 256 + 1 is 256.
    x, index = torch.full((1,), 256, dtype=torch.bfloat16), torch.zeros(64, dtype=torch.int64)
    check(torch.scatter_reduce, x.float(), 0, index, torch.ones(64), "sum")
    check(lambda x, i, s: torch.scatter_add(x.float(), 0, i, s.float()), x, index, torch.ones(64, dtype=torch.bfloat16))


@pytest.mark.parametrize("accumulate", [True, False])
def test_index_put_wraps_negative_indices_and_adds(accumulate: bool) -> None:
    rows, columns = torch.tensor([0, -1, 0]), torch.tensor([-4, 1, 1])
    check(lambda x, r, c, v: torch.index_put(x, (r, c), v, accumulate), X, rows, columns, torch.tensor([1.0, 2.0, 3.0]))
    check(lambda x, i, v: torch.ops.aten.index_put(x, [None, i], v, accumulate), X, torch.tensor([-1, 1]), SRC[:, :2])
    check(torch.put, X, torch.tensor([0, -1, 5]), torch.tensor([1.0, 2.0, 3.0]), accumulate)


def test_adding_to_one_place_often() -> None:
    index = torch.tensor([1, 1, -2, 1])
    check(lambda x, i, v: torch.index_put(x, (i,), v, True), torch.zeros(3), index, torch.ones(4))
    check(
        lambda x, i, v: torch.index_put(x, (i,), v, True), torch.zeros(3, dtype=torch.int8), index, torch.ones(4).char()
    )


@pytest.mark.parametrize("accumulate", [True, False])
def test_a_mask_takes_one_value_or_one_for_each_place(accumulate: bool) -> None:
    mask = torch.tensor([[True, False, True, False], [False] * 4, [True, True, False, True]])
    check(lambda x, m, v: torch.index_put(x, (m,), v, accumulate), X, mask, torch.tensor(-1.0))
    check(lambda x, m, v: torch.index_put(x, (m,), v, accumulate), X, mask, torch.arange(5.0))
    columns = torch.tensor([True, False, True, True])
    check(lambda x, m, v: torch.ops.aten.index_put(x, [None, m], v, accumulate), X, columns, SRC[:, :3])
    check(lambda x, m, v: torch.ops.aten.index_put(x, [None, m], v, accumulate), X, columns, torch.arange(3.0))


def test_assigning_where_a_mask_holds() -> None:
    def assign(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[y > 5] = 0
        y[0] += 1
        return y

    check(assign, X)


def test_assigning_to_slices() -> None:
    def assign(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[:, 1:3] = 7
        y[-1] += 1
        y[::2, -1] = y[:2, 0]
        y[1:1] = 5
        y[:, 3:0] = 5
        y[1:100:3, 1::2] = 9
        return y

    check(assign, X)
    check(lambda x, s: torch.slice_scatter(x, s, 1, -3, 4, 2), X, SRC[:, :2])
    check(lambda x, s: torch.select_scatter(x, s, -1, -2), X, SRC[:, 0].int())


def test_masked_scatter_takes_the_source_in_order() -> None:
    mask = torch.tensor([True, False, True, False])
    check(torch.masked_scatter, X, mask, torch.arange(100.0, 106.0))
    check(torch.masked_scatter, X, torch.zeros(3, 4, dtype=torch.bool), torch.zeros(0))


def test_nothing_to_write() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    check(torch.index_put, X, (none,), torch.zeros(0, 4))
    check(torch.put, X, none, torch.zeros(0))
    check(torch.scatter_reduce, X, 0, torch.zeros(0, 4, dtype=torch.int64), SRC, "sum")
    check(torch.index_reduce, X, 0, none, torch.zeros(0, 4), "prod")


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 2])
def test_segments_of_which_some_are_empty(reduce: str, initial: float | None) -> None:
    lengths = torch.tensor([[0, 3, 1], [2, 2, 0]])
    check(lambda x, n: torch.segment_reduce(x, reduce, lengths=n, axis=1, initial=initial), X[:2], lengths)
    check(lambda x, o: torch.segment_reduce(x, reduce, offsets=o, initial=initial), X, torch.tensor([0, 2, 2, 3]))


@pytest.mark.parametrize("held", [[0, 2, 3], [1]])
def test_a_mask_beside_an_index_has_as_many_places(held: list[int]) -> None:
    mask = torch.zeros(4, dtype=torch.bool)
    mask[held] = True
    index = torch.tensor([0, 2, -2])
    check(lambda x, i, m: torch.index_put(x, (i, m), torch.arange(3.0)), X, index, mask)
    check(lambda x, i, m: torch.ops.aten._index_put_impl(x, (i, m), torch.ones(3), True), X, index, mask)
