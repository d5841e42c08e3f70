"""Compares functions of named sizes, padded to the sizes' bounds, with eager at every size."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxlib.mlir import ir
from torch.utils import _pytree as pytree

from tpuc import mlir
from tpuc.frontend import stablehlo
from tpuc.frontend.dynamic import DynamicLowered, export_dynamic, lower_dynamic
from tpuc.packaging import to_numpy
from tpuc.passes import PIPELINE, run_passes
from tpuc.passes.hoist_weights import HoistWeights
from tpuc.runtime.device import Device, LoadedExecutable, open_device
from tpuc.runtime.dtypes import Array
from tpuc.runtime.sizes import SizeExpr, SizeRange
from tpuc.runtime.spec import TensorSpec
from tpuc.targets import CPU
from tpuc.worker import Worker

#: What a compile runs, but for what gives the program other arguments than the graph's.
_PASSES = tuple(each for each in PIPELINE if not isinstance(each, HoistWeights))
#: What indices drawn for an input are less than.
LEAST = 4
#: What stands in the padding of an input, over and over, by the kind of its type: NaN and infinities, numbers out of
#: every range.
_PADDING: Mapping[str, Sequence[Any]] = {
    "f": (np.nan, np.inf, -np.inf),
    "c": (complex(np.nan, np.inf), complex(-np.inf, np.nan)),
    "i": (1 << 20, -1 << 20),
    "u": (255,),
    "b": (True,),
}


@dataclass(frozen=True, kw_only=True)
class AnySize:
    """A function compiled for the bounds of its sizes.

    Attributes:
        module: The function as a module.
        specs: Its inputs.
        ranges: Its sizes.
        lowered: The program before the passes.
        executable: The program for the cpu.
        masks: How many masks it took.
    """

    module: torch.nn.Module
    specs: tuple[TensorSpec, ...]
    ranges: tuple[SizeRange, ...]
    lowered: DynamicLowered
    executable: LoadedExecutable
    masks: int

    def sizes(self) -> Iterator[dict[str, int]]:
        """Yields every combination of sizes."""
        numbers = itertools.product(*(range(each.minimum, each.maximum + 1) for each in self.ranges))
        return (dict(zip([each.name for each in self.ranges], each, strict=True)) for each in numbers)

    def run(self, inputs: Sequence[torch.Tensor], sizes: Mapping[str, int]) -> list[Array]:
        """Runs the executable on inputs whose padding is none of theirs; outputs are as long as the bounds."""
        bound = {each.name: each.maximum for each in self.ranges}
        rest = iter(zip(self.specs, inputs, strict=True))
        arrays: list[Array] = []
        for argument in self.lowered.captured.arguments:
            if argument.tensor is not None:
                arrays.append(to_numpy(argument.tensor))
                continue
            if argument.kind == "seed":
                arrays.append(np.array(0, np.int64))
                continue
            spec, tensor = next(rest)
            arrays.append(_padded(to_numpy(tensor), shape_at(spec, bound)))
        varying = [each.name for each in self.ranges if each.minimum < each.maximum]
        arrays += [np.array(sizes[name], np.int32) for name in varying]
        return [buffer.to_numpy() for buffer in self.executable.run([cpu().put(array) for array in arrays])]


@cache
def cpu() -> Device:
    return open_device("cpu")


@cache
def worker() -> Worker:
    return Worker(stablehlo.WORKER)


def _padded(given: Array, shape: Sequence[int]) -> Array:
    """Makes an array of a shape that begins with another, and holds what an element must never meet."""
    array: Array = np.resize(np.array(_PADDING[given.dtype.kind], given.dtype), shape)
    array[tuple(map(slice, given.shape))] = given
    return array


def shape_at(spec: TensorSpec, sizes: Mapping[str, int]) -> list[int]:
    """Returns the shape that a spec has at some sizes."""
    return [SizeExpr.of(dim).evaluate(sizes) for dim in spec.dims]


def draw(spec: TensorSpec, sizes: Mapping[str, int], random: np.random.Generator) -> torch.Tensor:
    """Makes an input: normally distributed floats, small indices, bools."""
    shape = shape_at(spec, sizes)
    match spec.type.numpy.kind:
        case "i":
            return torch.from_numpy(random.integers(0, LEAST, shape).astype(spec.type.numpy))
        case "b":
            return torch.from_numpy(random.integers(0, 2, shape).astype(bool))
    return torch.from_numpy(random.standard_normal(shape).astype(spec.type.numpy))


def compile_any_size(
    function: Callable[..., Any] | torch.nn.Module, inputs: Sequence[str], ranges: Sequence[str]
) -> AnySize:
    """Compiles a function for the upper bounds of its sizes.

    Args:
        function: A function of tensors, or a module.
        inputs: The inputs' specs, without names, in the order of the parameters.
        ranges: The sizes: `seq=1..9`.
    """
    module = function if isinstance(function, torch.nn.Module) else _as_module(function)
    names = list(inspect.signature(module.forward).parameters)
    specs = tuple(TensorSpec.parse(f"{name}={text}") for name, text in zip(names, inputs, strict=False))
    parsed = tuple(map(SizeRange.parse, ranges))
    # Sizes of an example: unlike each other, and not one.
    sizes = {each.name: max(each.minimum, min(each.maximum, 3 + 2 * place)) for place, each in enumerate(parsed)}
    example = tuple(draw(spec, sizes, np.random.default_rng(0)) for spec in specs)
    lowered = lower_dynamic(export_dynamic(module, example, {}, specs, parsed), worker(), ["cpu"])
    reports: list[Any] = []
    with mlir.make_context() as context:
        program = lowered.module("cpu", context, parsed)
        run_passes(program, _PASSES, CPU, observer=reports.append)
        executable = cpu().compile(mlir.to_text(program).encode(), _results(program))
    masks = sum(report.rewrites.get("masks", 0) for report in reports if report.text == "pad-dynamic")
    return AnySize(module=module, specs=specs, ranges=parsed, lowered=lowered, executable=executable, masks=masks)


def check_sizes(compiled: AnySize, sizes: Sequence[Mapping[str, int]], *, tolerance: float = 1e-5) -> None:
    """Asserts that a compiled function gives eager's results at some sizes."""
    random = np.random.default_rng(1)
    for each in sizes:
        inputs = [draw(spec, each, random) for spec in compiled.specs]
        with torch.no_grad():
            expected = [to_numpy(leaf) for leaf in pytree.tree_leaves(compiled.module(*inputs))]
        for result, want in zip(compiled.run(inputs, each), expected, strict=True):
            cut = result[tuple(map(slice, want.shape))]
            assert (cut.dtype, cut.shape) == (want.dtype, want.shape)
            np.testing.assert_allclose(cut, want, rtol=tolerance, atol=tolerance, err_msg=str(each))


def check(
    function: Callable[..., Any] | torch.nn.Module,
    inputs: Sequence[str],
    ranges: Sequence[str],
    *,
    tolerance: float = 1e-5,
) -> AnySize:
    """Compiles a function and asserts that it gives eager's results at every size."""
    compiled = compile_any_size(function, inputs, ranges)
    check_sizes(compiled, list(compiled.sizes()), tolerance=tolerance)
    return compiled


def _as_module(function: Callable[..., Any]) -> torch.nn.Module:
    """Makes a module of a function of as many tensors; torch.export reads forward's parameters."""

    class One(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return function(x)

    class Two(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return function(x, y)

    class Three(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
            return function(x, y, z)

    required = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
    ]
    return (One, Two, Three)[len(required) - 1]()


def _results(module: ir.Module) -> list[TensorSpec]:
    names = {"i1": "bool", "complex<f32>": "c64"}
    block: Any = module.body.operations[0].regions[0].blocks[0]
    types = [value.type for value in block.operations[len(block.operations) - 1].operands]
    return [
        TensorSpec(name="", dtype=names.get(str(each.element_type), str(each.element_type)), dims=tuple(each.shape))
        for each in types
    ]
