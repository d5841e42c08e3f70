"""How good the compiled programs are, by the TPU compiler's own estimate.

    python -m benchmarks.program_quality

Each program is brought to StableHLO in several ways, by tpuc, by torch-mlir as it comes, and by hand in JAX, and
compiled for the same chip by the same libtpu. What counts is how many cycles the compiler says each takes. Nothing
is run.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch_mlir import fx
from torch_mlir.extras.fx_decomp_util import get_decomposition_table

import tpuc
from benchmarks import examples
from benchmarks.common import (
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
from benchmarks.native import bert, llama, resnet50
from tpuc import mlir
from tpuc.backend.compile import Executable, compile_program
from tpuc.passes import parse_pipeline, run_passes
from tpuc.report.cycles import count_cycles
from tpuc.report.summary import bytes_text
from tpuc.targets import Target

#: A JAX function and the shapes of its arguments.
ByHand = tuple[Callable[..., Any], tuple[Any, ...]]

#: XLA reads no arith constants, which torch-mlir leaves behind: without this much, nothing of it compiles.
_READABLE = "convert-arith"


@dataclass(frozen=True, kw_only=True)
class Program:
    """One program to compile in several ways.

    Attributes:
        name: What it is, with shapes and dtype.
        target: The chip.
        example: Makes the PyTorch module.
        by_hand: The same written in JAX, by how it is written; the first is what the others are held against.
        most_cycles: The most that tpuc's program may take, or None.
    """

    name: str
    target: str
    example: Callable[[], examples.Example]
    by_hand: Mapping[str, Callable[[], ByHand]]
    most_cycles: int | None = None


PROGRAMS = (
    Program(
        name="BERT-base f32 1x128",
        target="v5e",
        example=examples.bert_base,
        by_hand={"JAX by hand": lambda: bert.program(bert.BASE, batch=1, tokens=128, dtype=jnp.float32)},
        most_cycles=700_000,
    ),
    Program(
        name="ResNet-50 f32 batch 1",
        target="v5e",
        example=examples.resnet50,
        by_hand={
            "JAX by hand": lambda: resnet50.program(batch=1, dtype=jnp.float32, folded=False),
            "JAX by hand, folded": lambda: resnet50.program(batch=1, dtype=jnp.float32, folded=True),
        },
    ),
    Program(
        name="LLaMA-7B, 4 layers, bf16 1x512",
        target="v5p",
        example=examples.four_llama_layers,
        by_hand={
            "JAX by hand": lambda: llama.program(llama.LlamaConfig(layers=4), batch=1, tokens=512, dtype=jnp.bfloat16)
        },
    ),
)

_COLUMNS = (
    Column(key="program", title="program"),
    Column(key="way", title="how"),
    Column(key="cycles", title="cycles", text=count_text),
    Column(key="ratio", title="to by hand", text=ratio_text),
    Column(key="temp_bytes", title="temporaries", text=bytes_text),
    Column(key="code_bytes", title="code", text=bytes_text),
    Column(key="lower_seconds", title="to StableHLO", text=seconds_text),
    Column(key="compile_seconds", title="libtpu", text=seconds_text),
)


def with_tpuc(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor], target: str) -> Row:
    """Compiles a module with tpuc."""
    with tempfile.TemporaryDirectory() as folder:
        compiled = tpuc.compile(
            module, kwargs=inputs, targets=[target], weights="none", output=Path(folder) / "program.bin"
        )
    (made,) = compiled.executables
    stages = compiled.progress.seconds
    return _figures(
        made.executable, lower_seconds=sum(stages.values()) - stages["compile"], compile_seconds=made.seconds
    )


def with_torch_mlir(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor], target: str) -> Row:
    """Compiles a module with torch-mlir's own decompositions and pipelines, weights as arguments."""
    start = time.perf_counter()
    with torch.no_grad():
        program = torch.export.export(module, (), dict(inputs)).run_decompositions(get_decomposition_table())
    imported = fx.stateless_fx_import(program.graph_module, output_type="stablehlo")
    text = imported.operation.get_asm(enable_debug_info=False)
    with mlir.make_context() as context:
        readable = mlir.parse(text, context)
        run_passes(readable, parse_pipeline(_READABLE), Target.parse(target))
        lowered = mlir.to_portable(readable)
    return _compile(lowered, target, lower_seconds=time.perf_counter() - start)


def with_jax(function: Callable[..., Any], arguments: tuple[Any, ...], target: str) -> Row:
    """Compiles a JAX function."""
    start = time.perf_counter()
    # Lowering runs nothing; without this JAX would look for a TPU in this machine.
    jax.config.update("jax_platforms", "cpu")
    lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("tpu",))
    return _compile(lowered.as_text().encode(), target, lower_seconds=time.perf_counter() - start)


def _compile(program: bytes, target: str, *, lower_seconds: float) -> Row:
    start = time.perf_counter()
    executable = compile_program(program, Target.parse(target))
    return _figures(executable, lower_seconds=lower_seconds, compile_seconds=time.perf_counter() - start)


def _figures(executable: Executable, *, lower_seconds: float, compile_seconds: float) -> Row:
    return {
        "cycles": count_cycles(executable.hlo).estimated,
        "temp_bytes": executable.memory["temp"],
        "code_bytes": executable.memory["code"],
        "lower_seconds": lower_seconds,
        "compile_seconds": compile_seconds,
    }


def compare(program: Program) -> Iterator[Row]:
    """Compiles a program in every way; gives one row for each."""
    figures = {way: with_jax(*make(), program.target) for way, make in program.by_hand.items()}
    reference = next(iter(figures.values()))["cycles"]
    # Each way gets a module of its own: tpuc's takes the weights away.
    figures = {
        "tpuc": with_tpuc(*program.example(), program.target),
        "torch-mlir as is": with_torch_mlir(*program.example(), program.target),
        **figures,
    }
    for way, row in figures.items():
        name = f"{program.name}, {program.target}"
        yield {"program": name, "way": way, **row, "ratio": row["cycles"] / reference}


def main() -> int:
    """Compares every program."""
    ignore_known_warnings()
    rows: list[Row] = []
    limits = []
    for program in PROGRAMS:
        found = list(compare(program))
        rows += found
        if program.most_cycles:
            what = f"{program.name} by tpuc"
            limits.append(Limit(what=what, value=found[0]["cycles"], limit=program.most_cycles, unit="cycles"))
    title = "Programs by the TPU compiler's own estimate; nothing was run"
    return publish("program_quality", Result(title=title, columns=_COLUMNS, rows=rows, limits=limits))


if __name__ == "__main__":
    sys.exit(main())
