"""Passes and their options; running them, dumping, and what is left behind when one fails."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.errors import PassError, RequestError
from tpuc.passes.base import Pass, PassContext, PassReport, run_passes
from tpuc.passes.cse import Cse
from tpuc.passes.simplify_arithmetic import SimplifyArithmetic
from tpuc.targets import CPU, Target

V5E = Target.parse("v5e")
TEXT = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.negate %x : tensor<4xf32> loc("model/neg"("model.py":3:0))
  return %0 : tensor<4xf32>
}
"""


@dataclass(frozen=True, kw_only=True)
class Everything(Pass):
    """One option of each type."""

    name: ClassVar[str] = "everything"
    count: int = 3
    ratio: float = 0.5
    is_on: bool = False
    label: str = "a"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        return {"fired": 2}


@dataclass(frozen=True, kw_only=True)
class Broken(Pass):
    """Raises, or leaves an invalid module."""

    name: ClassVar[str] = "broken"
    how: str = "raise"

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        negate = module.body.operations[0].regions[0].blocks[0].operations[0]
        if self.how == "raise":
            negate.operation.location = ir.Location.unknown(module.context)
            raise ZeroDivisionError("by zero")
        if self.how == "refuse":
            raise PassError("does not like it", where="model.py:3")
        if self.how == "interrupt":
            raise KeyboardInterrupt
        with module.context, ir.Location.unknown():
            negate.results[0].set_type(ir.Type.parse("tensor<5xf32>"))
        return {}


@pytest.fixture
def module() -> Iterator[ir.Module]:
    with mlir.make_context() as context:
        yield mlir.parse(TEXT, context)


def test_options_default() -> None:
    assert Everything.with_options({}) == Everything()
    assert str(Everything()) == "everything"


def test_options_of_each_type() -> None:
    each = Everything.with_options({"count": "-7", "ratio": "1e-3", "is-on": "true", "label": "b c"})
    assert each == Everything(count=-7, ratio=1e-3, is_on=True, label="b c")
    assert str(each) == 'everything{count=-7 ratio=0.001 is-on=true label="b c"}'


@pytest.mark.parametrize(
    ("option", "text", "kind"), [("count", "1.5", "int"), ("ratio", "x", "float"), ("is-on", "1", "bool")]
)
def test_options_of_the_wrong_type(option: str, text: str, kind: str) -> None:
    with pytest.raises(RequestError, match=f"pass everything: {option}={text} is not of type {kind}"):
        Everything.with_options({option: text})


def test_unknown_options() -> None:
    with pytest.raises(RequestError, match=r"no option 'counts'\n  It has: count, is-on, label, ratio\."):
        Everything.with_options({"counts": "1"})
    with pytest.raises(RequestError, match=r"pass cse has no option 'x'\n  It has none\."):
        Cse.with_options({"x": "1"})


def test_observer(module: ir.Module) -> None:
    reports: list[PassReport] = []
    run_passes(module, [Everything(count=1), Cse()], V5E, observer=reports.append)
    assert [report.text for report in reports] == ["everything{count=1}", "cse"]
    assert [report.rewrites for report in reports] == [{"fired": 2}, {}]
    assert all(report.seconds >= 0 for report in reports)


def test_dump(module: ir.Module, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "dump"
    run_passes(module, [Everything(), Cse()], V5E, dump=folder)
    assert sorted(path.name for path in folder.iterdir()) == ["00-input.mlir", "01-everything.mlir", "02-cse.mlir"]
    text = (folder / "02-cse.mlir").read_text()
    assert 'loc("model.py":3:0)' in text
    with mlir.make_context() as context:
        assert mlir.to_text(mlir.parse(text, context)) == mlir.to_text(module)


def test_a_pass_that_raises(module: ir.Module, tmp_path: Path) -> None:
    before = mlir.to_text(module, locations=True)
    with pytest.raises(PassError) as caught:
        run_passes(module, [Cse(), Broken()], V5E, dump=tmp_path)
    path = tmp_path / "02-broken.reproducer.mlir"
    assert caught.value.what == "pass broken failed: ZeroDivisionError: by zero"
    assert caught.value.hint == f"Reproduce it: tpuc opt --passes broken --target v5e {path}"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    first, _, rest = path.read_text().partition("\n")
    assert first == f"// RUN: tpuc opt --passes broken --target v5e {path}"
    with mlir.make_context() as context:
        assert mlir.to_text(mlir.parse(rest, context), locations=True) == before


def test_a_pass_that_leaves_an_invalid_module(module: ir.Module, tmp_path: Path) -> None:
    with pytest.raises(PassError, match="pass broken failed: MLIRError: Verification failed") as caught:
        run_passes(module, [Broken(how="leave it invalid")], CPU, dump=tmp_path)
    command = shlex.split(str(caught.value.hint).removeprefix("Reproduce it: "))
    assert command[:4] == ["tpuc", "opt", "--passes", 'broken{how="leave it invalid"}']
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00-input.mlir", "01-broken.reproducer.mlir"]


def test_a_pass_that_refuses_keeps_its_place(module: ir.Module, tmp_path: Path) -> None:
    with pytest.raises(PassError, match="pass broken failed: does not like it") as caught:
        run_passes(module, [Broken(how="refuse")], CPU, dump=tmp_path)
    assert caught.value.where == "model.py:3"


def test_a_reproducer_without_a_dump_folder(module: ir.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(PassError):
        run_passes(module, [Broken()], CPU)
    (path,) = tmp_path.glob("tpuc-*/01-broken.reproducer.mlir")
    assert path.read_text().startswith("// RUN: tpuc opt --passes broken ")


def test_an_interrupt_is_not_the_fault_of_a_pass(module: ir.Module, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_passes(module, [Broken(how="interrupt")], CPU, dump=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00-input.mlir"]


def test_passes_run_in_order(module: ir.Module) -> None:
    seen: list[str] = []
    run_passes(module, [SimplifyArithmetic(), Cse()], CPU, observer=lambda report: seen.append(report.text))
    assert seen == ["simplify-arithmetic", "cse"]
