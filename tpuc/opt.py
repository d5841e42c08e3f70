"""`tpuc opt`: passes over a StableHLO file."""

from __future__ import annotations

from pathlib import Path

from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.backend.caches import Caches
from tpuc.backend.estimate import estimator_for
from tpuc.errors import RequestError
from tpuc.passes import PIPELINE, parse_pipeline, run_passes
from tpuc.targets import Target


def optimize(
    file: Path, *, passes: str | None = None, target: str = "cpu", locations: bool = False, dump: Path | None = None
) -> str:
    """Runs passes over the module in a file.

    Args:
        file: MLIR text, bytecode or a portable artifact.
        passes: A pipeline's text; None means what a compile runs.
        target: What the module will be compiled for.
        locations: Whether source locations are printed.
        dump: A folder for the IR after each pass.

    Returns:
        The module as text.

    Raises:
        RequestError: The file is not a module, or the pipeline or target makes no sense.
        PassError: A pass failed.
    """
    pipeline = PIPELINE if passes is None else parse_pipeline(passes)
    parsed = Target.parse(target)
    with mlir.make_context() as context, estimator_for(parsed, cache=Caches.of_user().estimates) as estimator:
        module = _read(file, context)
        run_passes(module, pipeline, parsed, estimator=estimator, dump=dump)
        return mlir.to_text(module, locations=locations)


def _read(file: Path, context: ir.Context) -> ir.Module:
    try:
        source = file.read_bytes()
    except OSError as error:
        raise RequestError(f"cannot read {file}: {error.strerror}") from error
    try:
        return mlir.parse(source if source.startswith(mlir.BYTECODE_MAGIC) else source.decode(), context)
    except UnicodeDecodeError as error:
        raise RequestError(f"{file} is neither MLIR text nor bytecode") from error
    except (ir.MLIRError, ValueError) as error:
        raise RequestError(f"{file} is not an MLIR module of StableHLO: {error}") from error
