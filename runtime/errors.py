"""The root of tpuc's errors, and those that the runtime raises.

`tpuc.errors` draws the whole tree. The root stands here because the runtime imports nothing of the compiler.
"""

from __future__ import annotations


class TpucError(Exception):
    """Base of every error that tpuc raises on purpose.

    The text a person sees says what is wrong, where, and what to do next, one line each.

    Attributes:
        what: What is wrong, one sentence.
        where: The file and line, argument or section concerned, or None.
        hint: What to do next, or None.
    """

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what, where, hint)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  at {self.where}")
        if self.hint:
            lines.append(f"  {self.hint}")
        return "\n".join(lines)


class ArtifactError(TpucError):
    """A file is not an artifact, is damaged, or is of a kind that this version cannot read."""


class InputError(TpucError):
    """What a program was given does not fit its signature."""


class DeviceError(TpucError):
    """A device or its PJRT plugin cannot be opened, or refused an operation."""


class DeviceMemoryError(DeviceError):
    """A device has too little memory for the program and its weights."""


class VersionSkewError(TpucError):
    """An executable was made by another compiler build, and recompiling was forbidden."""
