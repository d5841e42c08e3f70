"""Reading at indices."""

import pytest
import torch

from .support import check, lowered

X = torch.arange(24.0).reshape(2, 3, 4)


def test_negative_indices_count_from_the_end() -> None:
    index = torch.tensor([[0, -1], [-3, 2]])
    check(lambda x, i: x[:, i], X, index)
    check(lambda x, i: x[i[:, :1].clamp(-2, 1), :, i], X, index)
    check(torch.take, X, torch.tensor([0, -1, -24]))
    check(lambda x, i: torch.ops.aten.index(x, [None, None, i]), X, torch.tensor([-4, 3], dtype=torch.int32))


def test_indexing_where_nothing_is_read() -> None:
    check(lambda x, i: x[i], torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    check(lambda x, i: x[:, i], X, torch.zeros(2, 0, dtype=torch.int64))
    check(lambda x, i: x[:, i], torch.zeros(0, 3), torch.tensor([1, 2]))
    check(torch.gather, X, 1, torch.zeros(2, 0, 4, dtype=torch.int64))
    check(torch.nonzero, torch.zeros(0, 3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.complex64, torch.int8])
def test_gather_takes_an_index_smaller_than_the_tensor(dtype: torch.dtype) -> None:
    check(torch.gather, X.to(dtype), 1, torch.tensor([[[2, 0], [1, 1]]]))


def test_numbers_are_gathered_as_vectors_of_one() -> None:
    check(torch.gather, torch.tensor(3.0), 0, torch.tensor(0))
    check(torch.gather, torch.tensor(3.0), 0, torch.tensor([0, 0]))
    check(torch.index_select, torch.tensor(3.0), 0, torch.tensor(0))
    check(torch.index_select, X, -1, torch.tensor(3))


def test_nonzero_with_a_bound_cuts_or_fills() -> None:
    x = torch.tensor([[0, 1], [2, 0], [3, 4]])
    check(lambda x: torch.nonzero_static(x, size=2), x)
    check(lambda x: torch.nonzero_static(x, size=6, fill_value=-7), x)


def test_repeats_that_a_tensor_gives_have_a_size_that_is_given() -> None:
    repeats = torch.tensor([2, 0, 3])
    check(lambda x, r: torch.repeat_interleave(x, r, dim=1, output_size=5), X, repeats)
    check(lambda x, r: torch.repeat_interleave(x, r, output_size=48), X, torch.tensor([2]))
    check(lambda r: torch.repeat_interleave(r, output_size=5), repeats)


def test_one_hot_of_many_shapes() -> None:
    check(torch.nn.functional.one_hot, torch.tensor([[1, 0], [2, 2]]), 3)
    check(torch.nn.functional.one_hot, torch.tensor(1), 2)


def test_resizing_keeps_the_first_elements() -> None:
    (smaller,) = lowered(lambda x: x.clone().resize_(2, 2), torch.arange(6.0))
    assert smaller.tolist() == [[0, 1], [2, 3]]
    (larger,) = lowered(lambda x: x.clone().resize_(2, 4), torch.arange(6.0))
    assert larger.reshape(-1)[:6].tolist() == list(range(6))
