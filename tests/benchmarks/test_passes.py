"""docs/passes.md against the passes, and how it is written."""

from __future__ import annotations

from benchmarks.passes import DOCUMENT, Figures, Measured, read_measured, reasons, report
from tpuc.passes import PASSES, PIPELINE


def test_the_document_is_of_these_passes_and_figures() -> None:
    assert DOCUMENT.read_text() == report(read_measured()), "write it with python -m benchmarks.passes --only-write"


def test_every_pass_says_why_it_stands_where_it_does() -> None:
    found = reasons()
    assert set(found) == set(PASSES)
    assert all(found.values())


def _figures(program: str, cycles: int, temp_bytes: int = 0) -> Figures:
    return Figures(program=program, cycles=cycles, temp_bytes=temp_bytes, argument_bytes=1 << 20)


def test_the_report_compares_with_the_whole() -> None:
    measured = Measured(
        model="minilm",
        versions={"libtpu": "1"},
        whole=_figures("a", 1000),
        without={
            "cse": _figures("a", 1000),
            "fold-transpose": _figures("b", 1500, 3 << 20),
            "convert-arith": Figures(program="", fails="no"),
        },
        precisions={"bf16": _figures("c", 800)},
    )
    lines = report([measured]).splitlines()
    assert "Measured with libtpu 1." in lines
    assert "| `cse` | - |" in lines
    assert "| `fold-transpose` | 1.500, +3.0 MiB |" in lines
    assert "| `convert-arith` | does not compile |" in lines
    assert "| `simplify-shape` | not measured |" in lines
    assert "| `bf16` | 0.800, 1 MiB |" in lines
    listed = [line.split("`")[1] for line in lines if line.startswith("| ") and line[2].isdigit()]
    assert listed == [each.name for each in PIPELINE]
