"""Builds one model of the zoo for one target, as the settings at the top of its file say.

A file may state settings by platform, in a literal dict; a file without is built with its own example inputs:

    ZOO = {
        "tpu": {"symbol": "model", "shapes": "input_ids=i64[1,2048]", "weights": "none", "chips": ["v5e", "v5p"]},
        "cpu": {"symbol": "two_layers", "shapes": "input_ids=i64[1,128]"},
    }

It may also define `check(outputs)`, which makes of the outputs what must be equal to eager's: a label, a rounded
number.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import hashlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch

from tpuc.agreement import compare_with_eager, randomize
from tpuc.errors import HbmOverflowError, LoadError, RequestError, TpucError
from tpuc.loader import LoadedModel, load_model
from tpuc.passes import default_pipeline
from tpuc.pipeline import Compiled, compile_model
from tpuc.progress import Progress
from tpuc.request import CompileRequest, WeightsMode
from tpuc.shapes import parse_shapes
from tpuc.targets import CHIPS, Target
from tpuc.zoo import Agreement, ZooRecord

_PLATFORMS = ("cpu", "tpu")
_KEYS = ("symbol", "shapes", "weights", "chips")
_CHIP_NAMES = tuple(chip.name for chip in CHIPS)


@dataclass(frozen=True, kw_only=True)
class ZooSettings:
    """How a model is built for a platform.

    Attributes:
        symbol: What to build of the file; "" means its one obvious model.
        shapes: The inputs' specs, as --shapes takes them; "" means the file's own example inputs.
        weights: Where the weights go. On the cpu they are needed for the comparison with eager.
        chips: The chips that the model is meant for; that it does not fit another is no failure. () means all.
    """

    symbol: str = ""
    shapes: str = ""
    weights: WeightsMode = "embed"
    chips: tuple[str, ...] = ()


def read_settings(path: Path, platform: str) -> ZooSettings:
    """Reads the settings in a model's file, which is not run for it.

    Args:
        path: The file.
        platform: `cpu` or `tpu`.

    Raises:
        LoadError: The file cannot be read, or is not Python.
        RequestError: The settings are not a literal dict, or have an unknown key or a value that makes no sense.
    """
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except OSError as error:
        raise LoadError(f"cannot read {path}: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise LoadError(f"{path.name} is not Python: {error}", where=f"{path}:{line}") from error
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="ZOO")], value=value):
                return _settings(value, platform, f"{path}:{statement.lineno}")
    return ZooSettings()


def _settings(value: ast.expr, platform: str, where: str) -> ZooSettings:
    try:
        stated = ast.literal_eval(value)
    except (ValueError, TypeError) as error:
        raise RequestError("ZOO is not a literal", where=where, hint="Write the settings out, as a dict.") from error
    if not isinstance(stated, dict) or not all(isinstance(fields, dict) for fields in stated.values()):
        raise RequestError("ZOO is not a dict of dicts", where=where, hint="Write {'tpu': {'shapes': ...}}.")
    _check_known(stated, _PLATFORMS, "platform", where)
    for fields in stated.values():
        _check_known(fields, _KEYS, "setting", where)
    fields = stated.get(platform, {})
    if not isinstance(fields.get("chips", []), list):
        raise RequestError("the chips in ZOO are not a list", where=where)
    settings = ZooSettings(**{**fields, "chips": tuple(fields.get("chips", ()))})
    for key in ("symbol", "shapes"):
        if not isinstance(getattr(settings, key), str):
            raise RequestError(f"the {key} in ZOO is not a text", where=where)
    _check_known([settings.weights], get_args(WeightsMode), "weights", where)
    _check_known(settings.chips, _CHIP_NAMES, "chip", where)
    if platform == "cpu" and settings.weights == "none":
        raise RequestError("without weights, a program for the cpu cannot be compared with eager", where=where)
    return settings


def _check_known(given: Iterable[object], known: tuple[str, ...], what: str, where: str) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise RequestError(
                f"ZOO names an unknown {what}: {name!r}", where=where, hint=f"{hint}Known: {', '.join(known)}."
            )


class _Stages(Progress):
    def __init__(self, at: Callable[[str], None]) -> None:
        super().__init__()
        self._at = at

    def begin(self, name: str) -> None:
        self._at(name)


def build(path: Path, target: str, output: Path, *, at: Callable[[str], None] = lambda stage: None) -> ZooRecord:
    """Builds a model for a target, and compares the cpu's program with eager.

    Args:
        path: The model's file.
        target: The target's text.
        output: Where the artifact goes.
        at: Is told each stage as it begins.

    Returns:
        What became of it, failures included.
    """
    try:
        return _build(path, Target.parse(target), output, _Stages(at))
    except TpucError as error:
        return ZooRecord(model=path.stem, target=target, outcome="failed", reason=str(error))


def _build(path: Path, target: Target, output: Path, progress: Progress) -> ZooRecord:
    settings = read_settings(path, target.platform)
    specs = parse_shapes(settings.shapes) if settings.shapes else ()
    with progress.stage("load"):
        model = load_model(
            f"{path}:{settings.symbol}" if settings.symbol else str(path),
            shapes=specs,
            with_weights=settings.weights != "none",
        )
    request = CompileRequest(
        source=model.source,
        source_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        shapes=specs,
        targets=(target,),
        weights=settings.weights,
        passes=default_pipeline(),
    )
    try:
        compiled = compile_model(model, request, output, progress=progress)
    except HbmOverflowError as error:
        if _is_meant_for(target, settings):
            raise
        return ZooRecord(model=path.stem, target=str(target), outcome="does not fit", reason=str(error))
    record = _describe(path, target, compiled)
    if target.platform != "cpu":
        return record
    with progress.stage("comparison with eager"):
        agreement = _compare(path, model, output, made_up=bool(specs))
    if not agreement.holds:
        record = dataclasses.replace(record, outcome="failed", reason=_disagreement(agreement))
    return dataclasses.replace(record, agreement=agreement)


def _is_meant_for(target: Target, settings: ZooSettings) -> bool:
    return not settings.chips or (target.chip is not None and target.chip.name in settings.chips)


def _describe(path: Path, target: Target, compiled: Compiled) -> ZooRecord:
    """The record of what was compiled for one target, and not compared yet."""
    (made,) = compiled.executables
    clock = target.chip.clock_hz if target.chip else None
    cycles = made.cycles.total or None
    return ZooRecord(
        model=path.stem,
        target=str(target),
        outcome="built",
        inputs=tuple(map(str, compiled.manifest.inputs)),
        parameters=compiled.manifest.model.parameters,
        seconds=dict(compiled.progress.seconds),
        executable_bytes=len(made.executable.serialized),
        memory=dict(made.executable.memory),
        hbm_bytes=target.chip.hbm_bytes if target.chip else None,
        estimated_cycles=cycles,
        estimated_seconds=cycles / clock if cycles and clock else None,
    )


def _compare(path: Path, model: LoadedModel, artifact: Path, *, made_up: bool) -> Agreement:
    assert isinstance(model.program, torch.nn.Module)
    args, kwargs = randomize(model.args, model.kwargs) if made_up else (model.args, model.kwargs)
    return compare_with_eager(artifact, model.program, args, kwargs, check=_find_check(path))


def _find_check(path: Path) -> Callable[[Any], Any] | None:
    """The check() of a model's file, which the loader has run as a module."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(path.resolve()):
            return getattr(module, "check", None)
    return None


def _disagreement(agreement: Agreement) -> str:
    if agreement.error > agreement.limit:
        return (
            f"the output {agreement.output} differs from eager's by {agreement.error:.1e} of its largest value, "
            f"and {agreement.limit:.0e} is allowed"
        )
    return "check() does not come out as it does in eager"
