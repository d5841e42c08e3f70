"""Modules with named sizes: what is refused and how it is said, and whole artifacts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from any_size import check, compile_any_size
from torch._higher_order_ops.while_loop import while_loop

import tpuc
from tpuc.errors import ExportError, InputError, PassError, RequestError
from tpuc.packaging import to_numpy


class Sum(torch.nn.Module):
    """Takes two inputs of one size."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


#: A model in a file, for the command line.
_PAIRS = """
import torch


class Pairs(torch.nn.Module):
    def forward(self, x):
        return x.reshape(-1, 2, 2).sum(1)
"""


def refused(*arguments: str | Path) -> str:
    """Runs a command that fails, and returns what it says."""
    command = [sys.executable, "-m", "tpuc.cli", *map(str, arguments)]
    done = subprocess.run(command, text=True, capture_output=True, timeout=300, check=False)
    assert done.returncode == 1
    return done.stderr


class Net(torch.nn.Module):
    """Attention over a sequence of any length, with a table of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.positions = torch.nn.Parameter(torch.randn(64, 8))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.linear(x) + self.positions[: x.shape[1]]
        seen = torch.nn.functional.scaled_dot_product_attention(hidden, hidden, hidden, is_causal=True)
        return {"mean": seen.mean(1), "rest": seen[:, 1:], "flat": seen.flatten(0, 1)}


@pytest.mark.parametrize(
    ("function", "sizes", "message"),
    [
        (lambda x: x * 2 if x.shape[0] > 2 else x, "s=1..9", r"forward cannot take all of s=1\.\.9: s=3\.\.9"),
        (lambda x: torch.hann_window(x.shape[0]) * x, "s=1..9", "s can only be"),
        (lambda x: x * 2 if x.shape[0] > 1 else x, "s=1..9", "goes another way for a size of one"),
        (lambda x: x[None].squeeze(1), "s=1..9", "goes another way for a size of one"),
    ],
)
def test_sizes_that_a_model_cannot_take(function: Callable[..., Any], sizes: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        compile_any_size(function, ["f32[s]"], [sizes])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2 if x.shape[0] == 1 else x + x,
        lambda x: x[None].squeeze().sum(),
    ],
)
def test_another_way_with_the_same_results_is_none(function: Callable[..., Any]) -> None:
    check(function, ["f32[s]"], ["s=1..4"])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x * max(x.shape[0], 3), r"Max\(3, s\d+\) is s at the sizes tried, and not at s=1"),
        (lambda x: x[: min(x.shape[0], 8)], r"Min\(8, s\d+\) is 8 at the sizes tried, and not at s=1"),
    ],
)
def test_what_is_another_function_at_other_sizes_is_refused(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(ExportError, match=f"(?s)cannot be brought to one form for all sizes: .*{message}"):
        compile_any_size(function, ["f32[s]"], ["s=1..20"])


def test_a_loop_that_carries_a_number_is_refused() -> None:
    def count(x: torch.Tensor) -> Any:
        return while_loop(lambda number, y: number < x.shape[0], lambda number, y: (number + 1, y + 1), (0, x))

    with pytest.raises(ExportError, match=r"(?s)works on a number that depends on data.* at .*\.py:\d+"):
        compile_any_size(count, ["f32[s]"], ["s=1..9"])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.roll(3, 0), "not at all sizes allowed"),
    ],
)
def test_operations_without_an_exact_rule_name_the_line(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(PassError, match=rf"(?s){message}.* at .*\.py:\d+"):
        compile_any_size(function, ["f32[s,3]"], ["s=1..9"])


def test_a_form_that_depends_on_the_size_names_the_line() -> None:
    with pytest.raises(
        ExportError,
        match=r"(?s)cannot be brought to one form.* works on a dimension that varies.* at .*any_size\.py:\d+",
    ):
        compile_any_size(lambda x: torch.linalg.inv(x), ["f32[s,s]"], ["s=3..9"])


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> tuple[torch.nn.Module, Path]:
    torch.manual_seed(0)
    module = Net().eval()
    path = tmp_path_factory.mktemp("artifact") / "net.bin"
    tpuc.compile(
        module, shapes="x=f32[batch,seq,8]", dims="batch=1..3 seq=2*k k=1..8", buckets="batch=1,3 seq=4,16", output=path
    )
    return module, path


def test_an_artifact_serves_every_size(artifact: tuple[torch.nn.Module, Path]) -> None:
    module, path = artifact
    with tpuc.runtime.load(path, recompile=False) as program:
        for batch in range(1, 4):
            for seq in range(2, 17, 2):
                x = torch.randn(batch, seq, 8)
                with torch.no_grad():
                    expected = module(x)
                outputs = program(to_numpy(x))
                for name, want in expected.items():
                    np.testing.assert_allclose(outputs[name], want, rtol=1e-5, atol=1e-5)
        stats = program.stats()
    assert [dict(bucket.sizes) for bucket in stats.buckets] == [
        {"batch": 1, "k": 2},
        {"batch": 1, "k": 8},
        {"batch": 3, "k": 2},
        {"batch": 3, "k": 8},
    ]
    assert [bucket.calls for bucket in stats.buckets] == [2, 6, 4, 12]
    assert stats.executable == "artifact"


def test_the_manifest_names_sizes_and_counts_masks(artifact: tuple[torch.nn.Module, Path]) -> None:
    manifest = tpuc.runtime.Artifact.open(artifact[1]).manifest
    assert list(map(str, manifest.inputs)) == ["x=f32[batch,2*k,8]"]
    assert list(map(str, manifest.outputs)) == [
        "mean=f32[batch,8]",
        "rest=f32[batch,2*k-1,8]",
        "flat=f32[2*batch*k,8]",
    ]
    assert all(program.masks > 0 for entry in manifest.entries for program in entry.programs)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 18, 8), r"k is 9 by x \(dimension 1 is 18\), and must be at most 8"),
        ((1, 0, 8), "must be at least 1"),
        ((1, 5, 8), r"x: dimension 1 is 5, which 2\*k is for no k"),
    ],
)
def test_sizes_that_the_artifact_cannot_take(
    artifact: tuple[torch.nn.Module, Path], shape: tuple[int, ...], message: str
) -> None:
    with tpuc.runtime.load(artifact[1], recompile=False) as program, pytest.raises(InputError, match=message):
        program(np.zeros(shape, np.float32))


def test_inputs_that_disagree_on_a_size(tmp_path: Path) -> None:
    path = tmp_path / "sum.bin"
    tpuc.compile(Sum(), shapes="x=f32[s,2] y=f32[s,2]", dims="s=1..4", buckets="s=4", output=path)
    with tpuc.runtime.load(path, recompile=False) as program:
        np.testing.assert_array_equal(
            program(np.ones((3, 2), np.float32), np.ones((3, 2), np.float32)), np.full((3, 2), 2)
        )
        with pytest.raises(InputError, match=r"s is 3 by x \(dimension 0 is 3\), and 2 by y \(dimension 0 is 2\)"):
            program(np.ones((3, 2), np.float32), np.ones((2, 2), np.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"--dims": "s=0..4"}, "s=0..4: a size is at least 1"),
        ({"--dims": "t=1..4"}, "it is not said what s may be"),
        ({"--dims": "s=1..4", "--buckets": "s=2"}, "no bucket of s has room for 4"),
        ({"--dims": "s=1..9"}, "forward cannot take all of s=1..9: 2*s must be a multiple of 4"),
    ],
)
def test_the_command_line_refuses_sizes(options: dict[str, str], message: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(_PAIRS)
    words = [word for option in options.items() for word in option]
    assert message in refused("compile", tmp_path / "net.py", "--shapes", "x=f32[s,2]", *words)


@pytest.mark.parametrize(
    ("length", "message"),
    [
        (18, "k is 9 by x (dimension 1 is 18), and must be at most 8"),
        (0, "k is 0 by x (dimension 1 is 0), and must be at least 1"),
    ],
)
def test_the_command_line_refuses_inputs(
    artifact: tuple[torch.nn.Module, Path], length: int, message: str, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, length, 8), np.float32))
    assert message in refused("run", artifact[1], "--input", tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buckets": "s=4"}, "buckets are of named sizes"),
        ({"dims": "s=1..4"}, "dims name the sizes in shapes"),
        ({"dims": "s=1..4", "shapes": "x=f32[2,t,8]"}, "it is not said what t may be"),
        ({"shapes": "x=f32[2,t,8]"}, "a dimension is a name"),
    ],
)
def test_requests_that_make_no_sense(options: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=message):
        tpuc.compile(Net(), output=tmp_path / "net.bin", **options)  # type: ignore[arg-type]
