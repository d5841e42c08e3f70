"""Compiling programs once: what is kept, and what it depends on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tpuc.backend.compile
from tpuc import mlir
from tpuc.backend.compile import compile_program
from tpuc.runtime.cache import Cache
from tpuc.targets import CPU, Target

TEXT = """
func.func @main(%x: tensor<{size}xf32>) -> tensor<{size}xf32> {{
  %0 = stablehlo.add %x, %x : tensor<{size}xf32>
  return %0 : tensor<{size}xf32>
}}
"""


def program(size: int = 4) -> bytes:
    with mlir.make_context() as context:
        return mlir.to_portable(mlir.parse(TEXT.format(size=size), context))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "compiled", "executable")


def test_a_program_is_compiled_once(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_program(program(), CPU, cache=cache)
    monkeypatch.setattr(tpuc.backend.compile, "start_worker", None)  # Nothing is compiled from here on.
    second = compile_program(program(), CPU, cache=cache)
    assert (first.is_cached, second.is_cached) == (False, True)
    assert (second.serialized, second.hlo, second.memory) == (first.serialized, first.hlo, first.memory)
    assert (second.compiler, second.host, second.target) == (first.compiler, first.host, first.target)


@pytest.mark.parametrize("damage", [b"", b"x", bytes(40)])
def test_a_damaged_entry_is_compiled_again(cache: Cache, damage: bytes) -> None:
    compile_program(program(), CPU, cache=cache)
    (path,) = cache.folder.iterdir()
    path.write_bytes(damage)
    assert not compile_program(program(), CPU, cache=cache).is_cached
    assert compile_program(program(), CPU, cache=cache).is_cached


def test_others_compile_the_same_at_once(cache: Cache) -> None:
    with ThreadPoolExecutor() as pool:
        made = list(pool.map(lambda _: compile_program(program(), CPU, cache=cache), range(2)))
    assert made[0].hlo == made[1].hlo
    assert [path.suffix for path in cache.folder.iterdir()] == [".executable"]


def test_a_folder_that_cannot_be_written_is_done_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert compile_program(program(), CPU, cache=Cache(tmp_path / "file" / "compiled", "executable")).hlo
    assert "an executable is not kept" in caplog.text


def test_everything_that_matters_is_in_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key = tpuc.backend.compile._cache_key
    libtpu = tmp_path / "libtpu.so"
    libtpu.write_bytes(b"one build")
    v5e = Target.parse("v5e")
    keys = [
        key(program(), CPU, None),
        key(program(5), CPU, None),
        key(program(), v5e, None),
        key(program(), Target.parse("v5p"), None),
        key(program(), v5e, libtpu),
    ]
    libtpu.write_bytes(b"another build")
    keys.append(key(program(), v5e, libtpu))
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/nowhere")
    keys.append(key(program(), CPU, None))
    assert len(set(keys)) == len(keys)
