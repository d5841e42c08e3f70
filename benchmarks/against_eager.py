"""Takes a module through the whole compile, for the CPU and a TPU, and compares what it computes with eager."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tpuc import mlir
from tpuc.backend.compile import compile_in, start_worker
from tpuc.dtypes import DTYPE_NAMES
from tpuc.errors import CrashError, ExportError, TpucError, UnsupportedOpError
from tpuc.frontend import stablehlo
from tpuc.frontend.capture import Capture, capture, export
from tpuc.lowerings.dtypes import to_torch
from tpuc.packaging import to_numpy
from tpuc.passes import PIPELINE, run_passes
from tpuc.program import OptimizedProgram, take_apart
from tpuc.runtime.cpu import CpuDevice
from tpuc.runtime.prepare import Preparer
from tpuc.runtime.spec import TensorSpec
from tpuc.targets import CPU, Target
from tpuc.worker import Worker

Outcome = Literal["ok", "not exportable", "unsupported", "wrong", "failed", "crashed"]
#: Relative to the largest finite value of the expected result, or absolute below 1; other dtypes are equal.
TOLERANCE: Mapping[torch.dtype, float] = {
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float64: 1e-7,
    torch.complex128: 1e-7,
    torch.bfloat16: 2e-2,
    torch.float16: 2e-3,
    torch.float8_e4m3fn: 0.0,
    torch.float8_e5m2: 0.0,
}
#: A small program compiles in a tenth of a second, a small model in a few.
_COMPILE_SECONDS = 300.0

Comparison = Callable[[list[Any], list[torch.Tensor]], str]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a program.

    Attributes:
        outcome: `ok`, or how it failed first: torch.export refuses it (`not exportable`), an operator has no lowering
            (`unsupported`), the answers differ from eager (`wrong`), a stage raised (`failed`), a process died or
            hung (`crashed`).
        target: Where it failed; "" if it did not, or before there was a target.
        detail: Why.
    """

    outcome: Outcome
    target: str = ""
    detail: str = ""


class Runner:
    """Runs programs; keeps the CPU, torch-mlir's process and the TPU's compiler between them."""

    def __init__(self, target: Target) -> None:
        """Starts the processes.

        Args:
            target: The TPU to compile for.
        """
        self._target = target
        self._cpu = CpuDevice()
        self._torch_mlir = Worker(stablehlo.WORKER)
        self._compiler = start_worker(target)

    def close(self) -> None:
        """Ends the processes."""
        self._torch_mlir.close()
        self._compiler.close()

    def run(
        self,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        eager: Callable[[], Sequence[torch.Tensor]],
        compare: Comparison,
    ) -> Verdict:
        """Exports a module, runs it on the CPU, compares with eager, and compiles it for the TPU.

        Args:
            module: The module.
            args: Its positional inputs.
            kwargs: Its inputs by name.
            eager: Gives what is expected. Where it raises RuntimeError, nothing is, and the module counts as not
                exportable.
            compare: Says how results (NumPy arrays) differ from what is expected; "" if they do not.
        """
        try:
            program = export(module, args, kwargs)
        except ExportError as error:
            return Verdict(outcome="not exportable", detail=error.what)
        try:
            expected = list(eager())
        except RuntimeError as error:
            return Verdict(outcome="not exportable", detail=f"eager fails: {error}")
        target = "cpu"
        try:
            captured = capture(program)
            lowered = self._lower(captured)
            results = self._execute(captured, lowered, (args, kwargs))
            if difference := compare(results, expected):
                return Verdict(outcome="wrong", target=target, detail=difference)
            target = str(self._target)
            self._compile(lowered)
        except UnsupportedOpError as error:
            reasons = "; ".join(f"{op.operator}: {op.reason}" for op in error.operators)
            return Verdict(outcome="unsupported", target=target, detail=reasons)
        except CrashError as error:
            return Verdict(outcome="crashed", target=target, detail=str(error))
        except TpucError as error:
            return Verdict(outcome="failed", target=target, detail=error.what)
        except Exception as error:  # A defect: one more thing to count.
            return Verdict(outcome="failed", target=target, detail=f"{type(error).__name__}: {error}")
        return Verdict(outcome="ok")

    def _lower(self, captured: Capture) -> stablehlo.Lowered:
        try:
            return stablehlo.lower(captured, self._torch_mlir)
        finally:
            if not self._torch_mlir.is_running:
                self._torch_mlir.close()
                self._torch_mlir = Worker(stablehlo.WORKER)

    def _compile(self, lowered: stablehlo.Lowered) -> None:
        try:
            program = _optimize(lowered, self._target)
            # Layers of one form are prepared by one program.
            for each in dict.fromkeys((program.main, *(each.program for each in program.preparations))):
                compile_in(self._compiler, each, self._target, timeout=_COMPILE_SECONDS)
        except CrashError:
            self._compiler.close()
            self._compiler = start_worker(self._target)
            raise

    def _execute(self, captured: Capture, lowered: stablehlo.Lowered, inputs: Any) -> list[Any]:
        given = iter([leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)])
        values = {
            f"{argument.kind}:{argument.name}": np.array(0)
            if argument.kind == "seed"
            else to_numpy((next(given) if argument.tensor is None else argument.tensor).detach())
            for argument in captured.arguments
        }
        program = _optimize(lowered, CPU)
        preparer = Preparer(self._cpu)
        for preparation in program.preparations:
            sources = [self._cpu.put(values[f"weight:{name}"]) for name in preparation.sources]
            prepared = preparer.prepare(preparation.program, preparation.spec, sources)
            values[f"prepared:{preparation.spec.name}"] = prepared.to_numpy()
        specs = [
            TensorSpec(name="", dtype=DTYPE_NAMES[result.meta.dtype], dims=result.meta.shape)
            for result in captured.results
        ]
        results = self._run(
            program.main, specs, [values[f"{argument.kind}:{argument.name}"] for argument in program.arguments]
        )
        kinds = [result.kind for result in captured.results]
        return [result for result, kind in zip(results, kinds, strict=True) if kind == "output"]

    def _run(self, program: bytes, specs: list[TensorSpec], values: list[Any]) -> list[Any]:
        executable = self._cpu.compile(program, specs)
        return [buffer.to_numpy() for buffer in executable.run([self._cpu.put(value) for value in values])]


def _optimize(lowered: stablehlo.Lowered, target: Target) -> OptimizedProgram:
    with mlir.make_context() as context:
        module = lowered.module(target.platform, context)
        run_passes(module, PIPELINE, target)
        return take_apart(module)


def shapes_and_dtypes(results: list[Any], expected: list[Any]) -> str:
    """Describes how results differ from what is expected in number, shape or dtype; "" if they do not."""
    if len(results) != len(expected):
        return f"{len(results)} results, eager gives {len(expected)}"
    for number, (result, want) in enumerate(zip(results, expected, strict=True)):
        if result.shape != want.shape or result.dtype != want.dtype:
            return f"result {number} is {result.dtype}{list(result.shape)}, eager {want.dtype}{list(want.shape)}"
    return ""


def difference(results: list[Any], expected: list[Any], tolerance: Mapping[torch.dtype, float] = TOLERANCE) -> str:
    """Describes how results differ from what is expected, beyond the tolerance; "" if they do not."""
    if problem := shapes_and_dtypes(results, expected):
        return problem
    for number, (result, want) in enumerate(zip(results, expected, strict=True)):
        if problem := _elements(result, want, tolerance.get(to_torch(want.dtype))):
            return f"result {number}: {problem}"
    return ""


def _elements(result: Any, want: Any, tolerance: float | None) -> str:
    if tolerance is None:
        wrong = result != want
        return f"{wrong.sum()} of {wrong.size} elements differ" if wrong.any() else ""
    if not result.size:
        return ""
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    result, want = result.astype(wide), want.astype(wide)
    for part in ("real", "imag"):
        a, b = getattr(result, part), getattr(want, part)
        if (np.isnan(a) != np.isnan(b)).any():
            return "NaN in other places"
        infinite = np.isinf(a) | np.isinf(b)
        if (a[infinite] != b[infinite]).any():
            return "infinities in other places"
    finite = np.isfinite(want)
    if not finite.any():
        return ""
    scale = max(float(np.abs(want[finite]).max()), 1e-6)
    error = float(np.abs(result[finite] - want[finite]).max())
    return f"off by {error / scale:.2g} of the scale" if error > tolerance * max(scale, 1.0) else ""
