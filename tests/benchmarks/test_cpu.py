"""Comparing latencies on the CPU, on a tiny module."""

from pathlib import Path

import pytest
import torch

from benchmarks.cpu import compare


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TorchInductor imports what PyTorch has deprecated.
def test_every_way_runs_and_is_held_against_eager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Set by the benchmark; set here so that it is set back.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    rows = {
        row["way"]: row for row in compare((torch.nn.Linear(4, 4).eval(), {"input": torch.ones(1, 4)}), tmp_path, 2)
    }
    assert list(rows) == ["eager PyTorch", "torch.compile", "tpuc's artifact"]
    for row in rows.values():
        assert row["ratio"] == row["seconds"] / rows["eager PyTorch"]["seconds"]
        assert row["first_seconds"] > 0
    assert rows["tpuc's artifact"]["compile_seconds"] > 0
    # torch.compile compiled anew, where it was told to keep what it makes.
    assert any(tmp_path.rglob("*.so"))
