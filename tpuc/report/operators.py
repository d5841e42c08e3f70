"""Tables of operators: all that have a lowering, and those that one program uses."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from tpuc.checking import Check
from tpuc.lowerings.native import NATIVE
from tpuc.lowerings.registry import REGISTRY, Lowering


def operators_json() -> list[dict[str, Any]]:
    """The registry, as values that JSON has: an object for each lowering."""
    return [
        {
            "operator": lowering.operator,
            "how": how_text(lowering),
            "why": lowering.why,
            "since": lowering.since,
            "place": lowering.place,
        }
        for lowering in REGISTRY
    ]


def operators_table() -> Table:
    """The registry, a row for each lowering."""
    table = Table(box=None, pad_edge=False)
    for name in ("operator", "how", "why", "since"):
        table.add_column(name)
    for lowering in REGISTRY:
        table.add_row(lowering.operator, how_text(lowering), lowering.why, lowering.since or "-")
    return table


def uses_table(check: Check) -> Table:
    """The operators of a program, a row each, the most frequent first."""
    heading = f"{check.model} for {', '.join(map(str, check.targets))}"
    table = Table(box=None, pad_edge=False, title=heading, title_justify="left")
    table.add_column("operator")
    table.add_column("count", justify="right")
    table.add_column("how")
    table.add_column("why, or the operators that it decomposes into")
    for use in check.uses:
        table.add_row(use.operator, str(use.count), use.how, Text(use.why))
    return table


def how_text(lowering: Lowering) -> str:
    """How an operator is lowered, in short: `jax`, `jax, for tpu`, or `torch-mlir or jax` where the call decides."""
    if lowering.platform:
        return f"jax, for {lowering.platform}"
    return "torch-mlir or jax" if lowering.operator in NATIVE else "jax"
