"""The table of the passes, apart from that of the chips: passes bring in PyTorch and JAX, seconds of imports."""

from __future__ import annotations

from rich.table import Table

from tpuc.passes import PIPELINE


def passes_table() -> Table:
    """The passes in the order of a compile, with the first sentence of what each says of itself."""
    table = Table(box=None, pad_edge=False)
    table.add_column("pass")
    table.add_column("what it does")
    for each in PIPELINE:
        doc = type(each).__doc__ or ""
        table.add_row(str(each), " ".join(doc.split("\n\n")[0].split()))
    return table
