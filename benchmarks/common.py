"""What the benchmarks share: a table on the screen, the same figures as JSON, and limits that are kept or not."""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tpuc.runtime.files import replacing

ROOT = Path(__file__).parents[1]
#: Where benchmarks leave what they make.
BENCH = ROOT / "build" / "bench"

#: Columns where the output is no terminal.
_PLAIN_WIDTH = 140

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes:
        key: The key of its values in the rows, with the unit where they have one: `temp_bytes`.
        title: What stands above it.
        text: Writes a value for people; a missing one is a dash.
    """

    key: str
    title: str
    text: Callable[[Any], str] = str


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A figure that must not exceed a limit.

    Attributes:
        what: What it is of: `import tpuc.runtime, against import torch`.
        value: The figure.
        limit: The most that it may be.
        unit: The unit of both.
    """

    what: str
    value: float
    limit: float
    unit: str = ""

    @property
    def kept(self) -> bool:
        """Whether the figure is within the limit."""
        return self.value <= self.limit

    def __str__(self) -> str:
        value, limit = (f"{each:,}" if isinstance(each, int) else f"{each:.3g}" for each in (self.value, self.limit))
        return f"{'kept' if self.kept else 'NOT KEPT'}: {self.what}: {value} of at most {limit} {self.unit}".rstrip()


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a benchmark found in one run.

    Attributes:
        title: What stands above the table.
        columns: The columns.
        rows: The figures.
        limits: What must be kept.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    limits: Sequence[Limit] = ()


def ignore_known_warnings() -> None:
    """Keeps warnings off the screen that no reader of a table can do anything about."""
    # torch 2.13 copies its own deprecated class when it decomposes an exported program.
    warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)


def publish(name: str, result: Result, folder: Path = BENCH) -> int:
    """Prints a result and writes it to `<name>.json`.

    Returns:
        The exit code: 1 if a limit is not kept.
    """
    console = Console()
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    console.print(_table(result))
    for limit in result.limits:
        console.print(str(limit), highlight=False)
    folder.mkdir(parents=True, exist_ok=True)
    figures = {"title": result.title, "rows": result.rows, "limits": list(map(dataclasses.asdict, result.limits))}
    with replacing(folder / f"{name}.json") as replacement:
        replacement.file.write(json.dumps(figures, indent=2).encode() + b"\n")
    return 0 if all(limit.kept for limit in result.limits) else 1


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Writes a table for a document, a line for each row."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _table(result: Result) -> Table:
    table = Table(title=result.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in result.columns:
        table.add_column(column.title, justify="left" if column.text is str else "right")
    for row in result.rows:
        table.add_row(*(cell(column, row) for column in result.columns))
    return table


def cell(column: Column, row: Row) -> str:
    """Writes what a row has in a column for people."""
    value = row.get(column.key)
    return "-" if value is None else column.text(value)


def seconds_text(seconds: float) -> str:
    """Writes a time for people: `12.3 s`, `45.6 ms`."""
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def ratio_text(ratio: float) -> str:
    """Writes a ratio for people: `0.34x`."""
    return f"{ratio:.2f}x"


def count_text(count: int) -> str:
    """Writes a whole number for people: `638,162`."""
    return f"{count:,}"


def alternate(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, float]:
    """Runs commands in turn, so often, so that what else the machine does falls on all of them alike.

    Returns:
        The median time of each, in seconds from the start of its process to its end.

    Raises:
        subprocess.CalledProcessError: A command failed; its standard error is shown.
    """
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            start = time.perf_counter()
            run_quietly(command)
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(each) for name, each in times.items()}


def run_quietly(command: Sequence[str]) -> str:
    """Runs a command from the repository's root, and returns what it prints.

    Raises:
        subprocess.CalledProcessError: It failed; its standard error is shown.
    """
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if finished.returncode:
        sys.stderr.write(finished.stderr)
    finished.check_returncode()
    return finished.stdout
