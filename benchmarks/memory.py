"""How much memory it takes to load a model of one gigabyte and run it once.

    python -m benchmarks.memory

Each way has a process of its own, whose peak memory the kernel tells (VmHWM in /proc/self/status: resident pages,
those of mapped files included). Peaks are held against the size of the weights.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

import tpuc
from benchmarks.common import BENCH, Column, Limit, Result, Row, publish, ratio_text, run_quietly
from tpuc.report.summary import bytes_text

#: Peak memory of loading an artifact and running it, to the size of its weights.
PEAK_LIMIT = 1.3
WIDTH = 4096
LAYERS = 16

_PRINT_PEAK = """
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) * 1024)
"""
_WITH_TPUC = """
import sys
import numpy as np
import tpuc.runtime
program = tpuc.runtime.load(sys.argv[1])
program(np.zeros((1, int(sys.argv[2])), np.float32))
"""
_WITH_PYTORCH = """
import sys
import torch
from safetensors.torch import load_file
width = int(sys.argv[2])
weights = load_file(sys.argv[1])
with torch.device("meta"):
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in weights))
model.load_state_dict(weights, assign=True)
with torch.inference_mode():
    model(torch.zeros(1, width))
"""

_COLUMNS = (
    Column(key="what", title="process"),
    Column(key="weights_bytes", title="weights", text=bytes_text),
    Column(key="peak_bytes", title="peak memory", text=bytes_text),
    Column(key="ratio", title="to the weights", text=ratio_text),
)


def make_files(folder: Path, *, width: int, layers: int) -> dict[str, tuple[str, Path]]:
    """Writes a model's weights as artifacts and as safetensors; gives the code that loads each, and its file."""
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
    embedded, external, plain = folder / "memory.bin", folder / "memory.external.bin", folder / "memory.safetensors"
    example = (torch.zeros(1, width),)
    tpuc.compile(model, example, output=embedded)
    tpuc.compile(model, example, weights="external", output=external)
    save_file(model.state_dict(), plain)
    return {
        "tpuc.runtime, artifact with its weights": (_WITH_TPUC, embedded),
        "tpuc.runtime, weights beside it": (_WITH_TPUC, external),
        "eager PyTorch, from safetensors": (_WITH_PYTORCH, plain),
    }


def peak(code: str, file: Path, width: int) -> int:
    """Runs code on a file in a new process, and returns the bytes of its peak memory."""
    return int(run_quietly([sys.executable, "-c", code + _PRINT_PEAK, str(file), str(width)]))


def compare(folder: Path, *, width: int, layers: int) -> list[Row]:
    """Loads and runs a model in every way; gives one row for each."""
    weights = 4 * width * width * layers
    rows: list[Row] = []
    for what, (code, file) in make_files(folder, width=width, layers=layers).items():
        found = peak(code, file, width)
        rows.append({"what": what, "weights_bytes": weights, "peak_bytes": found, "ratio": found / weights})
    return rows


def main() -> int:
    """Measures a model of one gigabyte."""
    BENCH.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BENCH) as folder:
        rows = compare(Path(folder), width=WIDTH, layers=LAYERS)
    limits = [Limit(what=f"{row['what']}: peak to weights", value=row["ratio"], limit=PEAK_LIMIT) for row in rows[:2]]
    title = "Loading a model and running it once"
    return publish("memory", Result(title=title, columns=_COLUMNS, rows=rows, limits=limits))


if __name__ == "__main__":
    sys.exit(main())
