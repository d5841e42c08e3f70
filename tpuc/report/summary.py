"""The summary that ends a compile: targets, sizes, memory, cycles, and where the time went."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tpuc.runtime.manifest import Entry, ExecutableInfo, Manifest
from tpuc.targets import Target

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def bytes_text(count: int) -> str:
    """Writes a number of bytes for people: `13.5 GiB`."""
    if count < 1024:
        return f"{count} B"
    power = min(int(math.log(count, 1024)), len(_UNITS) - 1)
    return f"{count / 1024**power:.1f} {_UNITS[power]}"


def executables_table(manifest: Manifest) -> Table:
    """One row for each executable: its size, its HBM by kind and against the chip's, and its cycles.

    The sizes that it has room for, and its masks, stand only where sizes are named; the last column, the compiler's
    build, only where one target has several executables.
    """
    table = Table(box=None, pad_edge=False)
    if manifest.sizes:
        table.add_column("up to")
    table.add_column("target")
    for name in ("executable", "arguments", "temporaries", "outputs", "of HBM", "cycles", "time"):
        table.add_column(name, justify="right")
    if manifest.sizes:
        table.add_column("masks", justify="right")
    if _has_several_builds(manifest):
        table.add_column("compiler")
    for entry in manifest.entries:
        for executable in entry.executables:
            table.add_row(*_row(entry, executable, manifest))
    return table


def _has_several_builds(manifest: Manifest) -> bool:
    targets = [executable.target for entry in manifest.entries[:1] for executable in entry.executables]
    return len(targets) > len(set(targets))


def _row(entry: Entry, executable: ExecutableInfo, manifest: Manifest) -> Iterable[str]:
    memory = executable.memory
    size = manifest.sections[executable.section].size
    # Donated state is an argument and an output at once.
    output = memory["output"] - memory["alias"]
    total = memory["argument"] + memory["temp"] + output + memory["code"]
    chip = Target.parse(executable.target).chip
    cycles = executable.estimated_cycles
    if manifest.sizes:
        yield " ".join(f"{name}={size}" for name, size in entry.sizes.items())
    yield executable.target
    yield bytes_text(size)
    yield bytes_text(memory["argument"])
    yield bytes_text(memory["temp"])
    yield bytes_text(output)
    yield f"{total / chip.hbm_bytes:.1%}" if chip else "-"
    yield f"{cycles:,}" if cycles else "-"
    yield f"{cycles / chip.clock_hz * 1e3:.3g} ms" if cycles and chip and chip.clock_hz else "-"
    if manifest.sizes:
        yield str(entry.program(executable.program).masks)
    if _has_several_builds(manifest):
        yield compiler_text(executable.compiler)


def compiler_text(compiler: Mapping[str, str]) -> str:
    """Names a compiler build in short: the libtpu build's date, or jaxlib's version."""
    version = compiler.get("platform_version", "")
    for line in version.splitlines():
        if line.startswith("Built on "):
            return "libtpu of " + " ".join(line.split()[2:5])
    return f"jaxlib {compiler['jaxlib']}" if "jaxlib" in compiler else version


def stages_text(seconds: Mapping[str, float]) -> Text:
    """Where the time went: `export 1.2 s, lower 0.3 s, ...`."""
    return Text(", ".join(f"{name} {taken:.1f} s" for name, taken in seconds.items()))


def summary(manifest: Manifest, seconds: Mapping[str, float], notes: Iterable[str]) -> RenderableType:
    """What `tpuc compile` prints last."""
    weights = f"{manifest.model.parameters:,} parameters, weights {manifest.weights_mode}"
    parts: list[RenderableType] = [Text(f"{manifest.model.name}: {weights}"), executables_table(manifest)]
    if any(executable.estimated_cycles for entry in manifest.entries for executable in entry.executables):
        parts.append(Text("cycles and time are the compiler's estimates; nothing was run", style="dim"))
    parts += [Text(f"note: {note}") for note in notes]
    parts.append(stages_text(seconds))
    return Group(*parts)
