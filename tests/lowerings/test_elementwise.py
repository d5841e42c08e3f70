"""Arithmetic, rounding, comparison and selection."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .support import check, lowered

INF, NAN = float("inf"), float("nan")
LEAST = -(2**63)
FLOATS = torch.tensor([0.0, -0.0, 1.0, -2.5, 3.5, 7.3, -7.3, INF, -INF, NAN])


def _pairs(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:, None], x[None]


class TestDivision:
    @pytest.mark.parametrize("rounding", ["floor", "trunc", None])
    def test_integers_round_as_asked_and_stay_exact(self, rounding: str | None) -> None:
        x = torch.tensor([7, -7, 2**62 + 1, LEAST, 0])[:, None]
        check(torch.div, x, torch.tensor([2, -2, 3]), rounding_mode=rounding)

    @pytest.mark.parametrize("function", [torch.floor_divide, torch.remainder, torch.fmod])
    def test_floats_with_infinities_and_signed_zeros(self, function: Callable[..., Any]) -> None:
        check(function, *_pairs(FLOATS))

    @pytest.mark.parametrize("function", [torch.remainder, torch.fmod])
    def test_the_sign_of_a_remainder(self, function: Callable[..., Any]) -> None:
        check(function, torch.tensor([7, -7])[:, None], torch.tensor([3, -3]))
        check(function, torch.tensor([7, -7], dtype=torch.int8), 3)

    def test_a_quotient_is_rounded_to_bf16_before_it_is_truncated(self) -> None:
        # As many as eager divides by vectors: one alone it truncates as f32.
        x, y = torch.full((64,), 6.96875, dtype=torch.bfloat16), torch.full((64,), 0.99609375, dtype=torch.bfloat16)
        assert x[0].item() / y[0].item() < 7 == (x / y)[0].item()
        check(torch.div, x, y, rounding_mode="trunc")

    def test_integers_divide_in_f32(self) -> None:
        check(torch.true_divide, torch.tensor([1, 2]), 3)


class TestPower:
    def test_integers_wrap_and_negative_exponents_leave_units(self) -> None:
        base = torch.tensor([0, 1, -1, 2, -3, 7])[:, None]
        check(torch.pow, base, torch.tensor([0, 1, 5, 63, 64, 65, 200, -1, -2]))

    def test_narrow_integers_wrap(self) -> None:
        check(torch.pow, torch.tensor([3, -3, 16], dtype=torch.int8), 5)

    @pytest.mark.parametrize("exponent", [0, 0.5, -0.5, 2, 3.0, -1, 17, 2.5, -100])
    def test_numbers_as_exponents(self, exponent: float) -> None:
        check(torch.pow, torch.tensor([0.5, 1.0, 2.0, 3.25, NAN]), exponent)

    def test_a_number_as_base(self) -> None:
        check(torch.pow, 2, torch.tensor([0, 5, -1]))
        check(torch.pow, 2.0, torch.tensor([0.5, NAN, INF]))

    def test_zero_to_a_complex_power(self) -> None:
        check(torch.pow, torch.tensor([0j, 2 + 1j]), torch.tensor([1 + 1j, 0.5 - 2j]))


class TestPromotion:
    def test_halves_are_computed_in_f32_and_rounded_once(self) -> None:
        x = torch.tensor([1.0], dtype=torch.bfloat16)
        # 1 + 3 * 2^-8 needs more digits than bf16 has, at every step but the last.
        check(torch.add, x, torch.tensor([2**-8], dtype=torch.bfloat16), alpha=3)

    def test_a_tensor_without_dimensions_does_not_widen(self) -> None:
        check(torch.mul, torch.tensor([1, 2], dtype=torch.int8), torch.tensor(3))
        check(torch.add, torch.tensor([1.0, 2.0]), torch.tensor(0.1, dtype=torch.float64))

    def test_numbers_wrap_in_unsigned_integers(self) -> None:
        x = torch.tensor([0, 1, 200, 255], dtype=torch.uint8)
        check(torch.mul, x, -1)
        check(torch.add, x, 100)
        check(torch.gt, x, -1)

    def test_a_float_bound_makes_integers_floats(self) -> None:
        check(torch.clamp, torch.tensor([1, 5]), max=2.5)

    def test_comparison_happens_in_the_common_dtype(self) -> None:
        check(torch.eq, torch.tensor([2**24 + 1]), torch.tensor([float(2**24)]))


class TestNaN:
    @pytest.mark.parametrize("function", [torch.maximum, torch.minimum, torch.fmax, torch.fmin])
    def test_extrema(self, function: Callable[..., Any]) -> None:
        check(function, *_pairs(FLOATS))

    def test_clamp(self) -> None:
        check(torch.clamp, FLOATS, -1.0, 2.0)
        check(torch.clamp, FLOATS, 2.0, -1.0)
        check(torch.clamp, FLOATS, torch.tensor(NAN), None)

    @pytest.mark.parametrize("function", [torch.sign, torch.sgn, torch.isinf, torch.isneginf, torch.nan_to_num])
    def test_classes(self, function: Callable[..., Any]) -> None:
        check(function, FLOATS)

    def test_heaviside(self) -> None:
        check(torch.heaviside, FLOATS, torch.tensor(NAN))


@pytest.mark.parametrize("function", [torch.round, torch.floor, torch.ceil, torch.trunc])
def test_rounding_is_to_even_and_leaves_integers(function: Callable[..., Any]) -> None:
    check(function, torch.tensor([0.5, 1.5, -0.5, -2.5, INF, NAN]))
    check(function, torch.tensor([2**53 + 1]))


@pytest.mark.parametrize("decimals", [2, 0, -2])
def test_rounding_to_decimals(decimals: int) -> None:
    check(torch.round, torch.tensor([1.2345, -0.125, 1234.5, -250.0]), decimals=decimals)


def test_where_promotes_its_branches_but_not_its_condition() -> None:
    check(torch.where, torch.tensor([True, False]), torch.tensor([1, 2]), 0.5)
    check(torch.where, torch.tensor([1, 0], dtype=torch.uint8) > 0, 1, torch.tensor([1.0, 2.0], dtype=torch.float64))


def test_nothing_and_numbers() -> None:
    check(torch.add, torch.zeros(0, 3), torch.zeros(3))
    check(torch.mul, torch.tensor(2), torch.tensor(3))
    check(torch.logical_and, torch.tensor([0.0, NAN]), torch.tensor(True))


def test_hyperbolic_sine_of_small_complex_numbers() -> None:
    check(torch.sinh, torch.tensor([1e-3 + 1e-3j, -2 + 3j]))


def test_no_f64_enters_a_program_of_f32() -> None:
    (result,) = lowered(lambda x: torch.div(x, 3, rounding_mode=None), torch.tensor([1, 2]))
    assert result.dtype.name == "float32"
