"""Keeps what was compiled on this machine, so that it is compiled once.

An entry is a file: the SHA-256 of its content, 32 bytes, then the content. One that does not fit its hash is as good
as none. Processes may read and write the same entry at once, because entries are replaced in one step. A folder that
has become too large loses the entries that were read or written longest ago.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tpuc.runtime.files import replacing

_HASH_BYTES = 32
_GIB = 1 << 30


def default_folder() -> Path:
    """Returns the user's cache folder, by the XDG Base Directory Specification."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "tpuc"


class Cache:
    """A folder of entries.

    Attributes:
        folder: Where they are. It is made when the first is kept.
    """

    def __init__(self, folder: Path, kind: str, *, most_bytes: int = 8 * _GIB) -> None:
        """Takes a folder.

        Args:
            folder: Where the entries are; others may be there too.
            kind: What they are, the ending of their names.
            most_bytes: What they may take together.
        """
        self.folder = folder
        self._suffix = f".{kind}"
        self._most_bytes = most_bytes

    def read(self, key: str) -> bytes | None:
        """Returns an entry, or None if it is not there, cannot be read or is damaged."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        digest, entry = content[:_HASH_BYTES], content[_HASH_BYTES:]
        if hashlib.sha256(entry).digest() != digest:
            return None
        # It was read just now; where that cannot be said, it goes the sooner.
        with suppress(OSError):
            os.utime(path)
        return entry

    def write(self, key: str, entry: bytes) -> None:
        """Keeps an entry.

        Raises:
            OSError: The folder cannot be made or written.
        """
        # Executables are machine code: nobody else may put one there.
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(self._path(key)) as replacement:
            replacement.file.write(hashlib.sha256(entry).digest())
            replacement.file.write(entry)
        self._remove_oldest()

    def _remove_oldest(self) -> None:
        found = []
        for path in self.folder.glob(f"*{self._suffix}"):
            # Another process may remove it at the same time.
            with suppress(FileNotFoundError):
                state = path.stat()
                found.append((state.st_mtime_ns, state.st_size, path))
        total = sum(size for _, size, _ in found)
        # The newest stays, however large it is.
        for _, size, path in sorted(found)[:-1]:
            if total <= self._most_bytes:
                break
            path.unlink(missing_ok=True)
            total -= size

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{self._suffix}"


class ExecutableCache(Cache):
    """A folder of executables."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "executable")

    @staticmethod
    def key(program_sha256: str, target: str, compiler: Mapping[str, str], host: str) -> str:
        """Names an executable by everything that it depends on."""
        return cache_key(program_sha256, target, sorted(compiler.items()), host)


def cache_key(*parts: object) -> str:
    """Names an entry by everything that it depends on, as JSON can say it."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
