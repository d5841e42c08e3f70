"""Comparing a program with eager PyTorch."""

from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import tpuc
from tpuc.agreement import compare_with_eager, randomize, relative_error


def _f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_the_error_is_relative_to_the_largest_value() -> None:
    assert relative_error(_f32(1.0, -4.0), _f32(1.5, -5.0)) == pytest.approx(1 / 5)
    assert relative_error(_f32(0.25), _f32(0.0)) == 0.25
    assert relative_error(_f32(), _f32()) == 0.0


def test_integers_and_bools_and_complex_numbers_have_errors_too() -> None:
    assert relative_error(np.array([2, 3]), np.array([2, 4])) == 0.25
    assert relative_error(np.array([True]), np.array([False])) == 1.0
    assert relative_error(np.array([3j]), np.array([4j])) == 0.25
    assert relative_error(np.array([1.5], ml_dtypes.bfloat16), np.array([1.0], ml_dtypes.bfloat16)) == 0.5


def test_infinities_and_nans_must_be_in_the_same_places() -> None:
    inf, nan = float("inf"), float("nan")
    assert relative_error(_f32(inf, nan, 1.0), _f32(inf, nan, 2.0)) == 0.5
    assert relative_error(_f32(nan), _f32(nan)) == 0.0
    for result, expected in ((inf, -inf), (inf, nan), (1.0, inf), (inf, 1.0), (nan, 1.0)):
        assert relative_error(_f32(result), _f32(expected)) == inf


@dataclass
class Scored:
    scores: Tensor
    best: Tensor
    note: None = None


pytree.register_dataclass(Scored)


class Scorer(nn.Module):
    """Nested outputs of several dtypes, and a buffer that every call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, *, scale: Tensor) -> tuple[Scored, list[Tensor]]:
        self.calls.add_(1)
        scores = x * scale + self.calls
        return Scored(scores, scores.argmax()), [self.calls.clone(), torch.view_as_complex(x)]


def test_nested_outputs_are_compared_in_the_models_structure(tmp_path: Path) -> None:
    module = Scorer()
    args = (torch.tensor([[1.0, 2.0], [0.5, -3.0]]),)
    kwargs = {"scale": torch.tensor(2.0, dtype=torch.bfloat16)}
    tpuc.compile(module, args, kwargs, output=tmp_path / "scorer.bin")
    seen = []

    def check(outputs: tuple[Scored, list[Tensor]]) -> int:
        scored, (calls, _) = outputs
        seen.append((type(scored), scored.scores.dtype, calls.item()))
        return int(scored.best)

    agreement = compare_with_eager(tmp_path / "scorer.bin", module, args, kwargs, check=check)
    assert agreement.holds
    assert agreement.check is True
    assert seen == [(Scored, torch.float32, 1)] * 2


def test_the_worst_output_is_named(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            wrong = int(torch.compiler.is_exporting())
            return {"near": x * (1 + 1e-6 * wrong), "count": x.argmax() + wrong, "far": x * (1 + 1e-5 * wrong)}

    module = Two()
    args = (torch.tensor([1.0, 2.0]),)
    tpuc.compile(module, args, output=tmp_path / "two.bin")
    agreement = compare_with_eager(tmp_path / "two.bin", module, args, {})
    # An integer that differs at all is worse than a float within its limit.
    assert (agreement.output, agreement.limit, agreement.holds) == ("count", 0.0, False)


def test_random_numbers_take_the_place_of_tensors_only() -> None:
    args, kwargs = randomize((torch.zeros(2, 3), 7), {"ids": torch.zeros(9, dtype=torch.int64), "flag": None})
    assert args[1] == 7
    assert kwargs["flag"] is None
    assert args[0].shape == (2, 3)
    assert args[0].dtype == torch.float32
    assert args[0].unique().numel() == 6
    assert kwargs["ids"].dtype == torch.int64
    assert set(kwargs["ids"].tolist()) == {0, 1}
    assert torch.equal(randomize((torch.zeros(4),), {})[0][0], randomize((torch.ones(4),), {})[0][0])


def test_random_numbers_in_bf16() -> None:
    (made,), _ = randomize((torch.zeros(5, dtype=torch.bfloat16),), {})
    assert made.dtype == torch.bfloat16
    assert made.abs().max() > 0
