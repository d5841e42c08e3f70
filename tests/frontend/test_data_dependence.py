"""Sizes and Python numbers that depend on the values of tensors."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tpuc.errors import UnsupportedOpError
from tpuc.frontend.capture import Capture, capture, export
from tpuc.lowerings.evaluate import evaluate_graph


class _Call(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def _capture(function: Callable[..., Any], *args: Tensor) -> Capture:
    return capture(export(_Call(function), args, {}))


def _results(function: Callable[..., Any], *args: Tensor) -> list[Any]:
    with jax.enable_x64(True):
        return [
            np.asarray(result)
            for result in evaluate_graph(_capture(function, *args).graph, [jnp.asarray(a.numpy()) for a in args])
        ]


X = torch.arange(12.0).reshape(3, 4)


class _Dynamic(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        chosen = x[x > 0]
        places = torch.nonzero(x)
        return chosen.sum() * places.sum() * torch.zeros(len(x)).sum()


def test_every_size_that_depends_on_the_data_is_named_at_once() -> None:
    with pytest.raises(UnsupportedOpError) as error:
        capture(export(_Dynamic(), (torch.zeros(2),), {}))
    assert [(op.operator, op.location) for op in error.value.operators] == [
        ("aten.index.Tensor", f"{__file__}:{_line('chosen = x[x > 0]')}"),
        ("aten.nonzero.default", f"{__file__}:{_line('places = torch.nonzero(x)')}"),
    ]
    assert "its result has a size that depends on the data" in str(error.value)
    assert "torch.nonzero_static(x, size=n)" in str(error.value)
    assert "x[tuple(torch.nonzero_static(mask, size=n).T)]" in str(error.value)


def test_a_number_as_a_size_is_refused_where_it_becomes_one() -> None:
    with pytest.raises(UnsupportedOpError, match=r"aten\.zeros\.default .*its result has a size"):
        _capture(lambda n: torch.zeros(n.item()), torch.tensor(3))
    with pytest.raises(UnsupportedOpError, match="start that is computed"):
        _capture(lambda x, n: x[:, n.item() : n.item() + 1], X, torch.tensor(1))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, s, n: x * s.item(),
        lambda x, s, n: x - (s.item() * 2 + 1) / 3 + s.item() ** 2,
        lambda x, s, n: x.long() * (n.item() + 1) // (n.item() - 1),
        lambda x, s, n: x.masked_fill(x > 5, s.item()).clamp(max=s.item()),
        lambda x, s, n: torch.full((2,), s.item()) + torch.tensor(n.item()),
        lambda x, s, n: x[n] + x[:, n - 4].sum() + x.roll(n.item(), 0),
    ],
)
def test_numbers_take_part_in_arithmetic_and_indexing(function: Callable[..., Tensor]) -> None:
    inputs = (X, torch.tensor(2.5), torch.tensor(2))
    (result,) = _results(function, *inputs)
    expected = function(*inputs).numpy()
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_numbers_that_are_returned_are_tensors_of_no_dimensions() -> None:
    results = _results(
        lambda s, n: {"a": s.item(), "b": n.item() + 1, "c": (s > 1).item()}, torch.tensor(2.5), X[:1, 3]
    )
    assert [(str(result.dtype), result.item()) for result in results] == [
        ("float64", 2.5),
        ("float64", 4.0),
        ("bool", True),
    ]


def _chosen(x: Tensor, mask: Tensor, n: int) -> Tensor:
    return x[tuple(torch.nonzero_static(mask, size=n).T)]


def _is_new(x: Tensor) -> Tensor:
    return torch.cat([x[:1] == x[:1], x[1:] != x[:-1]])


_V = torch.tensor([3, 1, 1, 0, 3, 3, 2])


@pytest.mark.parametrize(
    ("function", "bounded", "x"),
    [
        (torch.nonzero, lambda x, n: torch.nonzero_static(x, size=n), X % 3),
        (lambda x: x[x > 4], lambda x, n: _chosen(x, x > 4, n), X),
        (torch.unique_consecutive, lambda x, n: _chosen(x, _is_new(x), n), _V),
        (torch.unique, lambda x, n: _chosen(x.sort().values, _is_new(x.sort().values), n), _V),
        (torch.bincount, lambda x, n: torch.zeros(n, dtype=x.dtype).index_add(0, x, torch.ones_like(x)), _V),
        (lambda x: x[2:5], lambda x, n: x.index_select(0, x[1] + 1 + torch.arange(n))[:3], _V),
    ],
)
def test_with_a_bound_the_elements_come_first(
    function: Callable[..., Tensor], bounded: Callable[..., Tensor], x: Tensor
) -> None:
    expected = function(x)
    for n in (len(expected), len(expected) + 2):
        (result,) = _results(lambda x, n=n: bounded(x, n), x)
        np.testing.assert_array_equal(result[: len(expected)], expected)


def _line(text: str) -> int:
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if line.strip() == text)
