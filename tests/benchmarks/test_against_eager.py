"""Random small PyTorch models through the whole compile, against eager; libtpu compiles them too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.against_eager import Runner, difference
from tpuc.packaging import to_numpy
from tpuc.targets import Target

_WIDTH = 8
_TOKENS = 6


class Step(nn.Module):
    """One step from [batch, tokens, width] to the same shape, with weights of its own where it has a use for them."""

    def __init__(self, compute: Callable[[Step, Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(_WIDTH, _WIDTH)
        self.wide = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.norm = nn.LayerNorm(_WIDTH)
        self.batch_norm = nn.BatchNorm1d(_WIDTH)
        self.convolution = nn.Conv1d(_WIDTH, _WIDTH, 3, padding=1)
        self.table = nn.Embedding(_TOKENS, _WIDTH)
        self._compute = compute

    def forward(self, x: Tensor) -> Tensor:
        return self._compute(self, x)


def _attend(step: Step, x: Tensor) -> Tensor:
    query, key, value = (each.unflatten(-1, (2, -1)).transpose(1, 2) for each in step.wide(x).chunk(3, -1))
    return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)


def _attend_written_out(step: Step, x: Tensor) -> Tensor:
    query, key, value = step.wide(x).chunk(3, -1)
    hidden = torch.ones(_TOKENS, _TOKENS, dtype=torch.bool).triu(1)
    scores = (query @ key.transpose(1, 2) / 3).masked_fill(hidden, float("-inf"))
    return scores.softmax(-1) @ value


def _root_mean_square(step: Step, x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * step.norm.weight


def _rotate(step: Step, x: Tensor) -> Tensor:
    angles = torch.arange(_TOKENS)[:, None] * torch.arange(1, _WIDTH // 2 + 1) / 7
    first, second = x.chunk(2, -1)
    return torch.cat((first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos()), -1)


def _sort_by_first(step: Step, x: Tensor) -> Tensor:
    order = x[..., 0].argsort(dim=1, stable=True)
    return x.gather(1, order[..., None].expand_as(x))


def _shift(step: Step, x: Tensor) -> Tensor:
    return torch.roll(x, 1, 1) + x.flip(1)[:, torch.tensor([-1, 0, 2, -3, 1, 4])]


STEPS: dict[str, Callable[[Step, Tensor], Tensor]] = {
    "attend": _attend,
    "attend_written_out": _attend_written_out,
    "batch_norm": lambda step, x: step.batch_norm(x.transpose(1, 2)).transpose(1, 2),
    "convolve": lambda step, x: step.convolution(x.transpose(1, 2)).transpose(1, 2).relu(),
    "cumulate": lambda step, x: x.cumsum(1) / torch.arange(1, _TOKENS + 1)[:, None],
    "gate": lambda step, x: x * nn.functional.silu(step.linear(x)),
    "gelu": lambda step, x: nn.functional.gelu(step.linear(x)),
    "layer_norm": lambda step, x: step.norm(x),
    "linear": lambda step, x: step.linear(x),
    "look_up": lambda step, x: x + step.table(torch.arange(_TOKENS) % 4),
    "pool": lambda step, x: nn.functional.max_pool1d(x.transpose(1, 2), 3, 1, 1).transpose(1, 2),
    "residual": lambda step, x: x + step.linear(step.norm(x)),
    "root_mean_square": _root_mean_square,
    "rotate": _rotate,
    "shift": _shift,
    "softmax": lambda step, x: x.softmax(1) + (x - x.amax(1, keepdim=True)).exp(),
    "sort": _sort_by_first,
    "tied": lambda step, x: step.linear(x) @ step.linear.weight.T,
}


class Model(nn.Module):
    """Steps, one after the other."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        torch.manual_seed(len(names))
        self.steps = nn.ModuleList(Step(STEPS[name]) for name in names)
        for step in self.steps:
            nn.init.uniform_(step.batch_norm.running_var, 0.5, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for step in self.steps:
            x = step(x)
        return x, x.mean((1, 2))


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    runner = Runner(Target.parse("v5e"))
    yield runner
    runner.close()


def _compare(results: list[Any], expected: list[Tensor]) -> str:
    return difference(results, list(map(to_numpy, expected)))


def _check(runner: Runner, names: Sequence[str], batch: int) -> None:
    module = Model(names).eval()
    x = torch.randn(batch, _TOKENS, _WIDTH)
    with torch.no_grad():
        expected = module(x)
    verdict = runner.run(module, (x,), {}, eager=lambda: expected, compare=_compare)
    assert verdict.outcome == "ok", (names, verdict)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=4, max_size=9), st.integers(1, 3))
def test_random_models_compute_what_eager_computes(runner: Runner, names: list[str], batch: int) -> None:
    _check(runner, names, batch)


def test_all_steps_in_one_model(runner: Runner) -> None:
    _check(runner, list(STEPS), 2)
