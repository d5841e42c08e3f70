"""The command line: parses, calls, prints. What it calls is importable without it.

Heavy modules are imported by the command that needs them: `tpuc run` must start in a second.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from tpuc.guard import Guard

if TYPE_CHECKING:
    from rich.console import Console

#: Columns where the output is no terminal.
_PLAIN_WIDTH = 140

PLUGIN = click.option(
    "--plugin",
    "plugins",
    metavar="P",
    multiple=True,
    help="A module or a .py file that registers lowerings; as often as wanted.",
)


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
@click.option("--dims", metavar="SPEC", help="What named sizes in the shapes may be: 'batch=1..8 seq=1..512'.")
@click.option("--buckets", metavar="SPEC", help="The sizes to compile for: 'seq=128,512'. [default: tpuc chooses]")
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
@click.option(
    "--precision",
    type=click.Choice(["f32", "bf16", "mixed", "f32-highest"]),
    help="bf16: store and multiply in bf16; mixed: only what products read; f32-highest: products exact to f32."
    "  [default: f32]",
)
@click.option("--passes", metavar="PIPELINE", help="The passes to run, in place of the default ones.")
@click.option(
    "--roll",
    type=click.Choice(["auto", "always", "never"]),
    help="Whether repeated layers become a loop; auto: eight or more that cost at most 3% more so. [default: auto]",
)
@click.option(
    "--libtpu",
    "libtpus",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="Compile with this libtpu.so; as often as wanted, one executable each. [default: the installed one]",
)
@PLUGIN
@click.option(
    "--no-cache",
    is_flag=True,
    envvar="TPUC_NO_CACHE",
    show_envvar=True,
    help="Compile again what was compiled before, and keep nothing.",
)
@click.option(
    "--dump-ir", type=click.Path(file_okay=False, path_type=Path), help="A folder for the IR after each pass."
)
@click.option("--explain", is_flag=True, help="Say what each pass did, and estimate what the program costs without.")
@guarded
def compile_command(
    guard: Guard,
    model: str,
    shapes: str | None,
    dims: str | None,
    buckets: str | None,
    targets: tuple[str, ...],
    output: Path | None,
    weights: Any,
    training: bool,
    precision: str | None,
    passes: str | None,
    roll: Any,
    libtpus: tuple[Path, ...],
    plugins: tuple[str, ...],
    no_cache: bool,
    dump_ir: Path | None,
    explain: bool,
) -> None:
    """Compile MODEL: model.py, model.py:symbol, a .pt2 program, or a Hugging Face checkpoint folder."""
    from tpuc.api import compile as compile_model
    from tpuc.report.explanation import explanation_report
    from tpuc.report.summary import summary
    from tpuc.terminal import TerminalProgress

    console = _console(guard)
    with TerminalProgress(console, guard) as progress:
        compiled = compile_model(
            model,
            shapes=shapes,
            dims=dims,
            buckets=buckets,
            targets=targets or ("cpu",),
            output=output,
            weights=weights,
            training=training,
            precision=precision,
            passes=passes,
            roll=roll,
            libtpus=libtpus,
            plugins=plugins,
            dump=dump_ir,
            explain=explain,
            cache=not no_cache,
            progress=progress,
        )
    for explanation in compiled.explanations:
        console.print(explanation_report(explanation))
    console.print(summary(compiled.manifest, progress.seconds, progress.notes))
    click.echo(compiled.path)


@main.command("check")
@click.argument("model")
@click.option("--shapes", metavar="SPEC", help="The inputs, as for compile.")
@click.option("--dims", metavar="SPEC", help="What named sizes in the shapes may be, as for compile.")
@click.option("--target", "targets", metavar="T", multiple=True, help="As for compile. [default: cpu]")
@click.option("--training", is_flag=True, help="Keep the mode that the module has, instead of inference mode.")
@PLUGIN
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@guarded
def check_command(
    guard: Guard,
    model: str,
    shapes: str | None,
    dims: str | None,
    targets: tuple[str, ...],
    training: bool,
    plugins: tuple[str, ...],
    as_json: bool,
) -> None:
    """Tell how each operator of MODEL would be lowered, and all that stands in the way; compile nothing."""
    from tpuc.api import check
    from tpuc.report.operators import uses_table

    guard.at(f"the check of {model}")
    found = check(model, shapes=shapes, dims=dims, targets=targets or ("cpu",), training=training, plugins=plugins)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=2))
    else:
        _output().print(uses_table(found))
    found.raise_if_unsupported()


@main.command("run")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--input", "inputs", metavar="[NAME=]FILE", multiple=True, help="A .npy, .npz or .safetensors file.")
@click.option("--random", type=int, metavar="SEED", help="Make up the inputs that no file gives, from this seed.")
@click.option("--seed", type=int, metavar="N", help="The seed of the program's own random numbers. [default: 0]")
@click.option("--device", default="cpu", show_default=True, help="cpu, tpu, tpu:LIBTPU or plugin:PATH.")
@click.option("--weights", type=click.Path(path_type=Path), help="The weights of an artifact without: safetensors.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A .npz file for the outputs.")
@click.option("--repeat", type=click.IntRange(1), default=1, help="Run so often, and tell how long it takes.")
@click.option("--no-recompile", is_flag=True, help="Refuse where the executable is another compiler's.")
@guarded
def run_command(
    guard: Guard,
    artifact: Path,
    inputs: tuple[str, ...],
    random: int | None,
    seed: int | None,
    device: str,
    weights: Path | None,
    output: Path | None,
    repeat: int,
    no_recompile: bool,
) -> None:
    """Run ARTIFACT once, or so often, and print what it returns."""
    from tpuc.run import run_artifact

    guard.at(f"running {artifact}")
    for line in run_artifact(
        artifact,
        inputs=inputs,
        random=random,
        seed=seed,
        device=device,
        weights=weights,
        output=output,
        repeat=repeat,
        recompile=not no_recompile,
        notify=lambda text: print(f"note: {text}", file=guard.messages),
    ):
        click.echo(line)


@main.command("inspect")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
@guarded
def inspect_command(guard: Guard, artifact: Path, as_json: bool) -> None:
    """Show what ARTIFACT holds."""
    from tpuc.report.inspection import inspection
    from tpuc.runtime.artifact import Artifact
    from tpuc.runtime.manifest import encode_manifest

    manifest = Artifact.open(artifact).manifest
    if as_json:
        click.echo(json.dumps(encode_manifest(manifest), indent=2))
    else:
        _output().print(inspection(manifest))


@main.group("weights")
def weights_group() -> None:
    """Change the weights of an artifact."""


@weights_group.command("replace")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.argument("weights", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The new artifact. [default: in its place]")
@guarded
def weights_replace_command(guard: Guard, artifact: Path, weights: Path, output: Path | None) -> None:
    """Put other WEIGHTS into ARTIFACT: a safetensors file, or a folder of them; nothing is compiled."""
    from tpuc.runtime.replacement import replace_weights

    guard.at(f"replacing the weights of {artifact}")
    replace_weights(artifact, weights, output)
    click.echo(output or artifact)


@main.command("targets")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def targets_command(as_json: bool) -> None:
    """List the chips that can be compiled for."""
    from tpuc.report.tables import chips_json, chips_table

    if as_json:
        click.echo(json.dumps(chips_json(), indent=2))
    else:
        _output().print(chips_table())


@main.command("passes")
def passes_command() -> None:
    """List the passes, in the order that a compile runs them."""
    from tpuc.report.passes import passes_table

    _output().print(passes_table())


@main.command("ops")
@PLUGIN
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
@guarded
def ops_command(guard: Guard, plugins: tuple[str, ...], as_json: bool) -> None:
    """List the operators that have a lowering; any other is decomposed as PyTorch says, if it can be."""
    from tpuc.plugins import load_plugins
    from tpuc.report.operators import operators_json, operators_table

    load_plugins(plugins)
    if as_json:
        click.echo(json.dumps(operators_json(), indent=2))
    else:
        _output().print(operators_table())


@main.command("opt")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--passes", metavar="PIPELINE", help="'a{x=1},b'. [default: what a compile runs]")
@click.option("--target", default="cpu", show_default=True, help="What the module will be compiled for.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A file for the module. [default: print it]")
@click.option("--locations", is_flag=True, help="Print source locations.")
@click.option(
    "--dump-ir", type=click.Path(file_okay=False, path_type=Path), help="A folder for the IR after each pass."
)
@guarded
def opt_command(
    guard: Guard,
    file: Path,
    passes: str | None,
    target: str,
    output: Path | None,
    locations: bool,
    dump_ir: Path | None,
) -> None:
    """Run passes over the StableHLO in FILE: MLIR text, bytecode or a portable artifact."""
    from tpuc.opt import optimize

    guard.at(f"the passes over {file}")
    text = optimize(file, passes=passes, target=target, locations=locations, dump=dump_ir)
    if output is None:
        click.echo(text)
        return
    from tpuc.runtime.files import replacing

    with replacing(output) as replacement:
        replacement.file.write(text.encode())


def _output() -> Console:
    """Standard output."""
    return _make_console(sys.stdout)


def _console(guard: Guard) -> Console:
    """Where messages go."""
    return _make_console(guard.messages)


def _make_console(file: IO[str]) -> Console:
    from rich.console import Console

    console = Console(file=file, highlight=False)
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    return console


if __name__ == "__main__":
    main()
