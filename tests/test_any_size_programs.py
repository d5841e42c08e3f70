"""Random compositions of operations, through the whole pipeline, at sizes drawn at random, against eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from any_size import check_sizes, compile_any_size
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

Tensor = torch.Tensor
Step = Callable[[Tensor], Tensor]

WIDTH = 4
KERNEL = torch.arange(48.0).reshape(WIDTH, WIDTH, 3) / 60 - 0.3


def _over_channels(function: Step) -> Step:
    """Applies what takes channels first."""
    return lambda x: function(x.transpose(1, 2)).transpose(1, 2)


def _merged(x: Tensor) -> Tensor:
    return x.reshape(-1, WIDTH).softmax(0).reshape(x.shape)


def _written(x: Tensor) -> Tensor:
    y = torch.ones(x.shape[0], x.shape[1] + 2, WIDTH)
    y[:, 1:-1] = x
    return y


def _scattered(x: Tensor) -> Tensor:
    return torch.zeros_like(x).scatter_add(1, x.argsort(dim=1, stable=True), x)


#: What makes of a tensor [batch, length, WIDTH] another; the length may be another number.
STEPS: dict[str, Step] = {
    "tanh": torch.tanh,
    "scale": lambda x: x / x.shape[1] + x.shape[0],
    "where": lambda x: torch.where(x > 0, x, x * 0.5),
    "softmax": lambda x: x.softmax(1),
    "center": lambda x: x - x.mean(1, keepdim=True),
    "layer norm": lambda x: F.layer_norm(x, (WIDTH,)),
    "group norm": _over_channels(lambda x: F.group_norm(x, 2)),
    "maximum": lambda x: x - x.amax(1, keepdim=True),
    "cumsum": lambda x: x.cumsum(1),
    "cummax": lambda x: x.cummax(1).values,
    "flip": lambda x: x.flip(1),
    "roll": lambda x: x.roll(1, 1),
    "sort": lambda x: x.sort(1).values,
    "top": lambda x: x + x.topk(1, 1).values,
    "argmax": lambda x: x.gather(1, x.argmax(1, keepdim=True)) + x,
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "second moment": lambda x: x @ (x.transpose(1, 2) @ x).tanh(),
    "merge": _merged,
    "batch": lambda x: x - x.mean(0, keepdim=True),
    "mask": lambda x: (x @ x.transpose(1, 2)).tril().tanh() @ x,
    "last": lambda x: x + x[:, -1:],
    "longer": lambda x: torch.cat([x[:, :1], x], 1),
    "but the last": lambda x: torch.cat([x, x], 1)[:, :-1],
    "every second": lambda x: x[:, ::2],
    "twice": lambda x: x.repeat(1, 2, 1),
    "pad": lambda x: F.pad(x, (0, 0, 2, 1), value=0.5),
    "replicate": _over_channels(lambda x: F.pad(x, (1, 2), mode="replicate")),
    "write": _written,
    "scatter": _scattered,
    "convolution": _over_channels(lambda x: F.conv1d(x, KERNEL, padding=1)),
    "strided convolution": _over_channels(lambda x: F.conv1d(x, KERNEL, stride=2, padding=1)),
    "max pooling": _over_channels(lambda x: F.max_pool1d(x, 3, 2, 1)),
    "average pooling": _over_channels(lambda x: F.avg_pool1d(x, 3, 1, 1, count_include_pad=False)),
    "interpolate": _over_channels(lambda x: F.interpolate(x, scale_factor=2.0, mode="linear")),
    "positions": lambda x: x + torch.arange(x.shape[1])[:, None] / 10,
}


def check_program(names: Sequence[str], sizes: Sequence[tuple[int, int]]) -> None:
    """Compiles the steps one after the other, and compares them at sizes (batch, length)."""

    def program(x: Tensor) -> Any:
        for name in names:
            x = STEPS[name](x)
        return x, x.sum(1)

    compiled = compile_any_size(program, [f"f32[b,s,{WIDTH}]"], ["b=1..2", "s=1..5"])
    check_sizes(compiled, [{"b": batch, "s": length} for batch, length in sizes], tolerance=1e-4)


PROGRAMS = st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=5)
SIZES = st.lists(st.tuples(st.integers(1, 2), st.integers(1, 5)), min_size=3, max_size=3)


@settings(max_examples=3, deadline=None, derandomize=True, phases=[Phase.generate])
@given(PROGRAMS, SIZES)
def test_some_programs(names: list[str], sizes: list[tuple[int, int]]) -> None:
    check_program(names, sizes)


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(PROGRAMS, SIZES)
def test_programs(names: list[str], sizes: list[tuple[int, int]]) -> None:
    check_program(names, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_every_step(name: str) -> None:
    check_program([name, "softmax", "convolution"], [(1, 1), (2, 5), (1, 4)])
