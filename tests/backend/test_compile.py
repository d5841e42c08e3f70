"""Compiling programs once: what is kept, and what it depends on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import MagicMock

import pytest

import tpuc.backend.compile
from tpuc import mlir
from tpuc.backend import xla_worker
from tpuc.backend.compile import compile_program
from tpuc.errors import BackendError
from tpuc.report.cycles import count_cycles
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
    key = tpuc.backend.compile.compile_key
    libtpu = tmp_path / "libtpu.so"
    libtpu.write_bytes(b"one build")
    v5e = Target.parse("v5e")
    keys = [
        key(program(), CPU),
        key(program(5), CPU),
        key(program(), v5e),
        key(program(), Target.parse("v5p")),
        key(program(), v5e, libtpu),
        key(program(), v5e, libtpu, share_code=False),
    ]
    libtpu.write_bytes(b"another build")
    keys.append(key(program(), v5e, libtpu))
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/nowhere")
    keys.append(key(program(), CPU))
    assert len(set(keys)) == len(keys)


def _deep(layers: int = 8) -> bytes:
    """Layers that are computed alike."""
    matrix = "tensor<512x512xf32>"
    lines = [
        f"%{number + 1} = stablehlo.dot_general %{number}, %w{number}, contracting_dims = [1] x [0] "
        f": ({matrix}, {matrix}) -> {matrix}"
        for number in range(layers)
    ]
    arguments = ", ".join(f"%w{number}: {matrix}" for number in range(layers))
    body = "\n".join(lines).replace("%0,", "%x,")
    text = f"func.func @main(%x: {matrix}, {arguments}) -> {matrix} {{\n{body}\nreturn %{layers} : {matrix}\n}}"
    with mlir.make_context() as context:
        return mlir.to_portable(mlir.parse(text, context))


def test_libtpu_keeps_the_code_of_equal_operations_once(cache: Cache) -> None:
    target = Target.parse("v5e")
    each, once = (compile_program(_deep(), target, cache=cache, share_code=share) for share in (False, True))
    assert once.memory["code"] < each.memory["code"]
    assert count_cycles(once.hlo) == count_cycles(each.hlo)


def test_a_libtpu_that_cannot_share_code_is_not_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, str]] = []

    def refuse(*_: object, **options: str) -> object:
        asked.append(options)
        if options:
            raise BackendError(f"INVALID_ARGUMENT: No such compile option: '{next(iter(options))}'")
        return object()

    monkeypatch.setattr(xla_worker, "_client", MagicMock())
    monkeypatch.setattr(xla_worker, "_compile", refuse)
    monkeypatch.setattr(xla_worker, "_answer", lambda *_, **__: ({}, {}))
    fields = {"libtpu": "libtpu.so", "topology": "v5e", "share_code": True}
    assert xla_worker.compile_tpu(fields, {"program": b""}) == ({}, {})
    assert [len(options) for options in asked] == [1, 0]
