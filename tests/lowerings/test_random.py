"""Random numbers: equal seeds give equal results, and the distributions are PyTorch's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from .support import lowered

_COUNT = 20_000
#: Standard errors that an average of that many numbers may be away from its expectation: five in ten million are not.
_ERRORS = 5.0


def _draw(function: Callable[..., Any], *args: Any, seed: int = 0, **kwargs: Any) -> Any:
    (result,) = lowered(function, *args, seed=seed, **kwargs)
    return result


def _assert_mean(numbers: Any, mean: float, deviation: float) -> None:
    """Asserts that independent numbers of this standard deviation average what they should."""
    numbers = numbers.astype(np.float64)
    assert abs(numbers.mean() - mean) <= _ERRORS * deviation / np.sqrt(numbers.size)


@pytest.mark.parametrize(
    "function",
    [
        lambda: torch.rand(64),
        lambda: torch.randn(64),
        lambda: torch.bernoulli(torch.full((64,), 0.5)),
        lambda: F.dropout(torch.ones(64), 0.5, training=True),
        lambda: torch.multinomial(torch.ones(64), 32),
        lambda: torch.randperm(64),
        lambda: torch.randint(0, 1000, (64,)),
    ],
    ids=["rand", "randn", "bernoulli", "dropout", "multinomial", "randperm", "randint"],
)
def test_the_seed_decides_the_numbers(function: Callable[[], Tensor]) -> None:
    np.testing.assert_array_equal(_draw(function, seed=3), _draw(function, seed=3))
    assert not np.array_equal(_draw(function, seed=3), _draw(function, seed=4))


def test_each_place_that_draws_has_numbers_of_its_own() -> None:
    first, second = lowered(lambda: (torch.rand(64), torch.rand(64)))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("seed", [-1, 2**63 - 1, -(2**63)])
def test_every_number_of_64_bits_is_a_seed(seed: int) -> None:
    assert not np.array_equal(_draw(lambda: torch.rand(64), seed=seed), _draw(lambda: torch.rand(64)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_rand_is_uniform_below_one(dtype: torch.dtype) -> None:
    numbers = _draw(lambda: torch.rand(_COUNT, dtype=dtype))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    _assert_mean(numbers, 0.5, 12**-0.5)
    counts, _ = np.histogram(numbers.astype(np.float64), bins=16, range=(0, 1))
    # Binomial with p = 1/16.
    assert np.abs(counts - _COUNT / 16).max() <= _ERRORS * np.sqrt(_COUNT * 15) / 16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_randn_is_normal(dtype: torch.dtype) -> None:
    numbers = _draw(lambda: torch.randn(_COUNT, dtype=dtype)).astype(np.float64)
    # The moments of a normal number up to the fourth, and the deviation of each power.
    for power, mean, deviation in ((1, 0, 1), (2, 1, 2**0.5), (3, 0, 15**0.5), (4, 3, 96**0.5)):
        _assert_mean(numbers**power, mean, deviation)


def test_complex_normal_numbers_have_the_variance_one() -> None:
    numbers = _draw(lambda: torch.randn(_COUNT, dtype=torch.complex64))
    for part in (numbers.real, numbers.imag):
        _assert_mean(part, 0, 0.5**0.5)
        _assert_mean(part.astype(np.float64) ** 2, 0.5, 0.5 * 2**0.5)


def test_bernoulli_is_one_with_its_probability() -> None:
    numbers = _draw(lambda p: torch.bernoulli(p), torch.tensor([0.0, 0.2, 0.7, 1.0]).expand(_COUNT, 4))
    assert set(np.unique(numbers)) == {0.0, 1.0}
    for column, p in enumerate((0.0, 0.2, 0.7, 1.0)):
        _assert_mean(numbers[:, column], p, np.sqrt(p * (1 - p)))


def test_dropout_in_training_keeps_and_scales() -> None:
    p = 0.3
    result = _draw(lambda x: F.dropout(x, p, training=True), torch.full((_COUNT,), 2.0))
    kept = result != 0
    np.testing.assert_allclose(result[kept], 2.0 / (1 - p), rtol=1e-6)
    _assert_mean(kept, 1 - p, np.sqrt(p * (1 - p)))


@pytest.mark.parametrize(("p", "expected"), [(0.0, 2.0), (1.0, 0.0)])
def test_dropout_of_nothing_and_of_all(p: float, expected: float) -> None:
    np.testing.assert_array_equal(
        _draw(lambda x: F.dropout(x, p, training=True), torch.full((8,), 2.0)), np.full(8, expected, np.float32)
    )


def test_dropout_at_inference_draws_nothing() -> None:
    x = torch.arange(8.0)
    for seed in (0, 1):
        np.testing.assert_array_equal(_draw(lambda x: F.dropout(x, 0.5, training=False), x, seed=seed), x)


def test_feature_dropout_drops_whole_channels() -> None:
    result = _draw(lambda x: F.dropout2d(x, 0.5, training=True), torch.ones(4, 64, 3, 3))
    channels = result.reshape(4 * 64, 9)
    assert np.array_equal(channels.min(1), channels.max(1))
    _assert_mean(channels[:, 0] != 0, 0.5, 0.5)


def test_multinomial_with_replacement_follows_the_weights() -> None:
    weights = torch.tensor([[1.0, 0.0, 3.0, 4.0], [2.0, 2.0, 0.0, 0.0]])
    indices = _draw(lambda w: torch.multinomial(w, _COUNT, replacement=True), weights)
    assert indices.shape == (2, _COUNT)
    for row, probabilities in enumerate((weights / weights.sum(1, keepdim=True)).numpy()):
        for index, p in enumerate(probabilities):
            _assert_mean(indices[row] == index, p, np.sqrt(p * (1 - p)))


def test_multinomial_without_replacement_draws_each_once_and_first_by_weight() -> None:
    weights = torch.tensor([1.0, 2.0, 5.0]).expand(_COUNT, 3)
    indices = _draw(lambda w: torch.multinomial(w, 3), weights)
    np.testing.assert_array_equal(np.sort(indices, axis=1), np.broadcast_to(np.arange(3), (_COUNT, 3)))
    for index, p in enumerate((1 / 8, 2 / 8, 5 / 8)):
        _assert_mean(indices[:, 0] == index, p, np.sqrt(p * (1 - p)))
    # After 2, which takes 5/8, the others share what is left as 1 to 2.
    second = indices[indices[:, 0] == 2][:, 1]
    _assert_mean(second == 1, 2 / 3, np.sqrt(2 / 9))


def test_integers_reach_both_bounds_and_no_further() -> None:
    numbers = _draw(lambda: torch.randint(-2, 3, (_COUNT,)))
    values, counts = np.unique(numbers, return_counts=True)
    assert values.tolist() == [-2, -1, 0, 1, 2]
    assert np.abs(counts - _COUNT / 5).max() <= _ERRORS * np.sqrt(_COUNT * 4) / 5


def test_a_permutation_holds_every_number_once() -> None:
    np.testing.assert_array_equal(np.sort(_draw(lambda: torch.randperm(1000))), np.arange(1000))


@pytest.mark.parametrize(
    ("function", "mean", "deviation"),
    [
        (lambda x: torch.empty_like(x).uniform_(2, 4), 3, 2 * 12**-0.5),
        (lambda x: torch.empty_like(x).normal_(5, 3), 5, 3),
        (lambda x: torch.empty_like(x).exponential_(2.0), 0.5, 0.5),
        (lambda x: torch.empty_like(x).geometric_(0.25), 4, 12**0.5),
        (lambda x: torch.poisson(torch.full_like(x, 3.5)), 3.5, 3.5**0.5),
        (lambda x: torch.binomial(torch.full_like(x, 10), torch.full_like(x, 0.3)), 3, 2.1**0.5),
        (lambda x: torch._standard_gamma(torch.full_like(x, 2.5)), 2.5, 2.5**0.5),
    ],
    ids=["uniform", "normal", "exponential", "geometric", "poisson", "binomial", "gamma"],
)
def test_other_distributions_have_their_mean(
    function: Callable[[Tensor], Tensor], mean: float, deviation: float
) -> None:
    _assert_mean(_draw(function, torch.zeros(_COUNT)), mean, deviation)
