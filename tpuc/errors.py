"""The errors of tpuc.

    TpucError
    ├── RequestError            what was asked for makes no sense: a spec, a dtype, a target
    ├── LoadError               the model's file could not be turned into a module
    ├── ExportError             torch.export could not capture the module
    ├── UnsupportedOpError      operators without a lowering, all of them at once
    ├── PassError               a pass raised, or left an invalid module
    ├── BackendError            XLA or libtpu refused the program
    │   └── HbmOverflowError    the program needs more memory than the chip has
    ├── CrashError              a C++ library ended its process, or never came back
    ├── ArtifactError           ┐
    ├── InputError              │
    ├── DeviceError             │ the runtime's: see tpuc.runtime.errors
    │   └── DeviceMemoryError   │
    └── VersionSkewError        ┘

Each has a `what`, a `where` (the user's file and line, where there is one) and a `hint` (what to do next).
The command line turns any of them into exit code 1 with no traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tpuc.runtime.errors import (
    ArtifactError,
    DeviceError,
    DeviceMemoryError,
    InputError,
    TpucError,
    VersionSkewError,
)

__all__ = [
    "ArtifactError",
    "BackendError",
    "CrashError",
    "DeviceError",
    "DeviceMemoryError",
    "ExportError",
    "HbmOverflowError",
    "InputError",
    "LoadError",
    "PassError",
    "RequestError",
    "TpucError",
    "UnsupportedOp",
    "UnsupportedOpError",
    "VersionSkewError",
]


class RequestError(TpucError):
    """What was asked for makes no sense: a shape spec, a dtype, a target, an option."""


class LoadError(TpucError):
    """The model's file could not be turned into a module with example inputs."""


class ExportError(TpucError):
    """torch.export could not capture the module."""


@dataclass(frozen=True, kw_only=True)
class UnsupportedOp:
    """One place where a program uses an operator that cannot be lowered.

    Attributes:
        operator: The operator's name, such as `aten.nonzero.default`.
        reason: Why it cannot be lowered.
        location: The user's `file:line`, or "" where PyTorch recorded none.
        module: The module path, such as `layers.0.attn`, or "".
        hint: What to do about it.
        skeleton: The lowering to write, without its body, as Python source; "" where that would not help.
    """

    operator: str
    reason: str
    location: str = ""
    module: str = ""
    hint: str = ""
    skeleton: str = ""


class UnsupportedOpError(TpucError):
    """Operators without a lowering: all of them at once.

    Attributes:
        operators: Every place, in program order; those where a size depends on the data come first.
    """

    def __init__(self, operators: tuple[UnsupportedOp, ...]) -> None:
        kinds = len({op.operator for op in operators})
        lines = [f"{kinds} operator{'s' if kinds != 1 else ''} cannot be lowered:"]
        for alike in _group(operators):
            op = alike[0]
            place = " ".join(filter(None, [op.location, f"in {op.module}" if op.module else ""]))
            others = f", and {len(alike) - 1} times more" if len(alike) > 1 else ""
            lines.append(f"  {op.operator}{f' at {place}' if place else ''}{others}: {op.reason}")
            if op.hint:
                lines.append(f"      {op.hint}")
        for skeleton in dict.fromkeys(op.skeleton for op in operators if op.skeleton):
            lines += ["", *(f"    {line}" for line in skeleton.splitlines())]
        super().__init__("\n".join(lines))
        self.operators = operators


def _group(operators: tuple[UnsupportedOp, ...]) -> Iterable[list[UnsupportedOp]]:
    """Puts together what one line of the user's asks for again and again: a layer that is there many times."""
    groups: dict[tuple[str, str, str], list[UnsupportedOp]] = {}
    for op in operators:
        groups.setdefault((op.operator, op.location, op.reason), []).append(op)
    return groups.values()


class PassError(TpucError):
    """A pass raised, or left a module that does not verify; names the pass and its reproducer."""


class BackendError(TpucError):
    """XLA or libtpu refused the program."""


class HbmOverflowError(BackendError):
    """The program needs more HBM than the chip has.

    Attributes:
        needed: Bytes that the program needs.
        available: Bytes that the chip has for it.
    """

    def __init__(self, what: str, *, needed: int, available: int, hint: str) -> None:
        super().__init__(what, hint=hint)
        self.needed = needed
        self.available = available


class CrashError(TpucError):
    """A C++ library ended the process that it ran in, or never came back."""
