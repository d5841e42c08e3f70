"""Finds the executable of an artifact that fits a device, or compiles one from the portable StableHLO."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tpuc.runtime.artifact import Artifact
from tpuc.runtime.cache import ExecutableCache
from tpuc.runtime.device import Device, LoadedExecutable, compiler_build, is_same_compiler
from tpuc.runtime.errors import ArtifactError, DeviceError, DeviceMemoryError, VersionSkewError
from tpuc.runtime.manifest import Entry, ExecutableInfo, Manifest, ProgramInfo
from tpuc.runtime.spec import TensorSpec

#: Where an executable came from.
Origin = Literal["artifact", "cache", "compiled"]


@dataclass(frozen=True, kw_only=True)
class Obtained:
    """An executable, the program that it was compiled from, and where it came from."""

    executable: LoadedExecutable
    program: ProgramInfo
    origin: Origin


def obtain(
    artifact: Artifact,
    entry: Entry,
    device: Device,
    *,
    recompile: bool,
    cache: ExecutableCache,
    notify: Callable[[str], None],
) -> Obtained:
    """Finds or makes the executable of an entry for a device.

    The artifact's own is taken if the device's compiler made it, bit for bit; then one that was compiled here before;
    else the portable StableHLO is compiled, and the result kept.

    Args:
        artifact: The artifact.
        entry: The entry.
        device: The device.
        recompile: Whether compiling, now or before, is allowed.
        cache: Keeps what is compiled.
        notify: Is told in one line why something is compiled.

    Raises:
        VersionSkewError: The executable was made by another compiler, or for another machine, and compiling is
            not allowed.
        ArtifactError: There is none for this device, and compiling is not allowed; or a section is damaged.
        DeviceError: The device refuses the program.
    """
    here = (device.platform, device.target)
    candidates = [info for info in entry.executables if (info.platform, info.target) == here]
    reason = _why_not(entry, candidates, device)
    for info in candidates:
        if not _fits(info, device):
            continue
        serialized, program = bytes(artifact.section(info.section)), entry.program(info.program)
        try:
            loaded = device.load(serialized, result_specs(artifact.manifest, entry, program))
            return Obtained(executable=loaded, program=program, origin="artifact")
        except DeviceMemoryError:
            raise
        except DeviceError as error:
            reason = f"its executable for {device.target} cannot be loaded ({error.what.splitlines()[0]})"
    if not recompile:
        kind = VersionSkewError if candidates else ArtifactError
        raise kind(reason, where=str(artifact.path), hint=f"Rebuild it: {rebuild_command(artifact, device)}")
    portable = entry.program_for(device.target, device.platform)
    if portable is None:
        raise ArtifactError(f"it has no portable program for {device.target}", where=str(artifact.path))
    results = result_specs(artifact.manifest, entry, portable)
    return _compile(artifact, portable, results, device, reason, cache, notify)


def result_specs(manifest: Manifest, entry: Entry, program: ProgramInfo) -> list[TensorSpec]:
    """What a program of an entry returns, in order."""
    outputs = {spec.name: spec.at(entry.sizes) for spec in manifest.outputs}
    states = {state.name: state.spec for state in manifest.state}
    return [(states if result.kind == "state" else outputs)[result.name] for result in program.results]


def rebuild_command(artifact: Artifact, device: Device) -> str:
    """Writes the command that compiles an artifact again, for its targets and a device's."""
    manifest = artifact.manifest
    targets = {info.target: None for entry in manifest.entries for info in entry.executables} | {device.target: None}
    options = [(name, value) for name, value in manifest.options.items() if name != "target"]
    options += [("target", target) for target in targets]
    flags = [part for name, value in options for part in ([f"--{name}", value] if value else [f"--{name}"])]
    return shlex.join(["tpuc", "compile", manifest.model.source, *flags, "-o", str(artifact.path)])


def _fits(info: ExecutableInfo, device: Device) -> bool:
    return is_same_compiler(device.compiler, info.compiler) and info.host == device.host


def _why_not(entry: Entry, candidates: Sequence[ExecutableInfo], device: Device) -> str:
    if not candidates:
        targets = sorted({info.target for info in entry.executables})
        return f"it has no executable for {device.target}" + (f", only for {', '.join(targets)}" if targets else "")
    for info in candidates:
        if is_same_compiler(device.compiler, info.compiler):
            return f"its executable for {device.target} is for the processor {info.host}, and this is {device.host}"
    made_by = " and ".join(_describe(info.compiler) for info in candidates)
    return f"its executable for {device.target} was made by {made_by}, and this host has {_describe(device.compiler)}"


def _describe(compiler: Mapping[str, str]) -> str:
    # A platform version names a build for a TPU, and says no more than `cpu` for the cpu.
    build = compiler_build(compiler.get("platform_version", "cpu"))
    parts = [f"{name} {value}" for name, value in compiler.items() if name != "platform_version"]
    return ", ".join(parts if build == "cpu" else [*parts, build]) or "an unknown compiler"


def _compile(
    artifact: Artifact,
    program: ProgramInfo,
    results: Sequence[TensorSpec],
    device: Device,
    reason: str,
    cache: ExecutableCache,
    notify: Callable[[str], None],
) -> Obtained:
    section = program.section
    key = cache.key(artifact.manifest.sections[section].sha256, device.target, device.compiler, device.host)
    kept = cache.read(key)
    if kept is not None:
        try:
            return Obtained(executable=device.load(kept, results), program=program, origin="cache")
        except DeviceError:
            pass  # An entry that cannot be loaded is as good as none, and is replaced below.
    notify(f"{artifact.path.name}: {reason}: compiling it from its portable StableHLO")
    executable = device.compile(bytes(artifact.section(section)), results)
    try:
        cache.write(key, executable.serialize())
    except (OSError, DeviceError) as error:
        notify(f"{artifact.path.name}: what was compiled is not kept: {error}")
    return Obtained(executable=executable, program=program, origin="compiled")
