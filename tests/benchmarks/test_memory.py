"""Comparing how much memory it takes to load a model."""

from pathlib import Path

from benchmarks.memory import compare, peak


def test_every_way_loads_a_small_model_and_runs_it(tmp_path: Path) -> None:
    rows = compare(tmp_path, width=64, layers=2)
    assert len(rows) == 3
    for row in rows:
        assert row["weights_bytes"] == 2 * 64 * 64 * 4
        assert row["peak_bytes"] > row["weights_bytes"]
        assert row["ratio"] == row["peak_bytes"] / row["weights_bytes"]


def test_a_peak_counts_what_is_freed_again() -> None:
    little, much = (peak(f"x = bytes([1]) * {size}; del x\n", Path(), 0) for size in (1, 50_000_000))
    assert 45_000_000 < much - little < 55_000_000
