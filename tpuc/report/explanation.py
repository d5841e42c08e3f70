"""What the passes did to a program: `tpuc compile --explain`."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tpuc.dims import Bucket, bucket_name
from tpuc.passes import PassReport
from tpuc.targets import Target


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What the passes did to the program of one target.

    Attributes:
        target: The target.
        bucket: What the sizes may be.
        passes: What each pass did, in order.
        cycles_before: The estimate for the program as it was lowered, with nothing done but what XLA needs to read
            it; None where the compiler makes none or refuses the program.
        cycles_after: The estimate for the program that was compiled; None where the compiler makes none.
        fill_before: Which part of the tiles its products filled as it was lowered (`tile_fill`); None for the CPU, and
            where there are none.
        fill_after: The same of the program that was compiled.
    """

    target: Target
    bucket: Bucket
    passes: tuple[PassReport, ...]
    cycles_before: int | None
    cycles_after: int | None
    fill_before: float | None = None
    fill_after: float | None = None


def explanation_report(explanation: Explanation) -> RenderableType:
    """One row for each pass: how often its rules fired and how long it took; then the estimates."""
    title = " ".join(filter(None, (str(explanation.target), bucket_name(explanation.bucket))))
    table = Table(box=None, pad_edge=False)
    table.add_column("pass")
    table.add_column("rewrites", justify="right")
    table.add_column("time", justify="right")
    table.add_column("by rule")
    for report in explanation.passes:
        rules = sorted(report.rewrites.items(), key=lambda item: (-item[1], item[0]))
        total = sum(report.rewrites.values())
        counted = ", ".join(f"{rule} {count}" for rule, count in rules)
        table.add_row(report.text, f"{total:,}" if total else "-", f"{report.seconds:.2f} s", counted)
    lines = [_estimates(explanation), *_waste(explanation)]
    return Group(Text(f"the passes for {title}"), table, *map(Text, lines))


def _waste(explanation: Explanation) -> list[str]:
    """What is multiplied for nothing, since products do not fill the hardware's tiles."""
    before, after = explanation.fill_before, explanation.fill_after
    if before is None or after is None:
        return []
    return [f"products leave {1 - before:.1%} of their tiles empty as it was lowered, {1 - after:.1%} after the passes"]


def _estimates(explanation: Explanation) -> str:
    before, after = explanation.cycles_before, explanation.cycles_after
    if after is None:
        return "no estimate: the compiler for this target makes none"
    if before is None:
        return f"estimated cycles: {after:,}; the program as it was lowered cannot be compiled"
    return f"estimated cycles: {before:,} as it was lowered, {after:,} after the passes, {after / before:.2f} of them"
