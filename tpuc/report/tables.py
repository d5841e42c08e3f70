"""The table of the chips, which imports nothing that takes long."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.table import Table

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
