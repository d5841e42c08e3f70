"""The frame around passes: what a pass is, and how a sequence of them is run, verified and dumped."""

from __future__ import annotations

import abc
import json
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Protocol

from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.errors import PassError, RequestError, TpucError
from tpuc.runtime.files import replacing
from tpuc.targets import CPU, Target

#: An option's value that needs no quotes in a pipeline's text.
BARE_VALUE = re.compile(r'[^\s,{}="]+')


#: The attribute that names a loop whose cost is asked for, among those that the compiler hands through.
LOOP = "tpuc.loop"


@dataclass(frozen=True, kw_only=True)
class LoopCosts:
    """What a program costs, and what the loops in it do.

    Attributes:
        total: Cycles of the program.
        loops: Cycles of each loop, with all its turns, by the name that its attribute `LOOP` gives.
    """

    total: int
    loops: Mapping[str, int]


class Estimator(Protocol):
    """Says what programs cost on a target."""

    def cycles_of(self, modules: Sequence[ir.Module]) -> Sequence[int | None]:
        """Returns the compiler's estimate for each module, in cycles; None where it makes none or refuses the module.

        They may be compiled side by side. They lose their source locations, so that equal ones are estimated once.
        """

    def loops_of(self, module: ir.Module) -> Future[LoopCosts | None]:
        """Begins to estimate a program as it will be compiled in the end, and what its loops cost.

        Args:
            module: The program, with what it prepares from weights in functions of its own. It stays as it is.

        Returns:
            What gives the estimates once they are there; None where the compiler makes none or refuses the program.
        """


@dataclass(frozen=True, kw_only=True)
class PassContext:
    """What a pass may know beside the module.

    Attributes:
        target: What the module will be compiled for.
        estimator: Who says whether a rewrite pays there; None where nobody does, and then no such rewrite is made.
    """

    target: Target
    estimator: Estimator | None = None


@dataclass(frozen=True, kw_only=True)
class Pass(abc.ABC):
    """A rewrite of a whole module. The fields of a subclass are its options: bool, int, float or str, with defaults.

    Attributes:
        name: The name in pipelines and reports: `fold-transpose` for the class `FoldTranspose`.
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place.

        Args:
            module: Static StableHLO and CHLO, with one public `@main`.
            context: What else the pass may know.

        Returns:
            How often each rule fired, by the rule's name; empty where the pass does not count.
        """

    @classmethod
    def with_options(cls, options: Mapping[str, str]) -> Pass:
        """Returns the pass with these options, given as text.

        Raises:
            RequestError: The pass has no such option, or the value is not of the option's type.
        """
        types = {field.name.replace("_", "-"): str(field.type) for field in fields(cls)}
        values: dict[str, Any] = {}
        for option, text in options.items():
            if option not in types:
                known = f"It has: {', '.join(sorted(types))}." if types else "It has none."
                raise RequestError(f"pass {cls.name} has no option {option!r}", hint=known)
            try:
                values[option.replace("-", "_")] = _READERS[types[option]](text)
            except ValueError as error:
                raise RequestError(f"pass {cls.name}: {option}={text} is not of type {types[option]}") from error
        return cls(**values)

    def __str__(self) -> str:
        """The pass as it stands in a pipeline's text: its name, then the options that differ from their defaults."""
        options = [
            f"{field.name.replace('_', '-')}={_print_option(getattr(self, field.name))}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{self.name}{{{' '.join(options)}}}" if options else self.name


def _read_bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


_READERS: Mapping[str, Callable[[str], bool | int | float | str]] = {
    "bool": _read_bool,
    "int": int,
    "float": float,
    "str": str,
}


def _print_option(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value if BARE_VALUE.fullmatch(value) else json.dumps(value)
    return repr(value)


@dataclass(frozen=True, kw_only=True)
class PassReport:
    """What one pass did to a module.

    Attributes:
        text: The pass with its options, as in a pipeline's text.
        rewrites: How often each of its rules fired, by the rule's name; empty where the pass does not count.
        seconds: How long it took, without verifying and dumping.
    """

    text: str
    rewrites: Mapping[str, int]
    seconds: float


def run_passes(
    module: ir.Module,
    passes: Sequence[Pass],
    target: Target,
    *,
    estimator: Estimator | None = None,
    dump: Path | None = None,
    observer: Callable[[PassReport], None] | None = None,
) -> None:
    """Runs passes over a module in place, one after the other, and verifies it after each.

    Args:
        module: The module; how far it got stays in it when a pass fails.
        passes: The passes, in order.
        target: What the module will be compiled for.
        estimator: Who says whether a rewrite pays on the target; without, passes that ask do nothing.
        dump: A folder for the module as it came (`00-input.mlir`) and as each pass left it (`NN-name.mlir`).
        observer: Called after each pass.

    Raises:
        PassError: A pass raised, or left a module that does not verify. The message names the pass and a reproducer:
            the module as it was before that pass, in the dump folder or else in a new temporary one.
    """
    if dump is not None:
        dump.mkdir(parents=True, exist_ok=True)
        _write_module(dump / "00-input.mlir", module)
    context = PassContext(target=target, estimator=estimator)
    for number, each in enumerate(passes, start=1):
        stem = f"{number:02}-{each.name}"
        with _Reproducer(each, module, target, dump, stem):
            start = time.perf_counter()
            rewrites = each.run(module, context)
            seconds = time.perf_counter() - start
            module.operation.verify()
        if dump is not None:
            _write_module(dump / f"{stem}.mlir", module)
        if observer is not None:
            observer(PassReport(text=str(each), rewrites=dict(rewrites), seconds=seconds))


class _Reproducer:
    """Turns whatever a pass raises into a PassError, with the module that the pass was given written beside it.

    A pass is code over foreign bindings, so any exception can come out of it, and each is worth the reproducer.
    """

    def __init__(self, running: Pass, module: ir.Module, target: Target, dump: Path | None, stem: str) -> None:
        self._running = running
        self._target = target
        self._dump = dump
        self._stem = stem
        with module.context:
            self._before = module.operation.clone()

    def __enter__(self) -> None:
        """Nothing to set up."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if not isinstance(error, Exception):
            return
        path = (self._dump or Path(tempfile.mkdtemp(prefix="tpuc-"))) / f"{self._stem}.reproducer.mlir"
        on = "" if self._target == CPU else f" --target {self._target}"
        command = f"tpuc opt --passes {shlex.quote(str(self._running))}{on} {shlex.quote(str(path))}"
        _write(path, f"// RUN: {command}\n{self._before.get_asm(enable_debug_info=True)}")
        what = error.what if isinstance(error, TpucError) else f"{type(error).__name__}: {error}"
        raise PassError(
            f"pass {self._running.name} failed: {what}",
            where=error.where if isinstance(error, TpucError) else None,
            hint=f"Reproduce it: {command}",
        ) from error


def _write_module(path: Path, module: ir.Module) -> None:
    _write(path, mlir.to_text(module, locations=True))


def _write(path: Path, text: str) -> None:
    with replacing(path) as replacement:
        replacement.file.write(text.encode())
