"""The compile, from a loaded model to an artifact, on one screen.

model --export--> graph --lower--> StableHLO --passes--> StableHLO --compile--> executables --write--> artifact
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.export import ExportedProgram

from tpuc import mlir
from tpuc.backend.caches import Caches
from tpuc.backend.compilers import CompiledTarget, Compilers
from tpuc.backend.estimate import estimator_for
from tpuc.dims import Bucket, bucket_name, largest_step
from tpuc.fake import fake_weights
from tpuc.frontend import stablehlo
from tpuc.frontend.bodies import capture_for
from tpuc.frontend.capture import Capture, export
from tpuc.frontend.dynamic import DynamicLowered, DynamicModel, export_dynamic, lower_dynamic
from tpuc.loader import LoadedModel
from tpuc.lowerings.platforms import Platform
from tpuc.packaging import Packing
from tpuc.passes import READABLE, Pass, PassReport, parse_pipeline, run_passes
from tpuc.passes.pad_dynamic import PadDynamic
from tpuc.passes.roll_layers import RollLayers
from tpuc.program import OptimizedProgram, take_apart
from tpuc.progress import Progress
from tpuc.report.explanation import Explanation
from tpuc.report.tile_fill import tile_fill
from tpuc.report.wide_arithmetic import wide_note, wide_places
from tpuc.request import CompileRequest
from tpuc.runtime.artifact import write_artifact
from tpuc.runtime.manifest import Manifest
from tpuc.runtime.sizes import SizeRange
from tpuc.runtime.spec import TensorSpec
from tpuc.shapes import InputSpec
from tpuc.targets import CPU, Target
from tpuc.worker import Worker

#: A program before the passes.
Lowered = stablehlo.Lowered | DynamicLowered
#: What the passes did to each program.
Reports = dict[tuple[Bucket, Target], list[PassReport]]


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """What a compile made.

    Attributes:
        path: The artifact.
        manifest: What it says about itself.
        executables: What was compiled, one a target and libtpu.
        explanations: What the passes did, by bucket and target, if that was asked for.
        progress: How long each stage took, and what the user should know.
    """

    path: Path
    manifest: Manifest
    executables: tuple[CompiledTarget, ...]
    explanations: tuple[Explanation, ...] = ()
    progress: Progress


def compile_model(
    model: LoadedModel,
    request: CompileRequest,
    output: Path,
    *,
    progress: Progress | None = None,
    dump: Path | None = None,
    explain: bool = False,
    caches: Caches | None = None,
) -> Compiled:
    """Compiles a model and writes the artifact.

    Args:
        model: The model and its example inputs.
        request: What to make of it.
        output: Where the artifact goes; what is there stays until the new one is complete.
        progress: Who follows the stages.
        dump: A folder for the IR after each pass and the optimized HLO of each target.
        explain: Whether to say what the passes did, and estimate what the program costs without them.
        caches: Where what compilers made and said is looked for first, and kept.

    Raises:
        TpucError: The model cannot be compiled; see `tpuc.errors` for the ways.
    """
    progress = progress or Progress()
    platforms = {target.platform for target in request.targets}
    # Started first: they import while the model is exported.
    with Worker(stablehlo.WORKER) as torch_mlir, Compilers(request, dump, caches) as compilers:
        with progress.stage("export"):
            exported = export_model(model, request)
        with progress.stage("lower"):
            lowered = _lower(exported, torch_mlir, platforms)
        with progress.stage("passes"):
            reports: Reports = {}
            programs = {
                bucket: _optimize_all(lowered, bucket, request, compilers, dump, reports)
                for bucket in request.programs()
            }
        with progress.stage("compile"):
            executables = compilers.finish()
    captured = lowered.captured
    explanations: tuple[Explanation, ...] = ()
    if explain:
        with progress.stage("explain"):
            explanations = tuple(_explain(lowered, made, programs, reports, caches) for made in executables)
    with progress.stage("write"):
        packing = Packing(request, captured, lowered.dims, is_portable=lowered.is_portable)
        manifest, sections = packing.pack(model, programs, executables)
        manifest = write_artifact(output, manifest, sections)
    for note in (
        *model.notes,
        *captured.notes,
        *_buckets_note(request),
        *_loops_notes(programs),
        *_cache_note(executables),
        *_disabled_notes(executables),
        *_kernels_notes(executables),
        *_wide_note(programs),
    ):
        progress.note(note)
    return Compiled(
        path=output, manifest=manifest, executables=executables, explanations=explanations, progress=progress
    )


def export_model(model: LoadedModel, request: CompileRequest) -> Capture | DynamicModel:
    """Captures a model, or exports it with symbols where sizes are named."""
    platforms = {target.platform for target in request.targets}
    with_weights = request.weights != "none"
    if not request.sizes or isinstance(model.program, ExportedProgram):
        return capture_model(model, platforms, with_weights=with_weights)
    return export_any_size(model, request.shapes, request.sizes, with_weights=with_weights)


def capture_model(model: LoadedModel, platforms: Collection[Platform], *, with_weights: bool) -> Capture:
    """Exports a model, with fake weights if it is to have none, and captures the program.

    Raises:
        UnsupportedOpError: Sizes depend on the data; all else that the platforms lack is reported with them.
    """
    with exported(model, with_weights=with_weights) as program:
        return capture_for(program, platforms)


@contextmanager
def exported(model: LoadedModel, *, with_weights: bool) -> Iterator[ExportedProgram]:
    """Exports a model; with fake weights if it is to have none, in whose mode the block runs."""
    if isinstance(model.program, ExportedProgram):
        yield model.program
        return
    with nullcontext() if with_weights else fake_weights(model.program):
        yield export(model.program, model.args, model.kwargs)


def export_any_size(
    model: LoadedModel, shapes: Sequence[InputSpec], sizes: Sequence[SizeRange], *, with_weights: bool
) -> DynamicModel:
    """Exports a model, which is no exported program, with named sizes; with fake weights if it is to have none."""
    assert isinstance(model.program, torch.nn.Module)
    specs = [spec for spec in shapes if isinstance(spec, TensorSpec)]
    with nullcontext() if with_weights else fake_weights(model.program):
        return export_dynamic(model.program, model.args, model.kwargs, specs, sizes)


def _lower(exported: Capture | DynamicModel, torch_mlir: Worker, platforms: Collection[Platform]) -> Lowered:
    if isinstance(exported, DynamicModel):
        return lower_dynamic(exported, torch_mlir, platforms)
    return stablehlo.lower(exported, torch_mlir, platforms)


def _optimize_all(
    lowered: Lowered,
    bucket: Bucket,
    request: CompileRequest,
    compilers: Compilers,
    dump: Path | None,
    reports: Reports,
) -> dict[Target, OptimizedProgram]:
    """Makes the program of each target, and one for the CPU where those hold kernels that only a TPU can run.

    Each is compiled while the next is made.
    """
    passes = parse_pipeline(request.passes)
    programs = {}
    for target in request.targets:
        if target.chip is not None:
            programs[target] = _optimize(lowered, bucket, target, passes, dump, reports, compilers)
            compilers.start(bucket, target, programs[target])
    # The CPU's program takes the weights that the others take, stacked where they are.
    if any(program.rolled_layers for program in programs.values()):
        passes = tuple(replace(each, mode="always") if isinstance(each, RollLayers) else each for each in passes)
    if CPU in request.targets or (lowered.is_portable and all(program.has_kernels for program in programs.values())):
        programs[CPU] = _optimize(lowered, bucket, CPU, passes, dump, reports, compilers)
    if CPU in request.targets:
        compilers.start(bucket, CPU, programs[CPU])
    return {target: programs[target] for target in (*request.targets, CPU) if target in programs}


def _optimize(
    lowered: Lowered,
    bucket: Bucket,
    target: Target,
    passes: Sequence[Pass],
    dump: Path | None,
    reports: Reports,
    compilers: Compilers,
) -> OptimizedProgram:
    """Links the program for a target, runs the passes over it, whose reports it keeps, and takes it apart."""
    with mlir.make_context() as context, compilers.estimator(target) as estimator:
        module = lowered.module(target.platform, context, bucket)
        folder = dump and dump / str(target) / bucket_name(bucket)
        kept = reports[bucket, target] = []
        run_passes(
            module,
            passes,
            target,
            estimator=estimator,
            dump=folder,
            observer=kept.append,
        )
        rewrites = sum((Counter(report.rewrites) for report in kept), Counter[str]())
        wide = wide_places(module) if target.platform == "tpu" else ()
        return take_apart(
            module,
            masks=rewrites[PadDynamic.MASKS],
            wide_places=wide,
            rolled_layers=rewrites[RollLayers.LAYERS],
        )


def _explain(
    lowered: Lowered,
    made: CompiledTarget,
    programs: Mapping[Bucket, Mapping[Target, OptimizedProgram]],
    reports: Reports,
    caches: Caches | None,
) -> Explanation:
    """Says what the passes did for an executable, and estimates what the program would cost without them."""
    target = made.executable.target
    cache = None if caches is None else caches.estimates
    with mlir.make_context() as context, estimator_for(target, cache=cache) as estimator:
        before = fill_before = fill_after = None
        if estimator is not None:
            module = lowered.module(target.platform, context, made.bucket)
            run_passes(module, READABLE, target)
            fill_before = tile_fill(module)
            fill_after = tile_fill(mlir.parse(programs[made.bucket][target].main, context))
            before = estimator.cycles(module)
    return Explanation(
        target=target,
        bucket=made.bucket,
        passes=tuple(reports[made.bucket, target]),
        cycles_before=before,
        cycles_after=made.cycles.total or None,
        fill_before=fill_before,
        fill_after=fill_after,
    )


def _place(target: Target, bucket: Bucket) -> str:
    """What notes call the program of a target and a bucket."""
    return " ".join(filter(None, (str(target), bucket_name(bucket))))


def _buckets_note(request: CompileRequest) -> Iterator[str]:
    """What the choice of buckets costs."""
    if request.sizes:
        buckets = " ".join(map(str, request.buckets))
        step = largest_step(request.sizes, request.buckets)
        count = len(request.programs())
        programs = f"{count} programs" if count > 1 else "1 program"
        yield f"buckets {buckets}: {programs} a target; padding makes an input at most {step:.3g} times as long"


def _wide_note(programs: Mapping[Bucket, Mapping[Target, OptimizedProgram]]) -> Iterator[str]:
    """Where TPUs are left with 64-bit arithmetic."""
    note = wide_note(
        place for by_target in programs.values() for each in by_target.values() for place in each.wide_places
    )
    if note:
        yield note


def _loops_notes(programs: Mapping[Bucket, Mapping[Target, OptimizedProgram]]) -> Iterator[str]:
    """Which programs loop over layers."""
    for bucket, by_target in programs.items():
        for target, program in by_target.items():
            if program.rolled_layers:
                yield f"{program.rolled_layers} layers on {_place(target, bucket)} are loops, over stacked weights"


def _cache_note(executables: Sequence[CompiledTarget]) -> Iterator[str]:
    """How many executables did not have to be compiled."""
    cached = sum(compiled.executable.is_cached for compiled in executables)
    if cached:
        yield f"{cached} of {len(executables)} executables had been compiled before, and came from the cache"


def _disabled_notes(executables: Sequence[CompiledTarget]) -> Iterator[str]:
    """Which passes of the compilers' own were left out."""
    for compiled in executables:
        if compiled.executable.disabled_pass:
            place = _place(compiled.executable.target, compiled.bucket)
            yield f"libtpu's own pass {compiled.executable.disabled_pass} fails on {place}, and was left out"


def _kernels_notes(executables: Sequence[CompiledTarget]) -> Iterator[str]:
    """What is to be known of programs' cycles when some of them are not the compiler's."""
    for compiled in executables:
        cycles = compiled.cycles
        if not cycles.kernels:
            continue
        place = _place(compiled.executable.target, compiled.bucket)
        what = f"the kernels on {place} ({cycles.kernels}), which the compiler makes no estimate of,"
        if cycles.uncounted_kernels:
            yield f"{what} are not in the cycles"
        else:
            counted = f"{cycles.kernel_cycles:,} of the {cycles.total:,} cycles"
            yield f"{what} are counted at twice their roofline: {counted}"
