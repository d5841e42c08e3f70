"""What an artifact holds, for people."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tpuc.report.summary import bytes_text, executables_table
from tpuc.runtime.manifest import Manifest
from tpuc.runtime.sizes import SizeRange
from tpuc.runtime.spec import TensorSpec


def inspection(manifest: Manifest) -> RenderableType:
    """The model, its signature, what it keeps, its executables, and who made it."""
    weights = sum(spec.spec.nbytes for spec in manifest.weights)
    parts: list[RenderableType] = [
        Text(f"{manifest.model.name} from {manifest.model.source}"),
        Text(
            f"{manifest.model.parameters:,} parameters; {len(manifest.weights)} weights of {bytes_text(weights)}, "
            f"{manifest.weights_mode}" + (f" in {manifest.weights_file}" if manifest.weights_file else "")
        ),
        _signature(manifest),
        executables_table(manifest),
        *_products(manifest),
        Text("made by " + ", ".join(f"{name} {version}" for name, version in manifest.producer.items() if version)),
        Text(f"options: {', '.join(f'{name}={value}' for name, value in manifest.options.items())}"),
        Text(f"fingerprint {manifest.fingerprint}"),
    ]
    return Group(*parts)


def _products(manifest: Manifest) -> Iterable[Text]:
    """What is multiplied, and how precisely: once for each program."""
    for entry in manifest.entries:
        for program in entry.programs:
            if program.products:
                where = " ".join([", ".join(program.serves), *(f"{name}={size}" for name, size in entry.sizes.items())])
                counts = ", ".join(f"{count} {kind}" for kind, count in program.products.items())
                yield Text(f"products on {where}: {counts} precision")


def _signature(manifest: Manifest) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    kinds: tuple[tuple[str, Iterable[TensorSpec | SizeRange]], ...] = (
        ("input", manifest.inputs),
        ("state", [state.spec for state in manifest.state]),
        ("output", manifest.outputs),
        ("size", manifest.sizes),
    )
    for kind, specs in kinds:
        for row in _rows(kind, specs):
            table.add_row(*row)
    programs = [program for entry in manifest.entries_of() for program in entry.programs]
    if any(argument.kind == "seed" for program in programs for argument in program.arguments):
        table.add_row("random", "draws random numbers from a seed; equal seeds give equal results")
    return table


def _rows(kind: str, specs: Iterable[TensorSpec | SizeRange]) -> Iterable[tuple[str, Text]]:
    for spec in specs:
        # Not a string, in which [batch] would be taken for markup.
        yield kind, Text(str(spec))
