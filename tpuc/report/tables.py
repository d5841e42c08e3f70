"""Tables of what there is: chips, passes and operators."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.table import Table

from tpuc.checking import Check
from tpuc.lowerings.native import NATIVE
from tpuc.lowerings.registry import REGISTRY, Lowering
from tpuc.passes import PIPELINE
from tpuc.report.summary import bytes_text
from tpuc.targets import CHIPS


def chips_json() -> list[dict[str, Any]]:
    """The chips, as values that JSON has."""
    return [dataclasses.asdict(chip) for chip in CHIPS]


def chips_table() -> Table:
    """The chips, a row each; figures are for one device, as the compiler counts devices."""
    table = Table(box=None, pad_edge=False, caption="cpu is this machine. Figures are for one device.")
    table.add_column("target")
    for name in ("devices/chip", "HBM", "GB/s", "bf16 TFLOP/s", "VMEM", "MXU", "clock"):
        table.add_column(name, justify="right")
    for chip in CHIPS:
        table.add_row(
            chip.name,
            str(chip.devices_per_chip),
            f"{chip.hbm_bytes / 1e9:.1f} GB",
            f"{chip.hbm_bytes_per_second / 1e9:,.0f}",
            f"{chip.peak_flops_per_second['bf16'] / 1e12:,.0f}",
            bytes_text(chip.vmem_bytes),
            f"{chip.mxu_columns}x{chip.mxu_columns}",
            f"{chip.clock_hz / 1e9:.2f} GHz" if chip.clock_hz else "-",
        )
    return table


def passes_table() -> Table:
    """The passes in the order of a compile, with the first sentence of what each says of itself."""
    table = Table(box=None, pad_edge=False)
    table.add_column("pass")
    table.add_column("what it does")
    for each in PIPELINE:
        doc = type(each).__doc__ or ""
        table.add_row(str(each), " ".join(doc.split("\n\n")[0].split()))
    return table


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
        table.add_row(use.operator, str(use.count), use.how, use.why)
    return table


def how_text(lowering: Lowering) -> str:
    """How an operator is lowered, in short: `jax`, `jax, for tpu`, or `torch-mlir or jax` where the call decides."""
    if lowering.platform:
        return f"jax, for {lowering.platform}"
    return "torch-mlir or jax" if lowering.operator in NATIVE else "jax"
