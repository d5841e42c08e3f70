"""PyTorch's own operator samples (OpInfo), as a suite of the coverage benchmark.

OpInfo (`torch.testing._internal.common_methods_invocations.op_db`) is PyTorch's database of operators with sample
inputs. For an operator and a dtype, the first four samples are taken, and four spread over the rest: the first
ones are mostly of rank 0 or size 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils import _pytree as pytree

from benchmarks.against_eager import TOLERANCE, Runner, Verdict, difference, shapes_and_dtypes
from tpuc.dtypes import DTYPE_NAMES, TORCH_DTYPES
from tpuc.packaging import to_numpy

#: Dtypes beside the first, where an operator has them.
MORE_DTYPES = (torch.bfloat16, torch.int64, torch.bool, torch.complex64)
#: Where PyTorch's own tests allow more: `toleranceOverride` of the operator's OpInfo. Both iterate from random vectors.
LOOSER = {
    "pca_lowrank": {torch.float32: 1e-3, torch.complex64: 4e-2},
    "svd_lowrank": {torch.float32: 1e-3, torch.complex64: 1e-2},
}

Rule = Callable[[Any, list[Any]], list[Any]]


def names() -> list[str]:
    """Every operator of the database that has a CPU kernel, with its variant: `nn.functional.pad.circular`."""
    return [name for name, op in _operators().items() if op.supported_dtypes("cpu")]


def cases(name: str) -> list[str]:
    """The samples of an operator: `f32 0` is the first of dtype f32."""
    op = _operators()[name]
    return [f"{DTYPE_NAMES[dtype]} {index}" for dtype in _dtypes_of(op) for index in _samples(name, dtype)]


def stratified(count: int) -> list[str]:
    """So many operators of as many kinds as there are: first one of each, then another of each, and so on.

    A kind is a class of OpInfo (elementwise, reduction, spectral, ...) within a namespace (`linalg`, `nn.functional`).
    """
    kinds: dict[tuple[str, str], list[str]] = {}
    for name in names():
        kinds.setdefault((type(_operators()[name]).__name__, name.rpartition(".")[0]), []).append(name)
    # The middle ones first: the first of a kind are often aliases of one another.
    orders = [
        sorted(kind, key=lambda name, kind=kind: abs(kind.index(name) - len(kind) // 2)) for kind in kinds.values()
    ]
    rounds = itertools.zip_longest(*orders)
    return [name for names_of_round in rounds for name in names_of_round if name is not None][:count]


def run(runner: Runner, name: str, case: str) -> Verdict:
    """Runs a sample, or several as one program, which takes a fraction of the time: `f32 0, f32 5, i64 0`."""
    op = _operators()[name]
    parts = [part.split() for part in case.split(", ")]
    samples = [_samples(name, TORCH_DTYPES[dtype])[int(number)] for dtype, number in parts]
    calls = [_Call(_unseeded(op), sample) for sample in samples]
    sizes: list[int] = []

    def eager() -> list[torch.Tensor]:
        results = [_eager(call, in_f32=op.name in COMPUTED_IN_F32, numbers=op.name in NUMBERS) for call in calls]
        sizes[:] = map(len, results)
        return [tensor for result in results for tensor in result]

    def compare(results: list[Any], expected: list[torch.Tensor]) -> str:
        wanted = [to_numpy(value) for value in expected]
        if len(results) != len(wanted):
            return f"{len(results)} results, eager gives {len(wanted)}"
        start = 0
        for sample, size in zip(samples, sizes, strict=True):
            own = slice(start, start + size)
            if problem := _difference(op, name, sample, results[own], wanted[own]):
                return problem
            start += size
        return ""

    tensors = tuple(tensor for call in calls for tensor in call.tensors)
    return runner.run(_Calls(calls), tensors, {}, eager=eager, compare=compare)


def _difference(op: OpInfo, name: str, sample: Any, results: list[Any], wanted: list[Any]) -> str:
    if rule := COMPARED.get(name, COMPARED.get(op.name)):
        results, wanted = rule(sample, results), rule(sample, wanted)
    if _is_random(op):
        return shapes_and_dtypes(results, wanted)
    return difference(results, wanted, {**TOLERANCE, **LOOSER.get(op.name, {})})


@lru_cache(maxsize=1)
def _operators() -> dict[str, OpInfo]:
    return {f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op for op in op_db}


def _dtypes_of(op: OpInfo) -> list[torch.dtype]:
    """f32, or the first dtype that the operator has, and those of `MORE_DTYPES` that it has."""
    supported = op.supported_dtypes("cpu")
    first = torch.float32 if torch.float32 in supported else sorted(supported, key=str)[0]
    return [first, *(dtype for dtype in MORE_DTYPES if dtype in supported and dtype != first)]


@lru_cache(maxsize=8)
def _samples(name: str, dtype: torch.dtype) -> dict[int, Any]:
    """The first four samples, and four spread over the rest, by their places."""
    torch.manual_seed(0)
    samples = list(_operators()[name].sample_inputs("cpu", dtype, requires_grad=False))
    rest = range(4, len(samples))
    spread = [rest[i * len(rest) // 4] for i in range(4)] if len(rest) > 4 else list(rest)
    return {index: samples[index] for index in (*range(min(4, len(samples))), *spread)}


class _Call:
    """An operator with everything of a sample but its tensors."""

    def __init__(self, function: Callable[..., Any], sample: Any) -> None:
        self._function = function
        self._leaves, self._spec = pytree.tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
        # Operators that write to their input write to a copy.
        self.tensors = [leaf.detach().clone() for leaf in self._leaves if isinstance(leaf, torch.Tensor)]

    def __call__(self, tensors: Iterable[torch.Tensor]) -> Any:
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return self._function(*args, **kwargs)


class _Calls(torch.nn.Module):
    """Several calls, each with its share of the inputs."""

    def __init__(self, calls: list[_Call]) -> None:
        super().__init__()
        self._calls = calls

    def forward(self, *tensors: torch.Tensor) -> Any:
        rest = iter(tensors)
        return [call([next(rest) for _ in call.tensors]) for call in self._calls]


def _eager(call: _Call, *, in_f32: bool, numbers: bool) -> list[torch.Tensor]:
    """What PyTorch gives; with `in_f32`, bf16 inputs are widened, and the results narrowed again.

    With `numbers`, a Python number among the results is a tensor: f64, i64 or bool.
    """
    given = call.tensors
    inputs = [tensor.float() if in_f32 and tensor.dtype == torch.bfloat16 else tensor.clone() for tensor in given]
    with torch.no_grad():
        leaves = pytree.tree_leaves(call(inputs))
    if numbers:
        leaves = [leaf if isinstance(leaf, torch.Tensor) else torch.as_tensor(np.asarray(leaf)) for leaf in leaves]
    results = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    narrow = any(tensor.dtype != before.dtype for tensor, before in zip(inputs, given, strict=True))
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


def _overflows(sample: Any, results: list[Any]) -> list[Any]:
    """Takes the largest f8e4m3fn for NaN: an overflow gives the one or the other, by the kernel of PyTorch's."""
    wide = [result.astype(np.float32) for result in results]
    return [np.where(np.abs(each) == np.float32(448), np.nan, each) for each in wide]


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
    "torch._scaled_mm": _overflows,
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
