"""What the compilers' answers are kept in, in the user's cache folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tpuc.runtime.cache import Cache, default_folder


@dataclass(frozen=True, kw_only=True)
class Caches:
    """The caches of a compile.

    Attributes:
        executables: What was compiled.
        estimates: What programs were said to cost.
    """

    executables: Cache
    estimates: Cache

    @classmethod
    def of_user(cls) -> Self:
        """Returns those in the user's cache folder."""
        folder = default_folder()
        return cls(
            executables=Cache(folder / "compiled", "executable"), estimates=Cache(folder / "estimates", "estimate")
        )
