"""Runs PyTorch's own operator samples (OpInfo) through tpuc, and compares with eager.

OpInfo (`torch.testing._internal.common_methods_invocations.op_db`) is PyTorch's database of operators with sample
inputs. For an operator and a dtype, the first four samples are taken, and four spread over the rest: the first
ones are mostly of rank 0 or size 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils import _pytree as pytree

from tpuc import mlir
from tpuc.errors import ExportError, TpucError, UnsupportedOpError
from tpuc.frontend.capture import Capture, capture, export
from tpuc.frontend.stablehlo import Lowered, lower
from tpuc.packaging import to_numpy
from tpuc.passes import PIPELINE, run_passes
from tpuc.runtime.cpu import CpuDevice
from tpuc.runtime.spec import TensorSpec
from tpuc.shapes import TORCH_DTYPES
from tpuc.targets import CPU
from tpuc.worker import Worker

#: Dtypes beside the first, where an operator has them.
MORE_DTYPES = (torch.bfloat16, torch.int64, torch.bool, torch.complex64)
#: Relative to the largest finite value of the expected result.
TOLERANCE = {torch.float32: 1e-4, torch.complex64: 1e-4, torch.float64: 1e-7, torch.bfloat16: 2e-2, torch.float16: 2e-3}

Outcome = Literal["ok", "not exportable", "unsupported", "wrong", "failed"]
_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


@dataclass(frozen=True, kw_only=True)
class SampleResult:
    """What became of one sample.

    Attributes:
        operator: OpInfo's name, with the variant: `nn.functional.pad.circular`.
        dtype: The dtype of the sample.
        index: Its place among the operator's samples.
        outcome: What happened.
        detail: The reason, where it is not ok.
    """

    operator: str
    dtype: str
    index: int
    outcome: Outcome
    detail: str = ""


def operators() -> dict[str, OpInfo]:
    """Every operator of the database, by its full name."""
    return {op.full_name if hasattr(op, "full_name") else _full_name(op): op for op in op_db}


def _full_name(op: OpInfo) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def dtypes_of(op: OpInfo) -> list[torch.dtype]:
    """f32, or the first dtype that the operator has, and those of `MORE_DTYPES` that it has; none if it has no CPU."""
    supported = op.supported_dtypes("cpu")
    if not supported:
        return []
    first = torch.float32 if torch.float32 in supported else sorted(supported, key=str)[0]
    return [first, *(dtype for dtype in MORE_DTYPES if dtype in supported and dtype != first)]


def samples_of(op: OpInfo, dtype: torch.dtype) -> list[tuple[int, Any]]:
    """The first four samples, and four spread over the rest, with their places."""
    torch.manual_seed(0)
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=False))
    rest = range(4, len(samples))
    spread = [rest[i * len(rest) // 4] for i in range(4)] if len(rest) > 4 else list(rest)
    return [(index, samples[index]) for index in (*range(min(4, len(samples))), *spread)]


class _Sample(torch.nn.Module):
    """An operator with everything of a sample but its tensors."""

    def __init__(self, function: Callable[..., Any], leaves: list[Any], spec: pytree.TreeSpec) -> None:
        super().__init__()
        self._function = function
        self._leaves = leaves
        self._spec = spec

    def forward(self, *tensors: torch.Tensor) -> Any:
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        # In place variants write to their input; the module's own inputs must stay.
        return self._function(*args, **kwargs)


class Runner:
    """Runs samples; keeps the device and the torch-mlir process between them."""

    def __init__(self) -> None:
        self._device = CpuDevice()
        self._worker = Worker("tpuc.frontend.torch_mlir_worker")

    def close(self) -> None:
        """Ends the torch-mlir process."""
        self._worker.close()

    def run(self, name: str, op: OpInfo, dtype: torch.dtype) -> Iterator[SampleResult]:
        """Runs an operator's samples of a dtype."""
        for index, sample in samples_of(op, dtype):
            outcome, detail = self._run_sample(op, sample)
            yield SampleResult(operator=name, dtype=_NAMES[dtype], index=index, outcome=outcome, detail=detail)

    def _run_sample(self, op: OpInfo, sample: Any) -> tuple[Outcome, str]:
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
        tensors = tuple(leaf.detach().clone() for leaf in leaves if isinstance(leaf, torch.Tensor))
        module = _Sample(_unseeded(op), leaves, spec)
        try:
            program = export(module, tensors, {})
        except ExportError as error:
            return "not exportable", error.what
        try:
            with torch.no_grad():
                expected = pytree.tree_leaves(module(*(tensor.clone() for tensor in tensors)))
        except RuntimeError as error:  # as_strided on the storage of a view, which a copy does not have.
            return "not exportable", f"eager fails on a copy of the inputs: {error}"
        expected = [value for value in expected if isinstance(value, torch.Tensor)]
        try:
            captured = capture(program)
            lowered = lower(captured, self._worker)
            results = self._execute(captured, lowered, tensors)
        except UnsupportedOpError as error:
            return "unsupported", "; ".join(f"{op.operator}: {op.reason}" for op in error.operators)
        except TpucError as error:
            return "failed", error.what
        except Exception as error:  # A defect: one more thing to count.
            return "failed", f"{type(error).__name__}: {error}"
        return _compare(results, expected, random=_is_random(op))

    def _execute(self, captured: Capture, lowered: Lowered, tensors: tuple[torch.Tensor, ...]) -> list[Any]:
        with mlir.make_context() as context:
            module = lowered.module("cpu", context)
            run_passes(module, PIPELINE, CPU)
            program = mlir.to_portable(module)
        specs = [
            TensorSpec(name="", dtype=_NAMES[result.meta.dtype], dims=result.meta.shape) for result in captured.results
        ]
        inputs = iter(tensors)
        values = [
            to_numpy(next(inputs) if argument.tensor is None else argument.tensor) for argument in captured.arguments
        ]
        executable = self._device.compile(program, specs)
        return [buffer.to_numpy() for buffer in executable.run([self._device.put(value) for value in values])]


def _unseeded(op: OpInfo) -> Callable[..., Any]:
    """The operator without the fixed seed that OpInfo wraps random operators in, which export would bake in."""
    function = op.op
    return getattr(function, "__wrapped__", function) if _is_random(op) else function


def _is_random(op: OpInfo) -> bool:
    """Whether results differ from run to run: compared by shape and dtype."""
    name = op.name
    return any(
        part in name
        for part in (
            "rand",
            "normal",
            "dropout",
            "bernoulli",
            "multinomial",
            "cauchy",
            "exponential",
            "geometric",
            "log_normal",
            "uniform",
            "empty",
            "rrelu",
        )
    )


def _compare(results: list[Any], expected: list[torch.Tensor], *, random: bool) -> tuple[Outcome, str]:
    if len(results) != len(expected):
        return "wrong", f"{len(results)} results, eager gives {len(expected)}"
    for number, (result, tensor) in enumerate(itertools.zip_longest(results, expected)):
        want = to_numpy(tensor)
        if result.shape != want.shape or result.dtype != want.dtype:
            return (
                "wrong",
                f"result {number} is {result.dtype}{list(result.shape)}, eager {want.dtype}{list(want.shape)}",
            )
        if not random and (problem := _difference(result, want, tensor.dtype)):
            return "wrong", f"result {number}: {problem}"
    return "ok", ""


def _difference(result: Any, want: Any, dtype: torch.dtype) -> str:
    """Describes how two arrays differ, beyond the dtype's tolerance; "" if they do not."""
    if dtype not in TOLERANCE:
        wrong = result != want
        return f"{wrong.sum()} of {wrong.size} elements differ" if wrong.any() else ""
    if not result.size:
        return ""
    wide = np.complex128 if dtype.is_complex else np.float64
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
    return f"off by {error / scale:.2g} of the scale" if error > TOLERANCE[dtype] * max(scale, 1.0) else ""
