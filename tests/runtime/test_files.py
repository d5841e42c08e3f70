"""Tests of replacing files safely. What happens when a process is killed is tested in test_artifact.py."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from tpuc.runtime.files import replacing


def write(path: Path, data: bytes) -> None:
    with replacing(path) as replacement:
        replacement.file.write(data)


def test_the_new_content_takes_the_place_of_the_old(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    write(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, ValueError, SystemExit])
def test_an_exception_leaves_the_old_content_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail() -> None:
        with replacing(path) as replacement:
            replacement.file.write(b"new")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_name_may_be_chosen_late(tmp_path: Path) -> None:
    with replacing(tmp_path / "file") as replacement:
        replacement.file.write(b"new")
        replacement.path = tmp_path / "other"
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_what_a_killed_process_left_behind_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    leftover = tmp_path / ".file.0123abcd.tpuc-partial"
    other = tmp_path / ".unrelated.0123abcd.tpuc-partial"
    for stale in (leftover, other):
        stale.write_bytes(b"part")
    write(path, b"new")
    assert not leftover.exists()
    assert other.exists()


def test_what_another_process_is_writing_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    busy = tmp_path / ".file.0123abcd.tpuc-partial"
    with busy.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write(path, b"new")
        assert busy.exists()
    write(path, b"newer")
    assert not busy.exists()


def test_a_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "no" / "file", b"new")
