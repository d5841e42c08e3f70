"""Tests of keeping compiled executables."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tpuc.runtime.cache import Cache, ExecutableCache, default_folder

KEY = ExecutableCache.key("0" * 64, "cpu", {"jaxlib": "0.10.2"}, "x86_64-0")


def test_what_is_kept_is_found(tmp_path: Path) -> None:
    cache = ExecutableCache(tmp_path / "a" / "b")
    assert cache.read(KEY) is None
    cache.write(KEY, b"executable")
    assert cache.read(KEY) == b"executable"
    cache.write(KEY, b"another")
    assert cache.read(KEY) == b"another"


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"", lambda data: data[::-1]]
)
def test_a_damaged_entry_is_as_good_as_none(tmp_path: Path, damage: object) -> None:
    cache = ExecutableCache(tmp_path)
    cache.write(KEY, b"executable")
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    assert cache.read(KEY) is None
    cache.write(KEY, b"executable")
    assert cache.read(KEY) == b"executable"


def test_what_was_read_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, "entry", most_bytes=3 * (32 + 100))
    for number, key in enumerate("abc"):
        cache.write(key, bytes(100))
        os.utime(tmp_path / f"{key}.entry", (number, number))
    assert cache.read("a") is not None
    cache.write("d", bytes(100))
    assert {path.name for path in tmp_path.iterdir()} == {"a.entry", "c.entry", "d.entry"}


def test_the_newest_stays_however_large(tmp_path: Path) -> None:
    cache = Cache(tmp_path, "entry", most_bytes=10)
    (tmp_path / "another.kind").write_bytes(bytes(100))
    for key in "ab":
        cache.write(key, bytes(100))
    assert {path.name for path in tmp_path.iterdir()} == {"b.entry", "another.kind"}


def test_an_entry_that_cannot_be_read_is_as_good_as_none(tmp_path: Path) -> None:
    cache = ExecutableCache(tmp_path)
    (tmp_path / f"{KEY}.executable").mkdir()
    assert cache.read(KEY) is None


def test_a_folder_that_cannot_be_made_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        ExecutableCache(tmp_path / "file" / "cache").write(KEY, b"executable")


def test_only_the_user_can_put_executables_there(tmp_path: Path) -> None:
    ExecutableCache(tmp_path / "cache").write(KEY, b"executable")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_everything_that_matters_is_in_the_key() -> None:
    keys = {
        KEY,
        ExecutableCache.key("1" * 64, "cpu", {"jaxlib": "0.10.2"}, "x86_64-0"),
        ExecutableCache.key("0" * 64, "v5e", {"jaxlib": "0.10.2"}, "x86_64-0"),
        ExecutableCache.key("0" * 64, "cpu", {"jaxlib": "0.9.2"}, "x86_64-0"),
        ExecutableCache.key("0" * 64, "cpu", {"jaxlib": "0.10.2"}, "x86_64-1"),
    }
    assert len(keys) == 5
    assert ExecutableCache.key("0" * 64, "cpu", {"a": "1", "b": "2"}, "") == ExecutableCache.key(
        "0" * 64, "cpu", {"b": "2", "a": "1"}, ""
    )


def test_the_default_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "tpuc"
    monkeypatch.setenv("HOME", "/home/someone")
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert default_folder() == Path("/home/someone/.cache/tpuc")
