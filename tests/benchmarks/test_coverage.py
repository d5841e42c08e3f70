"""The coverage benchmark: a sample of it for operators, layers and models, its known gaps, and its report.

`make coverage` runs all of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import coverage_gaps, models_diffusers, models_layers, models_timm, models_transformers, opinfo
from benchmarks.against_eager import Runner, Verdict
from benchmarks.coverage_gaps import GAPS, Gap, closed, unexplained
from benchmarks.coverage_report import report
from benchmarks.coverage_results import CaseResult, read_results, to_lines
from benchmarks.coverage_worker import SUITES
from tpuc.targets import Target

#: About one operator in six: every kind of operator, and more of the larger kinds.
_OPERATORS = opinfo.stratified(110)
_LAYERS = ("Bilinear", "ConvTranspose3d", "CTCLoss", "EmbeddingBag", "GRU", "MaxUnpool2d", "MultiheadAttention")
_MODELS = (
    (models_transformers, "t5"),
    (models_transformers, "mamba"),
    (models_transformers, "mixtral"),
    (models_timm, "test_vit"),
    (models_diffusers, "UNet2DModel"),
)


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    runner = Runner(Target.parse("v5e"))
    yield runner
    runner.close()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The programs are PyTorch's and others': their warnings are not ours to answer for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _is_expected(suite: str, name: str, case: str, verdict: Verdict) -> bool:
    result = CaseResult(suite=suite, name=name, case=case, outcome=verdict.outcome, detail=verdict.detail)
    return not unexplained([result])


@pytest.mark.parametrize("name", _OPERATORS)
def test_operators(runner: Runner, name: str) -> None:
    dtype = opinfo.cases(name)[0].split()[0]
    samples = [case for case in opinfo.cases(name) if case.startswith(f"{dtype} ")]
    if opinfo.run(runner, name, ", ".join(samples)).outcome == "ok":
        return
    for case in samples:
        verdict = opinfo.run(runner, name, case)
        assert _is_expected("operators", name, case, verdict), (case, verdict)


@pytest.mark.parametrize("name", _LAYERS)
def test_layers(runner: Runner, name: str) -> None:
    for case in models_layers.cases(name):
        verdict = models_layers.run(runner, name, case)
        assert verdict.outcome == "ok", (case, verdict)


@pytest.mark.parametrize(("suite", "name"), _MODELS, ids=[name for _, name in _MODELS])
def test_models(runner: Runner, suite: object, name: str) -> None:
    verdict = suite.run(runner, name, "")  # type: ignore[attr-defined]
    assert verdict.outcome == "ok", verdict


@pytest.mark.parametrize("gap", GAPS, ids=[gap.example[0] for gap in GAPS])
def test_a_gap_is_still_there(runner: Runner, gap: Gap) -> None:
    name, case = gap.example
    verdict = import_module(SUITES[gap.suite]).run(runner, name, case)
    assert verdict.outcome not in ("ok", "not exportable"), "it works now: take it out of benchmarks/coverage_gaps.py"
    assert gap.covers(CaseResult(suite=gap.suite, name=name, case=case, outcome=verdict.outcome))


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


def test_the_table_of_gaps_is_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage_gaps, "GAPS", ())
    assert unexplained(_RESULTS) == [_RESULTS[1]]
    monkeypatch.setattr(coverage_gaps, "GAPS", (_GAP,))
    assert (unexplained(_RESULTS), closed(_RESULTS)) == ([], [])
    works = CaseResult(suite="operators", name="add", case="i64 1", outcome="ok")
    assert closed([*_RESULTS, works]) == [works]


def test_the_report_counts_an_operator_by_its_worst_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.coverage_report.GAPS", (_GAP,))
    lines = report(_RESULTS).splitlines()
    assert "| operators (OpInfo) | 3 | 2 | 1 | 50.0% | 1 | 0 | 0 |" in lines
    assert "| layers of torch.nn | 1 | 1 | 1 | 100.0% | 0 | 0 | 0 |" in lines
    assert "| i64 | 1 | 1 | 0 | 1 | 0 | 0 |" in lines
    assert "| `add` | i64 | the test | made up |" in lines
    assert "- operators (OpInfo): `equal`" in lines
