"""The coverage benchmark: a sample of it for operators, layers and models, its known gaps, and its report.

`make coverage` runs all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import coverage_gaps
from benchmarks.coverage import Pool, run_case, run_name
from benchmarks.coverage_gaps import GAPS, Gap, closed, unexplained
from benchmarks.coverage_report import SUITES, report
from benchmarks.coverage_results import CaseResult, read_results, to_lines

#: Every kind of operator, and a second one of some.
_OPERATORS = 70
_OTHERS = (
    ("layers", "Bilinear"),
    ("layers", "ConvTranspose3d"),
    ("layers", "EmbeddingBag"),
    ("layers", "GRU"),
    ("layers", "MaxUnpool2d"),
    ("layers", "MultiheadAttention"),
    ("transformers", "t5"),
    ("transformers", "mamba"),
    ("transformers", "mixtral"),
    ("timm", "test_vit"),
    ("diffusers", "UNet2DModel"),
)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Workers, as in the benchmark: what PyTorch's test code and the libraries of models change stays in them."""
    with Pool() as pool:
        yield pool


@pytest.mark.parametrize("part", range(10))
def test_operators(pool: Pool, part: int) -> None:
    names = pool.call({"do": "list_sample", "count": _OPERATORS}, "the operators to try")["names"][part::10]
    results = [result for name in names for result in run_name(pool, "operators", name, _of_first_dtype)]
    assert {result.name for result in results} == set(names)
    assert [str(result) for result in unexplained(results)] == []


def _of_first_dtype(cases: list[str]) -> list[str]:
    return [case for case in cases if case.split()[0] == cases[0].split()[0]]


@pytest.mark.parametrize(("suite", "name"), _OTHERS)
def test_layers_and_models(pool: Pool, suite: str, name: str) -> None:
    results = run_name(pool, suite, name, list)
    assert [str(result) for result in results if result.outcome != "ok"] == []
    assert results


@pytest.mark.parametrize("gap", GAPS, ids=[gap.example[0] for gap in GAPS])
def test_a_gap_is_still_there(pool: Pool, gap: Gap) -> None:
    result = run_case(pool, gap.suite, *gap.example)
    assert result.is_bad, "it works now: take it out of benchmarks/coverage_gaps.py"
    assert gap.covers(result)


_RESULTS = [
    CaseResult(suite="operators", name="add", case="f32 0", outcome="ok"),
    CaseResult(suite="operators", name="add", case="i64 0", outcome="wrong", target="cpu", detail="off"),
    CaseResult(suite="operators", name="equal", case="f32 0", outcome="not exportable", detail="data"),
    CaseResult(suite="operators", name="cos", case="f32 0", outcome="ok"),
    CaseResult(suite="layers", name="Linear", case="0", outcome="ok"),
]
_GAP = Gap(suite="operators", names="add", cases="^i64", kind="the test", cause="made up", example=("add", "i64 0"))


def test_results_of_an_interrupted_run_are_read(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert read_results(path) == []
    again = CaseResult(suite="operators", name="add", case="i64 0", outcome="ok")
    path.write_text(to_lines([*_RESULTS, again]) + to_lines(_RESULTS[:1])[:20])
    assert read_results(path) == [_RESULTS[0], again, *_RESULTS[2:]]


def test_cases_that_could_not_be_listed_are_forgotten_once_they_are(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    unlisted = CaseResult(suite="operators", name="add", case="", outcome="crashed")
    path.write_text(to_lines([unlisted, *_RESULTS]))
    assert read_results(path) == _RESULTS
    path.write_text(to_lines([unlisted]))
    assert read_results(path) == [unlisted]


def test_the_table_of_gaps_is_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage_gaps, "GAPS", ())
    assert unexplained(_RESULTS) == [_RESULTS[1]]
    monkeypatch.setattr(coverage_gaps, "GAPS", (_GAP,))
    assert (unexplained(_RESULTS), closed(_RESULTS)) == ([], [])
    works = CaseResult(suite="operators", name="add", case="i64 1", outcome="ok")
    assert closed([*_RESULTS, works]) == [works]


def test_the_report_counts_an_operator_by_its_worst_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.coverage_report.GAPS", (_GAP,))
    lines = report(_RESULTS, dict.fromkeys(SUITES, 5)).splitlines()
    assert "| operators (OpInfo) | 5 | 3 | 2 | 1 | 50.0% | 1 | 0 | 0 |" in lines
    assert "| layers of torch.nn | 5 | 1 | 1 | 1 | 100.0% | 0 | 0 | 0 |" in lines
    assert "| i64 | 1 | 1 | 0 | 1 | 0 | 0 |" in lines
    assert "| `add` | i64 | the test | made up |" in lines
    assert "- operators (OpInfo): `equal`" in lines
