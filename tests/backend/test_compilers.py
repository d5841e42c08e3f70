"""What compiles the programs of an artifact: nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import tpuc
from tpuc.backend import compilers
from tpuc.passes import roll_layers


class Stack(nn.Module):
    """Layers of one form."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(128, 128), nn.GELU()) for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def test_what_was_compiled_for_an_estimate_is_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_program(*arguments: object, **options: object) -> None:
        raise AssertionError("it was compiled while a pass asked what it would cost")

    # The loop stays, whatever it costs.
    monkeypatch.setattr(roll_layers, "_MOST_LOSS", 100.0)
    module, x = Stack().eval(), torch.randn(8, 128)
    with monkeypatch.context() as patch:
        patch.setattr(compilers, "compile_program", compile_program)
        first = tpuc.compile(module, (x,), targets=["v5e"], weights="none", output=tmp_path / "a.bin")
    assert "8 layers on v5e are loops, over stacked weights" in first.progress.notes
    assert not first.executables[0].executable.is_cached
    # It is kept for the next compile all the same.
    second = tpuc.compile(module, (x,), targets=["v5e"], weights="none", output=tmp_path / "b.bin")
    assert second.executables[0].executable.is_cached
    assert second.executables[0].executable.serialized == first.executables[0].executable.serialized
