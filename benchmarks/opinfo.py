"""Runs PyTorch's own operator samples (OpInfo) through tpuc, and compares with eager.

OpInfo (`torch.testing._internal.common_methods_invocations.op_db`) is PyTorch's database of operators with sample
inputs. For an operator and a dtype, the first four samples are taken, and four spread over the rest: the first
ones are mostly of rank 0 or size 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
from tpuc.lowerings.dtypes import to_torch
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
TOLERANCE = {
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float64: 1e-7,
    torch.complex128: 1e-7,
    torch.bfloat16: 2e-2,
    torch.float16: 2e-3,
}

#: Where PyTorch's own tests allow more: `toleranceOverride` of the operator's OpInfo. Both iterate from random vectors.
LOOSER = {
    "pca_lowrank": {torch.float32: 1e-3, torch.complex64: 4e-2},
    "svd_lowrank": {torch.float32: 1e-3, torch.complex64: 1e-2},
}

Rule = Callable[[Any, list[Any]], list[Any]]
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
            expected = _eager(module, tensors, in_f32=op.name in COMPUTED_IN_F32, numbers=op.name in NUMBERS)
        except RuntimeError as error:  # as_strided on the storage of a view, which a copy does not have.
            return "not exportable", f"eager fails on a copy of the inputs: {error}"
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
        wanted = [to_numpy(value) for value in expected]
        if rule := COMPARED.get(_full_name(op), COMPARED.get(op.name)):
            results, wanted = rule(sample, results), rule(sample, wanted)
        tolerance = TOLERANCE | LOOSER.get(op.name, {})
        return _compare(results, wanted, tolerance, random=_is_random(op))

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
            np.array(0)
            if argument.kind == "seed"
            else to_numpy(next(inputs) if argument.tensor is None else argument.tensor)
            for argument in captured.arguments
        ]
        executable = self._device.compile(program, specs)
        return [buffer.to_numpy() for buffer in executable.run([self._device.put(value) for value in values])]


def _eager(module: _Sample, tensors: tuple[torch.Tensor, ...], *, in_f32: bool, numbers: bool) -> list[torch.Tensor]:
    """What PyTorch gives; with `in_f32`, bf16 inputs are widened, and the results narrowed again.

    With `numbers`, a Python number among the results is a tensor: f64, i64 or bool.
    """
    inputs = [tensor.float() if in_f32 and tensor.dtype == torch.bfloat16 else tensor.clone() for tensor in tensors]
    with torch.no_grad():
        leaves = pytree.tree_leaves(module(*inputs))
    if numbers:
        leaves = [leaf if isinstance(leaf, torch.Tensor) else torch.as_tensor(np.asarray(leaf)) for leaf in leaves]
    results = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    narrow = any(tensor.dtype != given.dtype for tensor, given in zip(inputs, tensors, strict=True))
    return [value.bfloat16() if narrow and value.dtype == torch.float32 else value for value in results]


#: Operators that give a Python number; a compiled program gives a tensor of no dimensions.
NUMBERS = frozenset({"item"})

#: Operators whose CPU kernel rounds every step to bf16, positions among the elements included. The kernels for other
#: devices compute in f32 (ATen/native/cuda/GridSampler.cuh: `opmath_t`), and so do we.
COMPUTED_IN_F32 = frozenset({"grid_sampler_2d", "grid_sampler_3d", "nn.functional.grid_sample"})


def _elements_at(number: int, dim: int) -> Rule:
    """Compares the elements that a result names in place of their places: of several equal ones any may be named.

    Args:
        number: Which result holds the places.
        dim: The position of the operator's argument `dim` behind its input.
    """

    def rule(sample: Any, results: list[Any]) -> list[Any]:
        source = to_numpy(sample.input)
        if len(results) <= number or not source.ndim:
            return results
        axis = sample.kwargs.get("dim", sample.args[dim] if len(sample.args) > dim else -1)
        places = results[number]
        kept = places.ndim == source.ndim
        found = np.take_along_axis(source, places if kept else np.expand_dims(places, axis), axis)
        return [*results[:number], found if kept else found.squeeze(axis), *results[number + 1 :]]

    return rule


def _eigenvectors(sample: Any, results: list[Any]) -> list[Any]:
    """Compares the matrix that they make: an eigenvector has any phase, and those of equal values any basis."""
    values, vectors = results
    return [values, (vectors * values[..., None, :]) @ vectors.conj().swapaxes(-1, -2)]


def _general_eigenvectors(sample: Any, results: list[Any]) -> list[Any]:
    """Compares what eigenvectors are for: `a @ v - v * values` is nothing, and each has the length 1."""
    values, vectors = results
    a = to_numpy(sample.input)
    return [np.sort(values, -1), a @ vectors - vectors * values[..., None, :], np.linalg.norm(vectors, axis=-2)]


def _not_bf16(sample: Any, results: list[Any]) -> list[Any]:
    """Compares nothing in bf16: there PyTorch's CPU kernel reads its f64 coefficients as if they were bf16."""
    return [] if sample.input.dtype == torch.bfloat16 else results


def _low_rank(sample: Any, results: list[Any]) -> list[Any]:
    """Compares the matrix that the factors make, and the singular values: the vectors start from random ones."""
    u, values, v = results
    return [(u * values[..., None, :]) @ v.conj().swapaxes(-1, -2), values]


#: The position of `dropout_p` among the arguments of multi_head_attention_forward behind the query.
_DROPOUT_P = 9


def _shapes_where_it_draws(sample: Any, results: list[Any]) -> list[Any]:
    """Compares values only where nothing is drawn."""
    given = [sample.kwargs.get("dropout_p"), *sample.args[_DROPOUT_P : _DROPOUT_P + 1]]
    draws = any(given) and sample.kwargs.get("training", True)
    return [np.zeros_like(result) for result in results] if draws else results


#: What is compared where several results are right: a function of the sample and the results, for ours and eager's.
COMPARED: dict[str, Rule] = {
    "argsort": _elements_at(0, dim=0),
    "kthvalue": _elements_at(1, dim=1),
    "linalg.eig": _general_eigenvectors,
    "linalg.eigh": _eigenvectors,
    "matrix_exp": _not_bf16,
    "median": _elements_at(1, dim=0),
    "mode": _elements_at(1, dim=0),
    "nanmedian": _elements_at(1, dim=0),
    "nn.functional.multi_head_attention_forward": _shapes_where_it_draws,
    "nn.functional.scaled_dot_product_attention": _shapes_where_it_draws,
    "pca_lowrank": _low_rank,
    "sort": _elements_at(1, dim=0),
    "svd_lowrank": _low_rank,
    "topk": _elements_at(1, dim=1),
}


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
            "fractional_max_pool",
            "rrelu",
        )
    )


def _compare(
    results: list[Any], wanted: list[Any], tolerance: Mapping[torch.dtype, float], *, random: bool
) -> tuple[Outcome, str]:
    if len(results) != len(wanted):
        return "wrong", f"{len(results)} results, eager gives {len(wanted)}"
    for number, (result, want) in enumerate(zip(results, wanted, strict=True)):
        if result.shape != want.shape or result.dtype != want.dtype:
            return (
                "wrong",
                f"result {number} is {result.dtype}{list(result.shape)}, eager {want.dtype}{list(want.shape)}",
            )
        if not random and (problem := _difference(result, want, tolerance.get(to_torch(want.dtype)))):
            return "wrong", f"result {number}: {problem}"
    return "ok", ""


def _difference(result: Any, want: Any, tolerance: float | None) -> str:
    """Describes how two arrays differ, beyond the tolerance, where there is one; "" if they do not."""
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
