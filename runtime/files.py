"""Replaces files safely: whoever reads a path finds the old content or the new, never a part.

The new content goes to a temporary file beside the old one, is synced, and takes its place in one step. A process
that is killed in between leaves the temporary file behind; the next write of the same path removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_SUFFIX = ".tpuc-partial"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_no_room(error: OSError) -> bool:
    """Whether an error says that a disk, a quota or a file-size limit is exhausted."""
    return error.errno in _NO_ROOM


@dataclass
class Replacement:
    """A file that is being written.

    Attributes:
        file: The temporary file.
        path: Where it will stand. It may be set, within the same folder, until the block ends.
    """

    file: BinaryIO
    path: Path


@contextmanager
def replacing(path: Path) -> Iterator[Replacement]:
    """Opens a temporary file that becomes `path` when the block ends without an exception.

    Whatever goes wrong, Ctrl-C included, the temporary file is removed and `path` is untouched.

    Raises:
        OSError: The file cannot be made, written or renamed.
    """
    temporary, file = _open_temporary(path)
    try:
        with file:
            replacement = Replacement(file, path)
            yield replacement
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, replacement.path)
    except BaseException:  # Whatever ends the write, Ctrl-C too: raised again once the part is gone.
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)
    _remove_leftovers(path)


def _open_temporary(path: Path) -> tuple[Path, BinaryIO]:
    # The lock tells a file that is being written from one that a killed process left behind. Between making the file
    # and locking it, another process may have taken it for a leftover: then it has no name any more, and we try again.
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SUFFIX}")
        file = temporary.open("xb")
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return temporary, file
        file.close()


def _remove_leftovers(path: Path) -> None:
    prefix = f".{path.name}."
    for entry in _list(path.parent):
        if entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX):
            _remove_if_abandoned(entry)


def _list(folder: Path) -> list[Path]:
    # A folder that may be written but not listed keeps its leftovers: the write itself has succeeded.
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _remove_if_abandoned(entry: Path) -> None:
    # Another process may be doing the same, or may own the file: both are fine.
    with suppress(OSError), entry.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        entry.unlink()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
