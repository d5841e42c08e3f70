"""Custom operators that write to their arguments."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tpuc
from tpuc.errors import UnsupportedOpError

from .support import check

X = torch.arange(12.0).reshape(3, 4)


@torch.library.custom_op("writes::accumulate", mutates_args={"total"})
def accumulate(total: Tensor, x: Tensor, *, scale: float = 1.0) -> Tensor:
    total.add_(x, alpha=scale)
    return total.sum()


@accumulate.register_fake
def _(total: Tensor, x: Tensor, *, scale: float = 1.0) -> Tensor:
    return x.new_empty(())


@tpuc.lowering("writes::accumulate")
def _accumulate(total: jax.Array, x: jax.Array, *, scale: float = 1.0) -> tuple[jax.Array, jax.Array]:
    new = total + x * scale
    return new.sum(), new


@torch.library.custom_op("writes::swap", mutates_args={"a", "b"})
def swap(a: Tensor, b: Tensor) -> None:
    kept = a.clone()
    a.copy_(b)
    b.copy_(kept)


@tpuc.lowering("writes::swap")
def _swap(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    return b, a


def test_what_is_written_is_seen_afterwards() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return accumulate(y, x, scale=3.0), y

    check(function, X)


@pytest.mark.parametrize("rows", [slice(1, 3), slice(0, -1), slice(2, None)])
def test_a_slice_is_written_in_its_place(rows: slice) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return accumulate(y[rows], x[rows] + 1), y

    check(function, X)


def test_an_operator_that_returns_nothing() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y, z = x + 1, x * 5
        swap(y, z)
        return y, z * 2

    check(function, X)


class _Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3, 4))
        self.total: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return accumulate(self.total, x)


def test_a_buffer_that_is_written_is_state(tmp_path: Path) -> None:
    tpuc.compile(_Counter(), (X,), output=tmp_path / "counter.bin")
    with tpuc.runtime.load(tmp_path / "counter.bin") as program:
        assert [float(program(X.numpy())) for _ in range(2)] == [66.0, 132.0]
        np.testing.assert_array_equal(program.state["total"], X * 2)


class _Other(nn.Module):
    def __init__(self, function: torch._ops.OpOverloadPacket) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        self.function(y.T)
        return y


@torch.library.custom_op("writes::unknown", mutates_args={"x"})
def unknown(x: Tensor) -> None:
    x.zero_()


@torch.library.custom_op("writes::zero", mutates_args={"x"})
def zero(x: Tensor) -> None:
    x.zero_()


@tpuc.lowering("writes::zero")
def _zero(x: jax.Array) -> jax.Array:
    return x * 0


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (unknown, r"writes\.unknown\.default: it writes to its arguments, and has no lowering that returns"),
        (zero, "it writes to x, which is neither a tensor of its own nor a slice of one"),
    ],
)
def test_what_cannot_be_written_is_refused(function: torch._ops.OpOverloadPacket, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOpError, match=reason):
        tpuc.compile(_Other(function), (X,), output=tmp_path / "other.bin")
