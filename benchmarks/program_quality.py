"""How good the compiled programs are, by the TPU compiler's own estimate.

    python -m benchmarks.program_quality
    python -m benchmarks.program_quality --program sdxl-unet
    python -m benchmarks.program_quality --only-write    # docs/program_quality.md, without measuring

Each program is brought to StableHLO in several ways, by tpuc, by torch-mlir and by torchax as they come, and by hand in
JAX, and compiled for the same chip by the same libtpu. What counts is how many cycles the compiler says each takes; a
Mosaic kernel, of which it says nothing, is counted at twice its roofline. Nothing is run.

The roofline of a program is max(FLOPs of its products / peak, bytes of its arguments and results / bandwidth): what the
chip cannot do without. FLOPs are PyTorch's own count. More than 100% of it is possible: of a table of embeddings only
some rows are read, and the compiler's estimate leaves out what is fetched while something else is computed.

The figures are kept in docs/program_quality.json, which other programs' stay in when one is measured again.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import jax
import jax.numpy as jnp
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from torch_mlir import fx
from torch_mlir.extras.fx_decomp_util import get_decomposition_table

import tpuc
from benchmarks import examples
from benchmarks.common import (
    ROOT,
    Column,
    Limit,
    Result,
    Row,
    cell,
    count_text,
    ignore_known_warnings,
    markdown_table,
    publish,
    ratio_text,
    seconds_text,
)
from benchmarks.native import bert, llama, resnet50
from benchmarks.torchax_export import to_jax
from tpuc import mlir
from tpuc.backend.compile import Executable, compile_program
from tpuc.fake import fake_weights
from tpuc.passes import parse_pipeline, run_passes
from tpuc.report.cycles import count_cycles
from tpuc.report.summary import bytes_text
from tpuc.runtime.files import replacing
from tpuc.targets import Target

#: A JAX function and the shapes of its arguments.
ByHand = tuple[Callable[..., Any], tuple[Any, ...]]

#: XLA reads no arith constants, which torch-mlir leaves behind: without this much, nothing of it compiles.
_READABLE = "convert-arith"
_MIB = 1 << 20
FIGURES = ROOT / "docs" / "program_quality.json"
DOCUMENT = FIGURES.with_suffix(".md")
#: What the figures depend on, beside this repository.
_PACKAGES = ("torch", "jax", "jaxlib", "libtpu", "torch-mlir", "torchax")


@dataclass(frozen=True, kw_only=True)
class Program:
    """One program to compile in several ways.

    Attributes:
        name: What `--program` calls it.
        title: What it is, with shapes and dtype.
        target: The chip.
        example: Makes the PyTorch module.
        by_hand: The same written in JAX, by how it is written.
        fails: The ways that do not get through, and where they stop.
        most: The most that tpuc's program may take, by the key of a figure.
    """

    name: str
    title: str
    target: str
    example: Callable[[], examples.Example]
    by_hand: Mapping[str, Callable[[], ByHand]] = field(default_factory=dict)
    fails: Mapping[str, str] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)


def _resnet50(*, batch: int, dtype: Any) -> Mapping[str, Callable[[], ByHand]]:
    return {
        "JAX by hand": lambda: resnet50.program(batch=batch, dtype=dtype, folded=False),
        "JAX by hand, folded": lambda: resnet50.program(batch=batch, dtype=dtype, folded=True),
    }


PROGRAMS = (
    Program(
        name="bert-base",
        title="BERT-base f32 1x128",
        target="v5e",
        example=examples.bert_base,
        by_hand={"JAX by hand": lambda: bert.program(bert.BASE, batch=1, tokens=128, dtype=jnp.float32)},
        most={"total_cycles": 575_000},
    ),
    Program(
        name="bert-large",
        title="BERT-large bf16 8x512",
        target="v5p",
        example=examples.bert_large,
        by_hand={"JAX by hand": lambda: bert.program(bert.LARGE, batch=8, tokens=512, dtype=jnp.bfloat16)},
        most={"total_cycles": 27_400_000},
    ),
    Program(
        name="resnet50",
        title="ResNet-50 f32 batch 1",
        target="v5e",
        example=examples.resnet50,
        by_hand=_resnet50(batch=1, dtype=jnp.float32),
        most={"total_cycles": 390_000},
    ),
    Program(
        name="resnet50-v4",
        title="ResNet-50 bf16 batch 64",
        target="v4",
        example=examples.resnet50_batch,
        by_hand=_resnet50(batch=64, dtype=jnp.bfloat16),
        most={"total_cycles": 13_995_399},
    ),
    Program(
        name="resnet50-v5p",
        title="ResNet-50 bf16 batch 64",
        target="v5p",
        example=examples.resnet50_batch,
        by_hand=_resnet50(batch=64, dtype=jnp.bfloat16),
        most={"total_cycles": 7_200_231},
    ),
    Program(
        name="llama-7b",
        title="LLaMA-7B bf16 1x2048",
        target="v5p",
        example=examples.llama_7b,
        by_hand={
            "JAX by hand": lambda: llama.program(llama.LlamaConfig(), batch=1, tokens=2048, dtype=jnp.bfloat16),
            "JAX by hand, flash": lambda: llama.program(
                llama.LlamaConfig(), batch=1, tokens=2048, dtype=jnp.bfloat16, flash=True
            ),
        },
        most={"total_cycles": 150_000_000, "temp_bytes": 200 * _MIB},
    ),
    Program(
        name="sdxl-unet",
        title="SDXL UNet bf16 4x128x128",
        target="v5p",
        example=examples.sdxl_unet,
        fails={"torch-mlir as is": "stops at aten.upsample_nearest2d"},
        most={"total_cycles": 400_000_000, "temp_bytes": 2500 * _MIB, "code_bytes": 150 * _MIB, "seconds": 150},
    ),
)


def _percent_text(fraction: float) -> str:
    return f"{fraction:.0%}"


_COLUMNS = (
    Column(key="title", title="program"),
    Column(key="way", title="how"),
    Column(key="total_cycles", title="cycles", text=count_text),
    Column(key="kernel_cycles", title="in kernels", text=count_text),
    Column(key="ratio", title="to best", text=ratio_text),
    Column(key="roofline", title="roofline", text=_percent_text),
    Column(key="temp_bytes", title="temporaries", text=bytes_text),
    Column(key="argument_bytes", title="arguments", text=bytes_text),
    Column(key="code_bytes", title="code", text=bytes_text),
    Column(key="seconds", title="compile", text=seconds_text),
)


def with_tpuc(example: Callable[[], examples.Example], target: Target) -> Row:
    """Compiles a module with tpuc."""
    module, inputs = example()
    with tempfile.TemporaryDirectory() as folder:
        compiled = tpuc.compile(
            module,
            kwargs=inputs,
            targets=[str(target)],
            weights="none",
            output=Path(folder) / "program.bin",
            cache=False,
        )
    (made,) = compiled.executables
    return _figures(made.executable, seconds=sum(compiled.progress.seconds.values()))


def with_torch_mlir(example: Callable[[], examples.Example], target: Target) -> Row:
    """Compiles a module with torch-mlir's own decompositions and pipelines, weights as arguments."""
    module, inputs = example()
    start = time.perf_counter()
    with torch.no_grad(), fake_weights(module):
        program = torch.export.export(module, (), dict(inputs)).run_decompositions(get_decomposition_table())
    imported = fx.stateless_fx_import(program.graph_module, output_type="stablehlo")
    text = imported.operation.get_asm(enable_debug_info=False)
    with mlir.make_context() as context:
        readable = mlir.parse(text, context)
        run_passes(readable, parse_pipeline(_READABLE), target)
        lowered = mlir.to_portable(readable)
    return _compile(lowered, target, start)


def with_torchax(example: Callable[[], examples.Example], target: Target) -> Row:
    """Compiles a module with torchax's own decompositions and lowerings, weights as arguments."""
    start = time.perf_counter()
    # In a process of its own: to import torchax changes PyTorch for whoever comes after.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        lowered = pool.submit(_lower_with_torchax, example).result()
    return _compile(lowered, target, start)


def _lower_with_torchax(example: Callable[[], examples.Example]) -> bytes:
    return _lower_jax(*to_jax(*example()))


def with_jax(function: Callable[..., Any], arguments: tuple[Any, ...], target: Target) -> Row:
    """Compiles a JAX function."""
    start = time.perf_counter()
    return _compile(_lower_jax(function, arguments), target, start)


def _lower_jax(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    # Lowering runs nothing; without this JAX would look for a TPU in this machine.
    jax.config.update("jax_platforms", "cpu")
    lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("tpu",))
    return mlir.to_bytecode(lowered.compiler_ir("stablehlo"))


def _compile(program: bytes, target: Target, start: float) -> Row:
    executable = compile_program(program, target, share_code=False)
    return _figures(executable, seconds=time.perf_counter() - start)


def _figures(executable: Executable, *, seconds: float) -> Row:
    cycles = count_cycles(executable.hlo, executable.target.chip)
    memory = executable.memory
    return {
        "total_cycles": cycles.total,
        "kernel_cycles": cycles.kernel_cycles,
        "kernels": cycles.kernels,
        "temp_bytes": memory["temp"],
        "argument_bytes": memory["argument"],
        "output_bytes": memory["output"],
        "code_bytes": memory["code"],
        "seconds": seconds,
    }


def count_flops(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> int:
    """Counts the FLOPs of a module's products and convolutions; a multiply-add is two."""
    counter = FlopCounterMode(display=False)
    # Attention as products, which are what is counted.
    with torch.no_grad(), fake_weights(module), sdpa_kernel(SDPBackend.MATH), counter:
        module(**inputs)
    return counter.get_total_flops()


def roofline_cycles(flops: int, size: int, target: Target) -> float:
    """The cycles that a program takes at least.

    Args:
        flops: What it multiplies and adds.
        size: Bytes that it reads and writes, each once.
        target: A chip whose clock is known.
    """
    assert target.chip is not None
    assert target.chip.clock_hz is not None
    chip = target.chip
    # f32 too: what is not asked for more precision is multiplied as bf16.
    return max(flops / chip.peak_flops_per_second["bf16"], size / chip.hbm_bytes_per_second) * chip.clock_hz


#: The ways that begin at a PyTorch module, in the order of the table.
_FROM_TORCH: Mapping[str, Callable[[Callable[[], examples.Example], Target], Row]] = {
    "tpuc": with_tpuc,
    "torch-mlir as is": with_torch_mlir,
    "torchax as is": with_torchax,
}


def compare(program: Program) -> Iterator[Row]:
    """Compiles a program in every way; gives one row for each, tpuc's first."""
    target = Target.parse(program.target)
    # Each way gets a module of its own: it loses its weights.
    flops = count_flops(*program.example())
    figures: dict[str, Row] = {}
    for way, compile_with in _FROM_TORCH.items():
        if way not in program.fails:
            figures[way] = compile_with(program.example, target)
    for way, make in program.by_hand.items():
        figures[way] = with_jax(*make(), target)
    best = min((row["total_cycles"] for way, row in figures.items() if way != "tpuc"), default=math.nan)
    for way, row in figures.items():
        least = roofline_cycles(flops, row["argument_bytes"] + row["output_bytes"], target)
        yield {
            **_heading(program, way),
            **row,
            "ratio": row["total_cycles"] / best,
            "roofline": least / row["total_cycles"],
        }
    for way, where in program.fails.items():
        yield _heading(program, f"{way}: {where}")


def _heading(program: Program, way: str) -> Row:
    return {"program": program.name, "title": f"{program.title}, {program.target}", "way": way}


_UNITS = {"total_cycles": "cycles", "temp_bytes": "bytes of temporaries", "code_bytes": "bytes of code", "seconds": "s"}


def limits_of(program: Program, by_tpuc: Row) -> list[Limit]:
    """What is asked of tpuc's program: to take no more than it may, nor more cycles than the best of the others."""
    limits = [
        Limit(what=f"{program.title}, {program.target}", value=by_tpuc[key], limit=most, unit=_UNITS[key])
        for key, most in program.most.items()
    ]
    return [*limits, Limit(what=f"{program.title}, {program.target}, to the best", value=by_tpuc["ratio"], limit=1.0)]


def read_measured() -> dict[str, list[Row]]:
    """Reads the rows of all programs that have been measured, by the program's name."""
    found: dict[str, list[Row]] = json.loads(FIGURES.read_bytes()) if FIGURES.is_file() else {}
    return {program.name: found[program.name] for program in PROGRAMS if program.name in found}


def document(measured: Mapping[str, Sequence[Row]]) -> str:
    """Writes docs/program_quality.md."""
    rows = [row for found in measured.values() for row in found]
    versions = sorted({row["versions"] for row in rows})
    table = markdown_table(
        [column.title for column in _COLUMNS], ([cell(column, row) for column in _COLUMNS] for row in rows)
    )
    limits = [
        limit
        for program in PROGRAMS
        if program.name in measured
        for limit in limits_of(program, measured[program.name][0])
    ]
    asked = "".join(f"- {limit}\n" for limit in limits)
    measured_with = f"Measured with {'; '.join(versions)}.\n"
    return "\n".join([_HEAD, measured_with, table, "## What is asked\n", asked, _IN_THE_WAY])


_HEAD = """\
# How good the programs are

The same model brought to a TPU's compiler in several ways; written by `make bench-quality`. Do not edit.

Cycles are libtpu's own estimates for one chip; nothing was run. A Mosaic kernel, which has none, counts as twice its
roofline, and stands in "in kernels" too. "To best" is the ratio to the best of the other ways. The roofline is
max(FLOPs / peak, bytes / bandwidth) over the estimate. "Compile" is all of it, from the module in memory to the
executable, on 2 cores; unlike the other figures it depends on what else the machine did. tpuc asks libtpu to keep the
code of equal operations once; the others take its defaults.
"""


_IN_THE_WAY = """\
## What stands in the way

Of the seconds for SDXL's UNet, libtpu takes two thirds: some 200 core-seconds, most of them for 51 convolutions, of
which hardly two have the same around them. None of some forty of libtpu's options shortens that and keeps the estimate,
nor do barriers around the convolutions. What does shorten the convolutions' own compile, three products in the place of
each, does not shorten that of the whole.

LLaMA-7B's whole `tpuc compile` (`make bench-llama`) takes as long as libtpu takes above for JAX by hand; five seconds
of it are the start of Python, PyTorch, JAX and transformers. 9 of its 31 core-seconds go to one layer by itself,
compiled to learn whether the loop pays. The loop alone does not tell: BERT-large's costs 6% more than its layers, as
its largest product is 30% dearer in the loop, for no reason that shows there.
"""


@click.command()
@click.option(
    "--program",
    "names",
    multiple=True,
    type=click.Choice([program.name for program in PROGRAMS]),
    help="Only this program; may be given several times.",
)
@click.option("--only-write", is_flag=True, help="Write docs/program_quality.md from what was measured before.")
def main(names: Sequence[str], only_write: bool) -> None:
    """Compare every program."""
    ignore_known_warnings()
    for program in PROGRAMS:
        if not only_write and (not names or program.name in names):
            _keep(program, list(compare(program)))
    measured = read_measured()
    with replacing(DOCUMENT) as replacement:
        replacement.file.write(document(measured).encode())
    chosen = [program for program in PROGRAMS if program.name in measured and (not names or program.name in names)]
    title = "Programs by the TPU compiler's own estimate; nothing was run"
    result = Result(
        title=title,
        columns=_COLUMNS,
        rows=[row for program in chosen for row in measured[program.name]],
        limits=[limit for program in chosen for limit in limits_of(program, measured[program.name][0])],
    )
    sys.exit(publish("program_quality", result))


def _keep(program: Program, rows: Sequence[Row]) -> None:
    """Puts the rows of a program in the place of older ones."""
    versions = ", ".join(f"{package} {version(package)}" for package in _PACKAGES)
    kept = [{**row, "versions": versions} for row in rows]
    with replacing(FIGURES) as replacement:
        replacement.file.write(json.dumps({**read_measured(), program.name: kept}, indent=1).encode() + b"\n")


if __name__ == "__main__":
    main()
