"""What programs of any size cost: against static ones at the same size, and against eager and torch.compile.

    python -m benchmarks.dynamic

At the size that a bucket has room for nothing is padding, and what is left is the cost of masks: the estimated cycles
on a v5e, against those of the program that was compiled for this size alone. On the CPU, the latency of MiniLM at
several sizes, with the compiles that each way makes while it runs.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel

import tpuc
from benchmarks.common import (
    ROOT,
    Column,
    Limit,
    Result,
    Row,
    count_text,
    ignore_known_warnings,
    publish,
    ratio_text,
    seconds_text,
)
from tpuc.loader import load_model
from tpuc.packaging import to_numpy

TARGET = "v5e"
#: The most that masks may cost, of the cycles of the static program.
MOST = 1.05
#: The sizes whose latency is measured, in an order in which they come and go, and how often.
SIZES = (64, 7, 128, 33, 1, 100, 17, 50)
CALLS = 5

_COLUMNS = (
    Column(key="what", title="program"),
    Column(key="static_cycles", title="static cycles", text=count_text),
    Column(key="cycles", title="any size", text=count_text),
    Column(key="ratio", title="ratio", text=ratio_text),
    Column(key="masks", title="masks", text=count_text),
    Column(key="tpuc", title="tpuc", text=seconds_text),
    Column(key="eager", title="eager", text=seconds_text),
    Column(key="compiled", title="torch.compile", text=seconds_text),
    Column(key="graphs", title="its compiles so far", text=count_text),
)


class _Hidden(torch.nn.Module):
    """A model of transformers that returns its last hidden state."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model


class Masked(_Hidden):
    """One that takes tokens and a mask."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        """Takes i64[batch, seq] twice."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


class Causal(_Hidden):
    """One that takes tokens only."""

    def forward(self, input_ids: torch.Tensor) -> Any:
        """Takes i64[batch, seq]."""
        return self.model(input_ids=input_ids, use_cache=False).last_hidden_state


def minilm() -> torch.nn.Module:
    """MiniLM with its trained weights."""
    loaded = load_model(str(ROOT / "models" / "minilm.py"))
    assert isinstance(loaded.program, torch.nn.Module)
    return Masked(loaded.program.get_submodule("encoder")).eval()


def bert_base() -> torch.nn.Module:
    """BERT-base with random weights."""
    return Masked(BertModel(BertConfig())).eval()


def llama() -> torch.nn.Module:
    """A LLaMA of two layers of half the width of the 7B model."""
    return Causal(LlamaModel(LlamaConfig(hidden_size=2048, num_hidden_layers=2, num_attention_heads=16))).eval()


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program to compile for one size, and for any size up to it.

    Attributes:
        name: What it is.
        make: Makes the module.
        inputs: The inputs of a call, all i64[batch,seq].
        tokens: The size.
    """

    name: str
    make: Callable[[], torch.nn.Module]
    inputs: tuple[str, ...]
    tokens: int

    def shapes(self, dims: str) -> str:
        """Writes the inputs' shapes."""
        return " ".join(f"{name}=i64[{dims}]" for name in self.inputs)


PROGRAMS = (
    Program(name="MiniLM f32 1x128", make=minilm, inputs=("input_ids", "attention_mask"), tokens=128),
    Program(name="BERT-base f32 1x128", make=bert_base, inputs=("input_ids", "attention_mask"), tokens=128),
    Program(name="LLaMA, 2 layers, f32 1x512", make=llama, inputs=("input_ids",), tokens=512),
)


def main() -> int:
    """Compiles, measures and prints."""
    ignore_known_warnings()
    with tempfile.TemporaryDirectory() as folder:
        rows = [_cycles(program, Path(folder)) for program in PROGRAMS]
        limits = [
            Limit(what=f"{row['what']}, against the static program", value=row["ratio"], limit=MOST, unit="x")
            for row in rows
        ]
        latencies, compiles = _latencies(Path(folder))
    limits.append(Limit(what="compiles after load", value=compiles, limit=0))
    title = f"Programs of any size: cycles on {TARGET}; median latency of MiniLM on the CPU"
    return publish("dynamic", Result(title=title, columns=_COLUMNS, rows=[*rows, *latencies], limits=limits))


def _cycles(program: Program, folder: Path) -> dict[str, Any]:
    module = program.make()
    options: Mapping[str, Any] = {"targets": [TARGET], "weights": "external", "output": folder / "program.bin"}
    static = tpuc.compile(module, shapes=program.shapes(f"1,{program.tokens}"), **options)
    dynamic = tpuc.compile(
        module,
        shapes=program.shapes("1,seq"),
        dims=f"seq=1..{program.tokens}",
        buckets=f"seq={program.tokens}",
        **options,
    )
    before, after = (compiled.executables[0].cycles.total for compiled in (static, dynamic))
    (entry,) = dynamic.manifest.entries
    return {
        "what": program.name,
        "static_cycles": before,
        "cycles": after,
        "ratio": after / before,
        "masks": max(each.masks for each in entry.programs),
    }


def _latencies(folder: Path) -> tuple[list[Row], int]:
    """Calls MiniLM at each size: the artifact, eager, and torch.compile with dynamic shapes.

    Returns:
        The latencies, and how often the artifact's program was compiled after load.
    """
    module = minilm()
    artifact = folder / "minilm.bin"
    shapes = "input_ids=i64[1,seq] attention_mask=i64[1,seq]"
    tpuc.compile(module, shapes=shapes, dims="seq=1..128", buckets="seq=16,32,64,128", output=artifact)
    compiled = torch.compile(module, dynamic=True)
    rows = []
    with tpuc.runtime.load(artifact, recompile=False) as program, torch.no_grad():
        for size in SIZES:
            tokens = [torch.randint(0, 30000, (1, size)), torch.ones(1, size, dtype=torch.int64)]
            arrays = list(map(to_numpy, tokens))
            row: dict[str, Any] = {"what": f"MiniLM f32 1x{size}"}
            row["tpuc"] = _median_seconds(program, arrays)
            row["eager"] = _median_seconds(module, tokens)
            row["compiled"] = _median_seconds(compiled, tokens)
            row["graphs"] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
            rows.append(row)
        stats = program.stats()
    return rows, 0 if stats.executable == "artifact" else len(stats.buckets)


def _median_seconds(function: Callable[..., object], arguments: Sequence[Any]) -> float:
    seconds = []
    for _ in range(CALLS):
        start = time.perf_counter()
        function(*arguments)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


if __name__ == "__main__":
    sys.exit(main())
