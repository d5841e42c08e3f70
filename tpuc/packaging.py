"""Puts the parts of a compile together as an artifact: the manifest and the contents of its sections."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from tpuc.backend.compilers import CompiledTarget
from tpuc.dims import Bucket, bucket_name
from tpuc.dtypes import DTYPE_NAMES
from tpuc.errors import RequestError
from tpuc.frontend.capture import Argument as Captured
from tpuc.frontend.capture import Capture
from tpuc.frontend.capture import Result as CapturedResult
from tpuc.loader import LoadedModel
from tpuc.lowerings.call import TensorMeta
from tpuc.program import OptimizedProgram, Preparation
from tpuc.request import CompileRequest, stack_versions
from tpuc.runtime.artifact import SectionData
from tpuc.runtime.device import open_device
from tpuc.runtime.dtypes import DTYPES, Array
from tpuc.runtime.manifest import (
    Argument,
    Entry,
    ExecutableInfo,
    Manifest,
    ModelInfo,
    PreparedInfo,
    ProgramInfo,
    Result,
    StateInfo,
    WeightInfo,
)
from tpuc.runtime.prepare import Preparer
from tpuc.runtime.sizes import SizeExpr
from tpuc.runtime.spec import TensorSpec
from tpuc.runtime.structure import InputStructure, node_from_json
from tpuc.targets import Target

#: The contents of sections by name.
Sections = dict[str, SectionData]

_BITS = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}


class Packing:
    """Gathers the sections of one artifact, and what the manifest says of them."""

    def __init__(
        self, request: CompileRequest, captured: Capture, dims: Mapping[str, Sequence[SizeExpr]], *, is_portable: bool
    ) -> None:
        """Begins an artifact.

        Args:
            request: What was asked for.
            captured: The captured program: what the arguments and results are.
            dims: The dimensions of inputs and outputs that are expressions, by `input:x` and `output:y`.
            is_portable: Whether a program for one platform computes the same on the others.
        """
        self._request = request
        self._captured = captured
        self._dims = dims
        self._is_portable = is_portable
        self._sections: Sections = {}
        self._prepared: dict[tuple[bytes, tuple[str, ...]], PreparedInfo] = {}

    def pack(
        self,
        model: LoadedModel,
        programs: Mapping[Bucket, Mapping[Target, OptimizedProgram]],
        compiled: Sequence[CompiledTarget],
    ) -> tuple[Manifest, Sections]:
        """Describes a compile in a manifest, and gathers the sections that it names.

        Args:
            model: The model.
            programs: For each bucket the program of each target, and of the CPU where no other could run on
                it. Those that came out equal are stored once.
            compiled: The executables.

        Raises:
            RequestError: A state has no first value, because the weights have none.
        """
        request, captured = self._request, self._captured
        state = tuple(self._state(argument) for argument in captured.arguments if argument.kind == "state")
        entries = tuple(
            self._entry(bucket, each, [part for part in compiled if part.bucket == bucket])
            for bucket, each in programs.items()
        )
        infos = [info for entry in entries for info in entry.programs]
        taken = {part.name for info in infos for part in info.arguments if part.kind == "weight"}
        taken |= {source for info in self._prepared.values() if info.section is None for source in info.sources}
        sources = {source for info in self._prepared.values() for source in info.sources}
        weights = tuple(
            self._weight(argument, is_taken=argument.name in taken, is_source=argument.name in sources)
            for argument in captured.arguments
            if argument.kind == "weight"
        )
        manifest = Manifest(
            model=ModelInfo(name=model.name, source=model.source, parameters=captured.parameters),
            producer=stack_versions(),
            fingerprint=request.fingerprint(),
            options=request.options(),
            weights_mode=request.weights,
            weights=weights,
            prepared=tuple(self._prepared.values()),
            state=state,
            sizes=request.sizes,
            inputs=tuple(self._named(part) for part in captured.arguments if part.kind == "input"),
            outputs=tuple(self._named(part) for part in captured.results if part.kind == "output"),
            input_structure=InputStructure.from_json(
                {**captured.input_structure, "names": list(captured.positional_names)}, "the inputs"
            ),
            output_structure=node_from_json(captured.output_structure, "the outputs"),
            entries=entries,
        )
        return manifest, self._sections

    def _named(self, part: Captured | CapturedResult) -> TensorSpec:
        """Describes an input or an output, with expressions where its dimensions vary."""
        spec = _spec(part.name, part.meta)
        dims = self._dims.get(f"{part.kind}:{part.name}")
        return spec if dims is None else replace(spec, dims=tuple(map(_plain, dims)))

    def _entry(
        self, bucket: Bucket, programs: Mapping[Target, OptimizedProgram], compiled: Sequence[CompiledTarget]
    ) -> Entry:
        infos = self._programs(bucket, programs)
        return Entry(
            name="main",
            sizes={each.name: each.maximum for each in bucket},
            programs=tuple({info.section: info for info in infos.values()}.values()),
            executables=tuple(self._executable(part, infos[part.executable.target]) for part in compiled),
        )

    def _programs(self, bucket: Bucket, programs: Mapping[Target, OptimizedProgram]) -> dict[Target, ProgramInfo]:
        """Describes the program of each target."""
        targets: dict[bytes, list[Target]] = {}
        for target, program in programs.items():
            targets.setdefault(program.main, []).append(target)
        # What serves any other target is best the program for the CPU.
        portable = [target for target, program in programs.items() if self._is_portable and not program.has_kernels]
        for_any = next((target for target in portable if target.platform == "cpu"), next(iter(portable), None))
        infos: dict[Target, ProgramInfo] = {}
        for served in targets.values():
            names = list(map(str, served))
            if for_any in served:
                names.append("any")
            elif not self._is_portable and served[0].platform == "tpu" and "tpu" not in _all_names(infos):
                names.append("tpu")
            infos |= dict.fromkeys(served, self._program(bucket, programs[served[0]], names))
        return infos

    def _program(self, bucket: Bucket, program: OptimizedProgram, serves: Sequence[str]) -> ProgramInfo:
        section = ".".join(filter(None, ("program/main", bucket_name(bucket), serves[0])))
        self._sections[section] = program.main
        prepared = {part.spec.name: self._preparation(part).name for part in program.preparations}
        return ProgramInfo(
            section=section,
            serves=tuple(serves),
            arguments=tuple(
                Argument(kind=part.kind, name=prepared[part.name] if part.kind == "prepared" else part.name)
                for part in program.arguments
            ),
            results=tuple(Result(kind=part.kind, name=part.name) for part in self._captured.results),
            masks=program.masks,
            products=dict(program.products),
        )

    def _preparation(self, part: Preparation) -> PreparedInfo:
        """Describes a prepared tensor; what two programs prepare alike is one."""
        key = (part.program, part.sources)
        if key not in self._prepared:
            name = f"{part.sources[0]}.prepared.{len(self._prepared)}"
            section = f"prepared/{name}" if self._request.weights == "embed" else None
            self._prepared[key] = PreparedInfo(
                name=name,
                dtype=part.spec.dtype,
                dims=tuple(part.spec.shape),
                program=self._prepare_section(part.program),
                sources=part.sources,
                section=section,
            )
            if section is not None:
                self._sections[section] = partial(self._computed, part)
        return self._prepared[key]

    def _prepare_section(self, program: bytes) -> str:
        section = f"prepare/{hashlib.sha256(program).hexdigest()[:16]}"
        self._sections[section] = program
        return section

    @cached_property
    def _preparer(self) -> Preparer:
        return Preparer(open_device("cpu"))

    def _computed(self, part: Preparation) -> Iterator[memoryview]:
        """Computes a prepared tensor when it is written, so that one is in memory at a time, and gives its bytes."""
        tensors = {argument.name: argument for argument in self._captured.arguments if argument.kind == "weight"}
        sources = (_contents(tensors[name]) for name in part.sources)
        return self._preparer.compute(part.program, part.spec, sources)

    def _weight(self, argument: Captured, *, is_taken: bool, is_source: bool) -> WeightInfo:
        spec = _spec(argument.name, argument.meta)
        # What a checkpoint does not hold (frequencies computed from the configuration) always goes into the artifact.
        # What is prepared from it can be prepared again then, with other weights.
        is_given_later = self._request.weights == "none" and argument.persistent
        is_kept = is_taken or self._request.weights == "external" or (is_source and not argument.persistent)
        is_stored = not is_given_later and is_kept
        section = f"weights/{argument.name}" if is_stored else None
        if section is not None:
            self._sections[section] = _contents(argument)
        assert argument.origin
        return WeightInfo(
            name=argument.name,
            dtype=spec.dtype,
            dims=argument.meta.shape,
            section=section,
            origin=argument.origin,
            persistent=argument.persistent,
        )

    def _state(self, argument: Captured) -> StateInfo:
        section = f"state/{argument.name}"
        self._sections[section] = _contents(argument)
        spec = _spec(argument.name, argument.meta)
        return StateInfo(name=argument.name, dtype=spec.dtype, dims=argument.meta.shape, section=section)

    def _executable(self, compiled: CompiledTarget, program: ProgramInfo) -> ExecutableInfo:
        executable = compiled.executable
        # Several builds of one compiler may serve one target.
        section = f"executable/main.{executable.target}.{len(self._sections)}"
        self._sections[section] = executable.serialized
        return ExecutableInfo(
            section=section,
            program=program.section,
            target=str(executable.target),
            platform=executable.target.platform,
            compiler=dict(executable.compiler),
            host=executable.host,
            memory=dict(executable.memory),
            estimated_cycles=compiled.cycles.total or None,
        )


def _all_names(infos: Mapping[Target, ProgramInfo]) -> set[str]:
    return {name for info in infos.values() for name in info.serves}


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


def _plain(dim: SizeExpr) -> int | str:
    return str(dim) if dim.constant is None else dim.constant


def _spec(name: str, meta: TensorMeta) -> TensorSpec:
    return TensorSpec(name=name, dtype=DTYPE_NAMES[meta.dtype], dims=meta.shape)
