"""Latency on the CPU: eager PyTorch, torch.compile, and tpuc's artifact.

    python -m benchmarks.cpu

All three run in turn in one process, call by call, on the threads that each takes by itself. The first call, which
compiles where something is left to compile, is told apart.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import tpuc
from benchmarks import examples
from benchmarks.common import Column, Result, Row, ignore_known_warnings, publish, ratio_text, seconds_text
from tpuc import runtime
from tpuc.packaging import to_numpy

ROUNDS = 20
PROGRAMS: Mapping[str, Callable[[], examples.Example]] = {
    "BERT-base f32 1x128": examples.bert_base,
    "ResNet-50 f32 batch 1": examples.resnet50,
}

_COLUMNS = (
    Column(key="program", title="program"),
    Column(key="way", title="how"),
    Column(key="seconds", title="median", text=seconds_text),
    Column(key="ratio", title="to eager", text=ratio_text),
    Column(key="compile_seconds", title="compile", text=seconds_text),
    Column(key="first_seconds", title="first call", text=seconds_text),
)


def compare(example: examples.Example, folder: Path, rounds: int) -> list[Row]:
    """Runs a module in every way in turn; gives one row for each, with its time as a part of eager's."""
    module, inputs = example
    # Without this, a second benchmark would find what the first one compiled.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    inductor = torch.compile(module)
    start = time.perf_counter()
    tpuc.compile(module, kwargs=inputs, output=folder / "program.bin")
    compile_seconds = time.perf_counter() - start
    arrays = {name: to_numpy(tensor) for name, tensor in inputs.items()}
    with runtime.load(folder / "program.bin") as program, torch.inference_mode():
        ways: dict[str, Callable[[], Any]] = {
            "eager PyTorch": lambda: module(**inputs),
            "torch.compile": lambda: inductor(**inputs),
            "tpuc's artifact": lambda: program(**arrays),
        }
        first = {way: _seconds(call) for way, call in ways.items()}
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, call in ways.items():
                times[way].append(_seconds(call))
    medians = {way: statistics.median(each) for way, each in times.items()}
    return [
        {
            "way": way,
            "seconds": median,
            "ratio": median / medians["eager PyTorch"],
            "compile_seconds": compile_seconds if way == "tpuc's artifact" else None,
            "first_seconds": first[way],
        }
        for way, median in medians.items()
    ]


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> int:
    """Measures every program."""
    ignore_known_warnings()
    rows: list[Row] = []
    for name, make in PROGRAMS.items():
        with tempfile.TemporaryDirectory() as folder:
            rows += [{"program": name, **row} for row in compare(make(), Path(folder), ROUNDS)]
    title = f"Latency on {torch.get_num_threads()} CPU threads; medians of {ROUNDS} calls in turn"
    return publish("cpu", Result(title=title, columns=_COLUMNS, rows=rows))


if __name__ == "__main__":
    sys.exit(main())
