"""What `tpuc compile --explain` prints."""

from __future__ import annotations

import io
from pathlib import Path

import torch
from rich.console import Console

import tpuc
from tpuc.passes import PIPELINE, PassReport
from tpuc.report.explanation import Explanation, explanation_report
from tpuc.targets import CPU, Target

_PASSES = (
    PassReport(text="cse", rewrites={}, seconds=0.01),
    PassReport(text="fold-transpose", rewrites={"swap": 2, "fold": 30}, seconds=1.5),
)


def _text(target: Target, before: int | None, after: int | None) -> list[str]:
    explanation = Explanation(target=target, bucket=(), passes=_PASSES, cycles_before=before, cycles_after=after)
    console = Console(file=io.StringIO(), width=100)
    console.print(explanation_report(explanation))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_rewrites_are_counted_by_rule_and_estimates_compared() -> None:
    lines = _text(Target.parse("v5e"), 2000, 1500)
    assert lines[0] == "the passes for v5e"
    assert lines[2].split() == ["cse", "-", "0.01", "s"]
    assert lines[3].split(maxsplit=4)[:2] == ["fold-transpose", "32"]
    assert lines[3].endswith("fold 30, swap 2")
    assert lines[4] == "estimated cycles: 2,000 as it was lowered, 1,500 after the passes, 0.75 of them"


def test_waste_is_said_before_and_after() -> None:
    explanation = Explanation(
        target=Target.parse("v5e"),
        bucket=(),
        passes=(),
        cycles_before=2,
        cycles_after=1,
        fill_before=0.75,
        fill_after=1.0,
    )
    console = Console(file=io.StringIO(), width=100)
    console.print(explanation_report(explanation))
    last = console.file.getvalue().splitlines()[-1]  # type: ignore[attr-defined]
    assert last == "products leave 25.0% of their tiles empty as it was lowered, 0.0% after the passes"


def test_missing_estimates_are_said() -> None:
    assert _text(CPU, None, None)[-1] == "no estimate: the compiler for this target makes none"
    assert _text(Target.parse("v5e"), None, 7)[-1].endswith("as it was lowered cannot be compiled")


class Net(torch.nn.Module):
    """Something that passes improve: a batch norm's statistics in every call, and a transposed weight."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(128, 128)
        self.norm = torch.nn.BatchNorm1d(128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x)).relu()


def test_a_compile_explains_each_target(tmp_path: Path) -> None:
    arguments = (Net().eval(), (torch.randn(16, 128),))
    compiled = tpuc.compile(*arguments, targets=["cpu", "v5e"], output=tmp_path / "a.bin", explain=True)
    cpu, v5e = compiled.explanations
    for explanation in (cpu, v5e):
        assert [report.text for report in explanation.passes] == list(map(str, PIPELINE))
    assert (cpu.cycles_before, cpu.cycles_after) == (None, None)
    assert (cpu.fill_before, v5e.fill_before, v5e.fill_after) == (None, 1.0, 1.0)
    assert v5e.cycles_before is not None
    assert v5e.cycles_after == compiled.executables[1].cycles.total
    assert v5e.cycles_after <= v5e.cycles_before
    assert {report.text: report.rewrites for report in v5e.passes}["hoist-weights"]["hoisted"] > 0


def test_a_compile_explains_nothing_unasked(tmp_path: Path) -> None:
    compiled = tpuc.compile(Net().eval(), (torch.randn(16, 128),), output=tmp_path / "a.bin")
    assert compiled.explanations == ()
