"""The command line: parses, calls, prints. What it calls is importable without it.

Heavy modules are imported by the command that needs them: `tpuc run` must start in a second.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpuc.guard import Guard

if TYPE_CHECKING:
    from rich.console import Console


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Runs a command under a `Guard`, which it gets as its first argument, and adds --verbose and --debug."""

    @click.option("-v", "--verbose", is_flag=True, help="Show what libtpu, XLA and torch print.")
    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(command)
    def run(*, verbose: bool, debug: bool, **options: Any) -> None:
        guard = Guard(verbose=verbose, debug=debug)
        code = guard.run(lambda: command(guard, **options))
        if code:
            sys.exit(code)

    return run


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="tpuc", prog_name="tpuc")
def main() -> None:
    """Compile PyTorch models ahead of time into TPU executables, and run them."""


@main.command("compile")
@click.argument("model")
@click.option("--shapes", metavar="SPEC", help="The inputs: 'input_ids=i64[1,128] scale=0.5'; dtype f32 if left out.")
@click.option(
    "--target", "targets", metavar="T", multiple=True, help="cpu, v5e, ...; as often as wanted. [default: cpu]"
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The artifact. [default: <model>.bin]")
@click.option(
    "--weights",
    type=click.Choice(["embed", "external", "none"]),
    default="embed",
    show_default=True,
    help="In the artifact, in a file beside it, or given when it is loaded; `none` needs no memory for them.",
)
@click.option("--training", is_flag=True, help="Keep the mode that the module has, instead of inference mode.")
@click.option("--passes", metavar="PIPELINE", help="The passes to run, in place of the default ones.")
@click.option(
    "--libtpu",
    "libtpus",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="Compile with this libtpu.so; as often as wanted, one executable each. [default: the installed one]",
)
@click.option(
    "--dump-ir", type=click.Path(file_okay=False, path_type=Path), help="A folder for the IR after each pass."
)
@guarded
def compile_command(
    guard: Guard,
    model: str,
    shapes: str | None,
    targets: tuple[str, ...],
    output: Path | None,
    weights: Any,
    training: bool,
    passes: str | None,
    libtpus: tuple[Path, ...],
    dump_ir: Path | None,
) -> None:
    """Compile MODEL: model.py, model.py:symbol, a .pt2 program, or a Hugging Face checkpoint folder."""
    from tpuc.api import compile as compile_model
    from tpuc.report.summary import summary
    from tpuc.terminal import TerminalProgress

    console = _console(guard)
    with TerminalProgress(console, guard) as progress:
        compiled = compile_model(
            model,
            shapes=shapes,
            targets=targets or ("cpu",),
            output=output,
            weights=weights,
            training=training,
            passes=passes,
            libtpus=libtpus,
            dump=dump_ir,
            progress=progress,
        )
    console.print(summary(compiled.manifest, progress.seconds, progress.notes))
    click.echo(compiled.path)


def _console(guard: Guard) -> Console:
    from rich.console import Console

    return Console(file=guard.messages, highlight=False)
