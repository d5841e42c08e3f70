"""The compile, from a loaded model to an artifact, on one screen.

model --export--> graph --lower--> StableHLO --passes--> StableHLO --compile--> executables --write--> artifact
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from torch.export import ExportedProgram

from tpuc import mlir
from tpuc.backend.compile import Executable, compile_program
from tpuc.backend.estimate import estimator_for
from tpuc.dims import Bucket, bucket_name, largest_step
from tpuc.errors import UnsupportedOpError
from tpuc.fake import fake_weights
from tpuc.frontend import stablehlo
from tpuc.frontend.bodies import survey
from tpuc.frontend.capture import Capture, capture, export
from tpuc.frontend.dynamic import DynamicLowered, DynamicModel, export_dynamic, lower_dynamic
from tpuc.loader import LoadedModel
from tpuc.lowerings.platforms import Platform
from tpuc.packaging import Packing
from tpuc.passes import parse_pipeline, run_passes
from tpuc.passes.pad_dynamic import PadDynamic
from tpuc.program import OptimizedProgram, take_apart
from tpuc.progress import Progress
from tpuc.report.cycles import Cycles, count_cycles
from tpuc.request import CompileRequest
from tpuc.runtime.artifact import write_artifact
from tpuc.runtime.cache import Cache
from tpuc.runtime.files import replacing
from tpuc.runtime.manifest import Manifest
from tpuc.runtime.spec import TensorSpec
from tpuc.targets import CPU, Target
from tpuc.worker import Worker

#: A program before the passes.
Lowered = stablehlo.Lowered | DynamicLowered


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """What a compile made.

    Attributes:
        path: The artifact.
        manifest: What it says about itself.
        executables: What was compiled, one a target and libtpu.
        progress: How long each stage took, and what the user should know.
    """

    path: Path
    manifest: Manifest
    executables: tuple[CompiledTarget, ...]
    progress: Progress


@dataclass(frozen=True, kw_only=True)
class CompiledTarget:
    """An executable with what its compile cost and what it will.

    Attributes:
        bucket: What the sizes may be.
        executable: The executable.
        cycles: The compiler's estimate; all zero for the CPU, where it makes none.
        seconds: How long the compiler took.
    """

    bucket: Bucket
    executable: Executable
    cycles: Cycles
    seconds: float


def compile_model(
    model: LoadedModel,
    request: CompileRequest,
    output: Path,
    *,
    progress: Progress | None = None,
    dump: Path | None = None,
    cache: Cache | None = None,
) -> Compiled:
    """Compiles a model and writes the artifact.

    Args:
        model: The model and its example inputs.
        request: What to make of it.
        output: Where the artifact goes; what is there stays until the new one is complete.
        progress: Who follows the stages.
        dump: A folder for the IR after each pass and the optimized HLO of each target.
        cache: Where executables are looked for before they are compiled, and kept.

    Raises:
        TpucError: The model cannot be compiled; see `tpuc.errors` for the ways.
    """
    progress = progress or Progress()
    platforms = {target.platform for target in request.targets}
    with Worker(stablehlo.WORKER) as torch_mlir:  # Started first: it imports while the model is exported.
        with progress.stage("export"):
            exported = export_model(model, request)
        with progress.stage("lower"):
            lowered = _lower(exported, torch_mlir, platforms)
    captured = lowered.captured
    with progress.stage("passes"):
        programs = {bucket: _optimize_all(lowered, bucket, request, dump) for bucket in request.programs()}
    with progress.stage("compile"):
        executables = _compile_all(programs, request, dump, cache)
    with progress.stage("write"):
        packing = Packing(request, captured, lowered.dims, is_portable=lowered.is_portable)
        manifest, sections = packing.pack(model, programs, executables)
        manifest = write_artifact(output, manifest, sections)
    for note in (
        *model.notes,
        *captured.notes,
        *_buckets_note(request),
        *_cache_note(executables),
        *_kernels_notes(executables),
    ):
        progress.note(note)
    return Compiled(path=output, manifest=manifest, executables=executables, progress=progress)


def export_model(model: LoadedModel, request: CompileRequest) -> Capture | DynamicModel:
    """Captures a model, or exports it with symbols where sizes are named."""
    platforms = {target.platform for target in request.targets}
    with_weights = request.weights != "none"
    if not request.sizes or isinstance(model.program, ExportedProgram):
        return capture_model(model, platforms, with_weights=with_weights)
    specs = [spec for spec in request.shapes if isinstance(spec, TensorSpec)]
    with nullcontext() if with_weights else fake_weights(model.program):
        return export_dynamic(model.program, model.args, model.kwargs, specs, request.sizes)


def capture_model(model: LoadedModel, platforms: Collection[Platform], *, with_weights: bool) -> Capture:
    """Exports a model, with fake weights if it is to have none, and captures the program.

    Raises:
        UnsupportedOpError: Sizes depend on the data; all else that the platforms lack is reported with them.
    """
    with exported(model, with_weights=with_weights) as program:
        try:
            return capture(program)
        except UnsupportedOpError as error:
            refused = error.operators
    raise UnsupportedOpError((*refused, *survey(program.graph, platforms)))


@contextmanager
def exported(model: LoadedModel, *, with_weights: bool) -> Iterator[ExportedProgram]:
    """Exports a model; with fake weights if it is to have none, in whose mode the block runs."""
    if isinstance(model.program, ExportedProgram):
        yield model.program
        return
    with nullcontext() if with_weights else fake_weights(model.program):
        yield export(model.program, model.args, model.kwargs)


def _lower(exported: Capture | DynamicModel, torch_mlir: Worker, platforms: Collection[Platform]) -> Lowered:
    if isinstance(exported, DynamicModel):
        return lower_dynamic(exported, torch_mlir, platforms)
    return stablehlo.lower(exported, torch_mlir, platforms)


def _optimize_all(
    lowered: Lowered, bucket: Bucket, request: CompileRequest, dump: Path | None
) -> dict[Target, OptimizedProgram]:
    """Makes the program of each target, and one for the CPU where those hold kernels that only a TPU can run."""
    programs = {target: _optimize(lowered, bucket, target, request, dump) for target in request.targets}
    if lowered.is_portable and all(program.has_kernels for program in programs.values()):
        programs[CPU] = _optimize(lowered, bucket, CPU, request, dump)
    return programs


def _optimize(
    lowered: Lowered, bucket: Bucket, target: Target, request: CompileRequest, dump: Path | None
) -> OptimizedProgram:
    """Links the program for a target, runs the passes over it, and takes it apart."""
    with mlir.make_context() as context, estimator_for(target) as estimator:
        module = lowered.module(target.platform, context, bucket)
        folder = dump and dump / str(target) / bucket_name(bucket)
        masks: list[int] = []
        run_passes(
            module,
            parse_pipeline(request.passes),
            target,
            estimator=estimator,
            dump=folder,
            observer=lambda report: masks.append(report.rewrites.get(PadDynamic.MASKS, 0)),
        )
        return take_apart(module, masks=sum(masks))


def _compile_all(
    programs: Mapping[Bucket, Mapping[Target, OptimizedProgram]],
    request: CompileRequest,
    dump: Path | None,
    cache: Cache | None,
) -> tuple[CompiledTarget, ...]:
    """Compiles for every bucket and target, with every libtpu where several are asked for, side by side."""
    jobs = [
        (bucket, target, libtpu)
        for bucket in programs
        for target in request.targets
        for libtpu in ((None,) if target.platform == "cpu" else request.libtpus or (None,))
    ]
    # One compile keeps about one core busy.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return tuple(pool.map(lambda job: _compile_one(programs, job[0], job[1], job[2], dump, cache), jobs))


def _compile_one(
    programs: Mapping[Bucket, Mapping[Target, OptimizedProgram]],
    bucket: Bucket,
    target: Target,
    libtpu: Path | None,
    dump: Path | None,
    cache: Cache | None,
) -> CompiledTarget:
    start = time.perf_counter()
    executable = compile_program(programs[bucket][target].main, target, libtpu=libtpu, cache=cache)
    seconds = time.perf_counter() - start
    if dump is not None:
        name = ".".join(filter(None, (str(target), bucket_name(bucket), "hlo.txt")))
        with replacing(dump / name) as replacement:
            replacement.file.write(executable.hlo.encode())
    cycles = count_cycles(executable.hlo, target.chip)
    return CompiledTarget(bucket=bucket, executable=executable, cycles=cycles, seconds=seconds)


def _buckets_note(request: CompileRequest) -> Iterator[str]:
    """What the choice of buckets costs."""
    if request.sizes:
        buckets = " ".join(map(str, request.buckets))
        step = largest_step(request.sizes, request.buckets)
        count = len(request.programs())
        programs = f"{count} programs" if count > 1 else "1 program"
        yield f"buckets {buckets}: {programs} a target; padding makes an input at most {step:.3g} times as long"


def _cache_note(executables: Sequence[CompiledTarget]) -> Iterator[str]:
    """How many executables did not have to be compiled."""
    cached = sum(compiled.executable.is_cached for compiled in executables)
    if cached:
        yield f"{cached} of {len(executables)} executables had been compiled before, and came from the cache"


def _kernels_notes(executables: Sequence[CompiledTarget]) -> Iterator[str]:
    """What is to be known of programs' cycles when some of them are not the compiler's."""
    for compiled in executables:
        cycles = compiled.cycles
        if not cycles.kernels:
            continue
        target = " ".join(filter(None, (str(compiled.executable.target), bucket_name(compiled.bucket))))
        what = f"the kernels on {target} ({cycles.kernels}), which the compiler makes no estimate of,"
        if cycles.uncounted_kernels:
            yield f"{what} are not in the cycles"
        else:
            counted = f"{cycles.kernel_cycles:,} of the {cycles.total:,} cycles"
            yield f"{what} are counted at twice their roofline: {counted}"
