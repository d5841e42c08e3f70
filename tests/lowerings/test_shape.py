"""Views and copies."""

import pytest
import torch

from .support import check

X = torch.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(("size", "step"), [(4, 1), (3, 2), (2, 3), (5, 5), (1, 1), (0, 2), (40, 1)])
def test_windows_that_overlap_abut_or_leave_gaps(size: int, step: int) -> None:
    x = torch.arange(100.0).reshape(2, 50)
    check(lambda x: x.unfold(1, size, step), x)
    check(lambda x: x.t().unfold(0, size, step), x.to(torch.bool))


def test_windows_over_a_number() -> None:
    check(lambda x: x.unfold(0, 1, 1), torch.tensor(2.0))


def test_joining_and_cutting() -> None:
    check(lambda x: torch.cat([x, torch.zeros(0), x], 0), torch.ones(2))
    check(lambda x: torch.cat([x, x.int()], 1), X[0])
    check(lambda x: x.split(2, 2), X)
    check(lambda x: x.split([1, 0, 2], 1), X)
    check(lambda x: x.chunk(3, 2), X)
    check(lambda x: torch.tensor_split(x, (1, 3), 2), X)
    check(lambda x: x.chunk(2, 1), torch.zeros(2, 0))


def test_slices_are_clamped_and_negative_bounds_count_from_the_end() -> None:
    check(lambda x: x[:, -2:, 1:100:2], X)
    check(lambda x: x[:, 2:1], X)
    check(lambda x: x.narrow(2, -3, 2), X)
    check(lambda x: x.select(-1, -2), X)


def test_turning_and_rolling() -> None:
    check(lambda x: x.roll((1, -5), (0, 2)), X)
    check(lambda x: x.roll(7), X)
    check(lambda x: x.flip(0, -1), X)
    check(lambda x: x.rot90(-1, (1, 2)), X)
    check(lambda x: x.tile(2, 1), X)
    check(lambda x: x.roll(3, 0), torch.zeros(0, 2))


def test_dimensions_of_one_come_and_go() -> None:
    check(lambda x: x[:1].squeeze(), X)
    check(lambda x: x[:1].squeeze((0, 1)), X)
    check(lambda x: x.unsqueeze(-2).expand(2, -1, 5, 4), X)
    check(lambda x: x.squeeze(0), torch.tensor(1.0))
    check(lambda x: x.transpose(0, -1), torch.tensor(1.0))


def test_transposes_of_any_rank() -> None:
    for x in (torch.tensor(1.0), X[0, 0], X[0]):
        check(torch.ops.aten.numpy_T.default, x)
        check(torch.t, x)
    check(torch.ops.aten.numpy_T.default, X)
    check(lambda x: x.mT, X)


def test_bits_as_another_dtype() -> None:
    check(lambda x: x.view(torch.int32), X)
    check(lambda x: x.view(torch.int16), X)
    check(lambda x: x.view(torch.float32), X.to(torch.float16))


def test_casts_round_to_zero_and_wrap() -> None:
    check(lambda x: x.to(torch.int32), torch.tensor([1.9, -1.9]))
    check(lambda x: x.to(torch.int8), torch.tensor([300, -129]))
    check(lambda x: x.to(torch.bool), torch.tensor([0.0, 0.1, float("nan")]))
    check(lambda x: x.to(torch.complex64), X)


@pytest.mark.parametrize("start", [0, 2, -3])
def test_a_range_whose_start_is_computed(start: int) -> None:
    check(lambda x: x.narrow(-1, torch.tensor(start), 2), X)
