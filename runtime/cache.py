"""Keeps executables that were compiled on this machine, so that they are compiled once.

An entry is a file: the SHA-256 of the executable, 32 bytes, then the executable. One that does not fit its hash is as
good as none. Processes may read and write the same entry at once, because entries are replaced in one step.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from tpuc.runtime.files import replacing

_HASH_BYTES = 32


def default_folder() -> Path:
    """Returns the user's cache folder, by the XDG Base Directory Specification."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "tpuc"


class ExecutableCache:
    """A folder of executables.

    Attributes:
        folder: Where they are. It is made when the first is kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def key(program_sha256: str, target: str, compiler: Mapping[str, str], host: str) -> str:
        """Names an executable by everything that it depends on."""
        parts = [program_sha256, target, sorted(compiler.items()), host]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def read(self, key: str) -> bytes | None:
        """Returns an executable, or None if it is not there, cannot be read or is damaged."""
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        digest, executable = content[:_HASH_BYTES], content[_HASH_BYTES:]
        return executable if hashlib.sha256(executable).digest() == digest else None

    def write(self, key: str, executable: bytes) -> None:
        """Keeps an executable.

        Raises:
            OSError: The folder cannot be made or written.
        """
        # Executables are machine code: nobody else may put one there.
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(self._path(key)) as replacement:
            replacement.file.write(hashlib.sha256(executable).digest())
            replacement.file.write(executable)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.executable"
