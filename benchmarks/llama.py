"""What it takes to compile LLaMA-7B at full size for one TPU chip: time by stage, and memory.

    python -m benchmarks.llama

Memory is that of the command and all processes that it starts, together: the sum of their resident pages, read from
/proc ten times a second. Pages that processes share count once for each, so the figure is an upper bound.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import ROOT, Column, Limit, Result, Row, publish, seconds_text
from tpuc.report.summary import bytes_text

TARGET = "v5p"
SHAPES = "input_ids=i64[1,2048]"
SECONDS_LIMIT = 20.0
MEMORY_LIMIT = 4 * 10**9

_INTERVAL = 0.1
_STAGE = re.compile(r"^(\w+) ([\d.]+) s$", re.MULTILINE)
_RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)

_COLUMNS = (
    Column(key="what", title="LLaMA-7B bf16 1x2048 for v5p"),
    Column(key="seconds", title="time", text=seconds_text),
    Column(key="peak_bytes", title="peak memory", text=bytes_text),
)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A command that ran.

    Attributes:
        seconds: From its start to its end.
        peak_bytes: The most memory that it and its descendants held together.
        text: What it printed, standard error included.
    """

    seconds: float
    peak_bytes: int
    text: str


def watch(command: Sequence[str]) -> Finished:
    """Runs a command from the repository's root, and watches its memory.

    Raises:
        subprocess.CalledProcessError: It failed; what it printed is shown.
    """
    with tempfile.TemporaryFile("w+") as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        peak = 0
        while process.poll() is None:
            peak = max(peak, sum(map(_resident_bytes, _tree(process.pid))))
            time.sleep(_INTERVAL)
        seconds = time.perf_counter() - start
        output.seek(0)
        text = output.read()
    if process.returncode:
        sys.stderr.write(text)
        raise subprocess.CalledProcessError(process.returncode, command)
    return Finished(seconds=seconds, peak_bytes=peak, text=text)


def _tree(root: int) -> list[int]:
    """A process and its descendants."""
    found = [root]
    for pid in found:
        # A process may end while it is looked at.
        for children in _read_all(f"/proc/{pid}/task", "children"):
            found += map(int, children.split())
    return found


def _read_all(folder: str, name: str) -> list[str]:
    try:
        return [(task / name).read_text() for task in Path(folder).iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _resident_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = _RESIDENT.search(status)
    return int(found.group(1)) * 1024 if found else 0


def main() -> int:
    """Compiles once, from the command line."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tpuc.cli", "compile", "models/llama_7b.py", "--target", TARGET, "--no-cache"]
        finished = watch([*command, "--shapes", SHAPES, "--weights", "none", "-o", f"{folder}/llama.bin"])
    stages = [(name, float(seconds)) for name, seconds in _STAGE.findall(finished.text)]
    rows: list[Row] = [{"what": name, "seconds": seconds} for name, seconds in stages]
    rest = finished.seconds - sum(seconds for _, seconds in stages)
    rows.append({"what": "start, imports and end", "seconds": rest})
    rows.append({"what": "tpuc compile", "seconds": finished.seconds, "peak_bytes": finished.peak_bytes})
    limits = (
        Limit(what="the whole compile", value=finished.seconds, limit=SECONDS_LIMIT, unit="s"),
        Limit(what="peak memory", value=finished.peak_bytes, limit=MEMORY_LIMIT, unit="bytes"),
    )
    title = "Compiling at full size with no memory for weights"
    return publish("llama", Result(title=title, columns=_COLUMNS, rows=rows, limits=limits))


if __name__ == "__main__":
    sys.exit(main())
