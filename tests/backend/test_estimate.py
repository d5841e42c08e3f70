"""Estimates: asked for once, of a process that may be given."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tpuc import mlir
from tpuc.backend import estimate
from tpuc.backend.compile import Executable
from tpuc.backend.estimate import LibtpuEstimator
from tpuc.errors import CrashError
from tpuc.runtime.cache import Cache
from tpuc.targets import Target
from tpuc.worker import Worker

V5E = Target.parse("v5e")
HLO = 'ENTRY %main (x: f32[4]) -> f32[4] {\n  %y = f32[4] tanh(%x), backend_config={"estimated_cycles":"42"}\n}\n'
MODULE = """
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.tanh %x : tensor<4xf32> loc("PLACE")
  return %0 : tensor<4xf32>
}
"""


class Process:
    """Stands for a worker."""

    is_open = True

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def compiled_in(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    """Lets nothing be compiled, and collects which process would have."""
    processes: list[Process] = []

    def compile_in(worker: Process, program: bytes, target: Target) -> Executable:
        processes.append(worker)
        return Executable(target=target, serialized=program, hlo=HLO, memory={}, compiler={}, host="")

    monkeypatch.setattr(estimate, "compile_in", compile_in)
    monkeypatch.setattr(estimate, "start_worker", lambda target: Process())
    return processes


def _cycles(estimator: LibtpuEstimator, place: str) -> int | None:
    with mlir.make_context() as context:
        return estimator.cycles(mlir.parse(MODULE.replace("PLACE", place), context))


def test_equal_programs_are_compiled_once_wherever_they_come_from(tmp_path: Path, compiled_in: list[Process]) -> None:
    with LibtpuEstimator(V5E, cache=Cache(tmp_path, "estimate")) as estimator:
        assert _cycles(estimator, "layers.0") == _cycles(estimator, "layers.1") == 42
    assert len(compiled_in) == 1
    assert not compiled_in[0].is_open


def test_several_programs_are_compiled_side_by_side(
    tmp_path: Path, compiled_in: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    both = threading.Barrier(2)
    compile_in = estimate.compile_in

    def compile_beside_another(worker: Worker, program: bytes, target: Target) -> Executable:
        both.wait(timeout=60)
        made = compile_in(worker, program, target)
        cycles = "43" if b"sine" in program else "42"
        return replace(made, hlo=made.hlo.replace("42", cycles))

    monkeypatch.setattr(estimate, "compile_in", compile_beside_another)
    with mlir.make_context() as context, LibtpuEstimator(V5E, cache=Cache(tmp_path, "estimate")) as estimator:
        texts = [MODULE, MODULE.replace("tanh", "sine"), MODULE.replace("PLACE", "elsewhere")]
        assert estimator.cycles_of([mlir.parse(text, context) for text in texts]) == [42, 43, 42]
    assert len(set(compiled_in)) == 2
    assert not any(process.is_open for process in compiled_in)


def test_a_given_process_stays_open(tmp_path: Path, compiled_in: list[Process]) -> None:
    given = Process()
    worker: Worker = given  # type: ignore[assignment]
    with LibtpuEstimator(V5E, cache=Cache(tmp_path, "estimate"), workers=[worker]) as estimator:
        _cycles(estimator, "layers.0")
    assert compiled_in == [given]
    assert given.is_open


def test_a_process_that_ends_is_replaced_and_says_nothing_of_the_program(
    tmp_path: Path, compiled_in: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Process()
    worker: Worker = given  # type: ignore[assignment]
    compile_in = estimate.compile_in

    def crash(*arguments: object) -> Executable:
        monkeypatch.setattr(estimate, "compile_in", compile_in)
        raise CrashError("the compile for v5e: the process ended")

    monkeypatch.setattr(estimate, "compile_in", crash)
    with LibtpuEstimator(V5E, cache=Cache(tmp_path, "estimate"), workers=[worker]) as estimator:
        assert _cycles(estimator, "layers.0") is None
        assert not given.is_open
        assert _cycles(estimator, "layers.0") == 42
    assert len(compiled_in) == 1
    assert compiled_in != [given]
