"""Tests of finding or making the executable that fits a device."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tpuc.runtime.artifact import write_artifact
from tpuc.runtime.device import Device
from tpuc.runtime.errors import ArtifactError, DeviceError, DeviceMemoryError, VersionSkewError
from tpuc.runtime.executor import load

from .sample_artifacts import (
    COUNTER,
    INPUT,
    WEIGHT,
    counter_manifest,
    counter_sections,
    plugin_device_name,
    portable,
    with_executable,
    write_counter,
)

HERE = Path(__file__).parent


class Told:
    """Collects what the runtime says."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def told() -> Told:
    return Told()


def write_with(path: Path, device: Device, **changes: Any) -> Path:
    """Writes COUNTER with an executable that claims to be another."""
    write_artifact(path, *with_executable(counter_manifest(), counter_sections(), device, **changes))
    return path


def assert_runs(program: Any) -> None:
    np.testing.assert_allclose(program(INPUT, 1), INPUT @ WEIGHT + 10, rtol=1e-6)


def test_the_artifacts_own_is_taken(tmp_path: Path, device: Device, told: Told) -> None:
    path = write_counter(tmp_path / "a.bin", device)
    program = load(path, device=device, recompile=False, cache_dir=tmp_path / "cache", notify=told)
    assert program.stats().executable == "artifact"
    assert_runs(program)
    assert told.lines == []
    assert not (tmp_path / "cache").exists()


def test_without_one_it_is_compiled_once_and_kept(tmp_path: Path, device: Device, told: Told) -> None:
    path = write_counter(tmp_path / "a.bin")
    origins = []
    for _ in range(2):
        program = load(path, device=device, cache_dir=tmp_path / "cache", notify=told)
        origins.append(program.stats().executable)
        assert_runs(program)
    assert origins == ["compiled", "cache"]
    assert told.lines == ["a.bin: it has no executable for cpu: compiling it from its portable StableHLO"]


def test_the_cache_is_the_users_own_by_default(tmp_path: Path, cpu: Device, cache_home: Path, told: Told) -> None:
    load(write_counter(tmp_path / "a.bin"), device=cpu, notify=told)
    assert len(list((cache_home / "tpuc").iterdir())) == 1


def test_by_default_a_warning_is_logged(tmp_path: Path, cpu: Device, caplog: pytest.LogCaptureFixture) -> None:
    load(write_counter(tmp_path / "a.bin"), device=cpu)
    assert [(record.name, record.levelname) for record in caplog.records] == [("tpuc.runtime", "WARNING")]


def test_another_compiler_means_compiling_again(tmp_path: Path, cpu: Device, told: Told) -> None:
    path = write_with(tmp_path / "a.bin", cpu, compiler={"jaxlib": "0.0.1", "platform_version": "cpu"})
    program = load(path, device=cpu, notify=told)
    assert program.stats().executable == "compiled"
    assert_runs(program)
    (line,) = told.lines
    assert "its executable for cpu was made by jaxlib 0.0.1, and this host has jaxlib 0.10" in line
    assert "\n" not in line


def test_another_compiler_is_an_error_if_compiling_is_forbidden(tmp_path: Path, cpu: Device) -> None:
    path = write_with(tmp_path / "a.bin", cpu, compiler={"jaxlib": "0.0.1"})
    with pytest.raises(VersionSkewError) as caught:
        load(path, device=cpu, recompile=False)
    assert "made by jaxlib 0.0.1, and this host has jaxlib 0.10" in caught.value.what
    command = f"tpuc compile counter.py:Counter --shapes 'x=f32[2,4] step=i32[]' --target cpu -o {path}"
    assert caught.value.hint == f"Rebuild it: {command}"


def test_the_command_to_rebuild_gives_flags_no_value(tmp_path: Path, cpu: Device) -> None:
    manifest = replace(counter_manifest(), options={"weights": "none", "training": ""})
    write_artifact(tmp_path / "a.bin", manifest, counter_sections())
    with pytest.raises(ArtifactError, match=r"--weights none --training --target cpu -o"):
        load(tmp_path / "a.bin", device=cpu, recompile=False)


def test_the_command_to_rebuild_keeps_the_other_targets(tmp_path: Path, cpu: Device) -> None:
    path = write_with(tmp_path / "a.bin", cpu, target="v5e", platform="tpu")
    with pytest.raises(ArtifactError, match="--target v5e --target cpu -o"):
        load(path, device=cpu, recompile=False)


def test_too_little_memory_is_not_taken_for_skew(tmp_path: Path, cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise DeviceMemoryError("the program does not fit")

    path = write_counter(tmp_path / "a.bin", cpu)
    monkeypatch.setattr(cpu, "load", refuse)
    with pytest.raises(DeviceMemoryError, match="does not fit"):
        load(path, device=cpu)


def test_another_processor_means_compiling_again(tmp_path: Path, cpu: Device, told: Told) -> None:
    path = write_with(tmp_path / "a.bin", cpu, host="x86_64-000000000000")
    assert_runs(load(path, device=cpu, notify=told))
    assert "is for the processor x86_64-000000000000, and this is" in told.lines[0]
    with pytest.raises(VersionSkewError, match="is for the processor"):
        load(path, device=cpu, recompile=False)


def test_no_executable_is_an_error_if_compiling_is_forbidden(tmp_path: Path, cpu: Device) -> None:
    with pytest.raises(ArtifactError, match=r"(?s)it has no executable for cpu.*Rebuild it: tpuc compile"):
        load(write_counter(tmp_path / "a.bin"), device=cpu, recompile=False)


def test_one_for_another_target_is_not_taken(tmp_path: Path, cpu: Device, told: Told) -> None:
    path = write_with(tmp_path / "a.bin", cpu, target="v5e", platform="tpu")
    assert_runs(load(path, device=cpu, notify=told))
    assert "it has no executable for cpu, only for v5e" in told.lines[0]


def test_the_plugins_and_jaxlibs_are_told_apart(tmp_path: Path, cpu: Device, plugin: Device, told: Told) -> None:
    path = write_counter(tmp_path / "a.bin", cpu)
    assert_runs(load(path, device=plugin, notify=told))
    assert "made by jaxlib 0.10.2, and this host has plugin xla_cpu_pjrt.so" in told.lines[0]


def test_of_several_for_one_target_the_one_that_fits_is_taken(tmp_path: Path, cpu: Device, told: Told) -> None:
    manifest, sections = with_executable(counter_manifest(), counter_sections(), cpu)
    (entry,) = manifest.entries
    (info,) = entry.executables
    others = tuple(
        replace(info, section=f"executable/cpu.{version}", compiler={"jaxlib": version})
        for version in ("0.0.1", "9.9.9")
    )
    sections |= {other.section: b"of another build" for other in others}
    entry = replace(entry, executables=(others[0], info, others[1]))
    write_artifact(tmp_path / "a.bin", replace(manifest, entries=(entry,)), sections)
    program = load(tmp_path / "a.bin", device=cpu, recompile=False, notify=told)
    assert_runs(program)
    entry = replace(entry, executables=others)
    del sections[info.section]
    write_artifact(tmp_path / "b.bin", replace(manifest, entries=(entry,)), sections)
    with pytest.raises(VersionSkewError, match=r"made by jaxlib 0.0.1 and jaxlib 9.9.9"):
        load(tmp_path / "b.bin", device=cpu, recompile=False)


def test_one_that_cannot_be_loaded_means_compiling_again(tmp_path: Path, device: Device, told: Told) -> None:
    manifest, sections = with_executable(counter_manifest(), counter_sections(), device)
    sections["executable/cpu"] = b"no executable"
    write_artifact(tmp_path / "a.bin", manifest, sections)
    assert_runs(load(tmp_path / "a.bin", device=device, notify=told))
    assert "its executable for cpu cannot be loaded" in told.lines[0]
    with pytest.raises(VersionSkewError, match="cannot be loaded"):
        load(tmp_path / "a.bin", device=device, recompile=False)


@pytest.mark.parametrize("content", [b"", b"damaged", "unloadable"])
def test_a_damaged_cache_entry_is_replaced(tmp_path: Path, cpu: Device, told: Told, content: bytes | str) -> None:
    path = write_counter(tmp_path / "a.bin")
    cache = tmp_path / "cache"
    load(path, device=cpu, cache_dir=cache, notify=told)
    (entry,) = cache.iterdir()
    good = entry.read_bytes()
    if isinstance(content, str):
        # A hash that fits, over something that is no executable.
        content = hashlib.sha256(content.encode()).digest() + content.encode()
    entry.write_bytes(content)
    program = load(path, device=cpu, cache_dir=cache, notify=told)
    assert program.stats().executable == "compiled"
    assert_runs(program)
    assert len(entry.read_bytes()) == len(good)
    assert load(path, device=cpu, cache_dir=cache, notify=told).stats().executable == "cache"


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, cpu: Device, told: Told) -> None:
    (tmp_path / "file").touch()
    program = load(write_counter(tmp_path / "a.bin"), device=cpu, cache_dir=tmp_path / "file", notify=told)
    assert_runs(program)
    assert len(told.lines) == 2
    assert "is not kept" in told.lines[1]


def test_two_processes_at_once_share_a_cache(tmp_path: Path) -> None:
    path = write_counter(tmp_path / "a.bin")
    program = textwrap.dedent(
        f"""
        import sys
        import numpy as np
        from tpuc.runtime import load
        sys.stdin.readline()
        program = load({str(path)!r}, cache_dir={str(tmp_path / "cache")!r}, notify=lambda line: None)
        print(program.stats().executable, program(np.zeros((2, 4), np.float32), 1)[0, 0])
        """
    )
    children = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    outputs = [child.communicate()[0].split() for child in children]
    assert all(origin in ("compiled", "cache") and value == "10.0" for origin, value in outputs)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_platforms_own_program_is_preferred(tmp_path: Path, cpu: Device, told: Told) -> None:
    manifest, sections = counter_manifest(), counter_sections()
    (entry,) = manifest.entries
    (others,) = entry.programs
    entry = replace(entry, programs=(others, replace(others, section="program/cpu", serves=("cpu",))))
    sections["program/cpu"] = portable(COUNTER)
    sections["program/main"] = b"for others"
    write_artifact(tmp_path / "a.bin", replace(manifest, entries=(entry,)), sections)
    assert_runs(load(tmp_path / "a.bin", device=cpu, notify=told))


def test_no_program_for_the_platform_is_an_error(tmp_path: Path, cpu: Device, told: Told) -> None:
    manifest, sections = counter_manifest(), counter_sections()
    (entry,) = manifest.entries
    entry = replace(entry, programs=(replace(entry.programs[0], serves=("tpu", "v5e")),))
    write_artifact(tmp_path / "a.bin", replace(manifest, entries=(entry,)), sections)
    with pytest.raises(ArtifactError, match="no portable program for cpu"):
        load(tmp_path / "a.bin", device=cpu, notify=told)


def test_a_program_that_does_not_compile_is_a_device_error(tmp_path: Path, cpu: Device, told: Told) -> None:
    write_artifact(tmp_path / "a.bin", counter_manifest(), {**counter_sections(), "program/main": b"no program"})
    with pytest.raises(DeviceError, match="failed to compile the program"):
        load(tmp_path / "a.bin", device=cpu, notify=told)


def test_the_plugin_is_opened_by_its_path(tmp_path: Path, told: Told) -> None:
    assert_runs(load(write_counter(tmp_path / "a.bin"), device=plugin_device_name(), notify=told))
