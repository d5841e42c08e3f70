"""Puts the parts of a compile together as an artifact: the manifest and the contents of its sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from tpuc.dtypes import DTYPE_NAMES
from tpuc.errors import RequestError
from tpuc.frontend.capture import Argument as Captured
from tpuc.frontend.capture import Capture
from tpuc.loader import LoadedModel
from tpuc.lowerings.call import TensorMeta
from tpuc.request import CompileRequest, stack_versions
from tpuc.runtime.dtypes import DTYPES, Array
from tpuc.runtime.manifest import (
    Argument,
    Entry,
    ExecutableInfo,
    Manifest,
    ModelInfo,
    Result,
    StateInfo,
    WeightInfo,
)
from tpuc.runtime.spec import TensorSpec
from tpuc.runtime.structure import InputStructure, node_from_json

if TYPE_CHECKING:
    from tpuc.pipeline import CompiledTarget

#: The contents of sections by name.
Sections = dict[str, Array | bytes]
#: Which platforms a program is for.
ProgramKey = Literal["any", "cpu", "tpu"]

_BITS = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}


def package(
    model: LoadedModel,
    request: CompileRequest,
    captured: Capture,
    programs: Mapping[ProgramKey, bytes],
    compiled: Sequence[CompiledTarget],
) -> tuple[Manifest, Sections]:
    """Describes a compile in a manifest, and gathers the sections that it names.

    Raises:
        RequestError: A state has no first value, because the weights have none.
    """
    sections: Sections = {}
    weights = tuple(
        _weight(argument, request, sections) for argument in captured.arguments if argument.kind == "weight"
    )
    state = tuple(_state(argument, sections) for argument in captured.arguments if argument.kind == "state")
    for key, program in programs.items():
        sections[f"program/main.{key}"] = program
    manifest = Manifest(
        model=ModelInfo(name=model.name, source=model.source, parameters=captured.parameters),
        producer=stack_versions(),
        fingerprint=request.fingerprint(),
        options=request.options(),
        weights_mode=request.weights,
        weights=weights,
        state=state,
        inputs=tuple(_spec(part.name, part.meta) for part in captured.arguments if part.kind == "input"),
        outputs=tuple(_spec(part.name, part.meta) for part in captured.results if part.kind == "output"),
        input_structure=InputStructure.from_json(
            {**captured.input_structure, "names": list(captured.positional_names)}, "the inputs"
        ),
        output_structure=node_from_json(captured.output_structure, "the outputs"),
        entries=(
            Entry(
                name="main",
                arguments=tuple(Argument(kind=part.kind, name=part.name) for part in captured.arguments),
                results=tuple(Result(kind=part.kind, name=part.name) for part in captured.results),
                programs={key: f"program/main.{key}" for key in programs},
                executables=tuple(_executable(part, captured, sections) for part in compiled),
            ),
        ),
    )
    return manifest, sections


def _weight(argument: Captured, request: CompileRequest, sections: Sections) -> WeightInfo:
    spec = _spec(argument.name, argument.meta)
    # What a checkpoint does not hold (frequencies computed from the configuration) always goes into the artifact.
    is_given_later = request.weights == "none" and argument.persistent
    section = None if is_given_later else f"weights/{argument.name}"
    if section is not None:
        sections[section] = _contents(argument)
    assert argument.origin
    return WeightInfo(
        name=argument.name, dtype=spec.dtype, dims=argument.meta.shape, section=section, origin=argument.origin
    )


def _state(argument: Captured, sections: Sections) -> StateInfo:
    section = f"state/{argument.name}"
    sections[section] = _contents(argument)
    spec = _spec(argument.name, argument.meta)
    return StateInfo(name=argument.name, dtype=spec.dtype, dims=argument.meta.shape, section=section)


def _contents(argument: Captured) -> Array:
    tensor = argument.tensor
    assert tensor is not None
    if isinstance(tensor, FakeTensor):
        raise RequestError(
            f"{argument.name} has no value: it was made without memory",
            hint="Compile with --weights embed or external, or make it smaller than a million elements.",
        )
    return to_numpy(tensor)


def to_numpy(tensor: torch.Tensor) -> Array:
    """Returns a CPU tensor's values as a row-major NumPy array, without a copy where it is one already."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    dtype = DTYPES[DTYPE_NAMES[tensor.dtype]].numpy
    # NumPy itself knows neither bf16 nor f8: their bits are taken as integers of that size.
    bits = _BITS.get(tensor.dtype)
    array = tensor.numpy() if bits is None else tensor.view(bits).numpy()
    return np.ascontiguousarray(array).reshape(tuple(tensor.shape)).view(dtype)


def _spec(name: str, meta: TensorMeta) -> TensorSpec:
    return TensorSpec(name=name, dtype=DTYPE_NAMES[meta.dtype], dims=meta.shape)


def _executable(compiled: CompiledTarget, captured: Capture, sections: Sections) -> ExecutableInfo:
    executable = compiled.executable
    # Several builds of one compiler may serve one target.
    section = f"executable/main.{executable.target}.{len(sections)}"
    sections[section] = executable.serialized
    return ExecutableInfo(
        section=section,
        target=str(executable.target),
        platform=executable.target.platform,
        compiler=dict(executable.compiler),
        host=executable.host,
        memory=dict(executable.memory),
        estimated_cycles=compiled.cycles.estimated or None,
        donated=tuple(index for index, part in enumerate(captured.arguments) if part.kind == "state"),
    )
