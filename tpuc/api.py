"""`tpuc.compile` and `tpuc.check`: the commands as Python calls."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tpuc.backend.caches import Caches
from tpuc.checking import Check, check_model
from tpuc.dims import Dims, SizeBuckets, choose_buckets, parse_buckets, parse_dims
from tpuc.errors import RequestError
from tpuc.loader import LoadedModel, load_model
from tpuc.passes import default_pipeline, format_pipeline, parse_pipeline
from tpuc.passes.roll_layers import RollMode, with_roll
from tpuc.pipeline import Compiled, compile_model
from tpuc.plugins import load_plugins
from tpuc.progress import Progress
from tpuc.request import CompileRequest, WeightsMode
from tpuc.runtime.spec import TensorSpec
from tpuc.shapes import InputSpec, bind, parse_shapes
from tpuc.targets import Target


def compile(  # noqa: A001  The name that users expect.
    model: str | Path | torch.nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    shapes: str | None = None,
    dims: str | None = None,
    buckets: str | None = None,
    targets: Sequence[str] = ("cpu",),
    output: str | Path | None = None,
    weights: WeightsMode = "embed",
    training: bool = False,
    precision: str | None = None,
    passes: str | None = None,
    roll: RollMode | None = None,
    libtpus: Sequence[str | Path] = (),
    plugins: Sequence[str] = (),
    dump: str | Path | None = None,
    explain: bool = False,
    cache: bool = True,
    progress: Progress | None = None,
) -> Compiled:
    """Compiles a PyTorch model into an artifact.

    Args:
        model: `model.py`, `model.py:symbol`, a .pt2 program, a checkpoint folder, or a module.
        args: With a module: example positional inputs.
        kwargs: With a module: example keyword inputs.
        shapes: The inputs' specs in place of examples: `input_ids=i64[1,128]`.
        dims: What the named sizes in the shapes may be: `batch=1..8 seq=1..512`.
        buckets: The sizes to make programs for: `batch=1,8 seq=128,512`; None means that tpuc chooses.
        targets: What to compile for: `cpu`, `v5e`, ...
        output: The artifact; None means the model's name with `.bin`, in the current folder.
        weights: `embed`: in the artifact; `external`: in a file beside it; `none`: given when it is loaded.
        training: With a file: whether the module keeps the mode that it comes in; otherwise it is put in inference
            mode. A module that is given keeps its mode.
        precision: `bf16`: weights and activations are stored and multiplied in bf16, with sums and statistics in f32;
            `mixed`: products alone are; `f32-highest`: products have the precision of f32; None or `f32`: as the model
            says, at XLA's default precision. `tpuc.passes.bf16_storage` lists what stays in f32.
        passes: The passes to run, as `tpuc opt --passes` reads them; None means the default ones.
        roll: Whether repeated layers become a loop: `auto`, `always` or `never`; None means as the passes say, which is
            `auto` by default: eight or more layers, where the loop costs at most 3% more.
        libtpus: The libtpu builds to compile with for TPU targets; none means the installed one.
        plugins: Modules, or .py files, that register lowerings (`tpuc.lowering`), beside those that installed packages
            declare.
        dump: A folder for the IR after each pass and the optimized HLO of each target.
        explain: Whether to say in the result what each pass did, and what the program would cost without them: one
            compile more for each TPU target, unless the answer is kept from before.
        cache: Whether what compilers made and said before is taken from the user's cache folder, and kept there.
        progress: Who follows the stages.

    Returns:
        The artifact's path and manifest, and what was compiled.

    Raises:
        TpucError: The model cannot be compiled; `tpuc.errors` draws the ways.
    """
    progress = progress or Progress()
    specs, sizes, chosen = _sizes(parse_shapes(shapes) if shapes else (), dims, buckets)
    example = _static(specs, sizes)
    parsed = tuple(dict.fromkeys(map(Target.parse, targets)))
    loaded_plugins = load_plugins(plugins)
    with progress.stage("load"):
        loaded = _load(model, args, dict(kwargs or {}), example, training=training, with_weights=weights != "none")
    path = Path(output) if output else Path(f"{loaded.name}.bin")
    if not path.parent.is_dir():
        raise RequestError(f"there is no folder {path.parent} for the artifact")
    request = CompileRequest(
        source=loaded.source,
        source_sha256=_sha256(loaded.source),
        shapes=specs,
        sizes=sizes.ranges if sizes else (),
        buckets=chosen,
        targets=parsed,
        libtpus=tuple(map(Path, libtpus)),
        weights=weights,
        training=training,
        precision=precision or "f32",
        passes=_pipeline(passes, precision, roll),
        plugins=loaded_plugins,
    )
    folder = Path(dump) if dump else None
    caches = Caches.of_user() if cache else None
    return compile_model(loaded, request, path, progress=progress, dump=folder, explain=explain, caches=caches)


def _pipeline(passes: str | None, precision: str | None, roll: RollMode | None) -> str:
    """Returns the text of the pipeline to run."""
    if passes is not None and precision is not None:
        raise RequestError("precision is a pass, and the passes are given", hint="Give it there: precision{mode=bf16}.")
    text = default_pipeline(precision or "f32") if passes is None else passes
    return text if roll is None else format_pipeline(with_roll(parse_pipeline(text), roll))


def _sizes(
    specs: tuple[InputSpec, ...], dims: str | None, buckets: str | None
) -> tuple[tuple[InputSpec, ...], Dims | None, tuple[SizeBuckets, ...]]:
    """Reads what the sizes may be, and returns the specs with expressions of them, the sizes and their buckets."""
    if dims is None:
        if buckets is not None:
            raise RequestError("buckets are of named sizes, and none are given", hint="Give dims, or leave them out.")
        return specs, None, ()
    parsed = parse_dims(dims)
    if not specs:
        raise RequestError("dims name the sizes in shapes, and none are given", hint="Give shapes: 'x=f32[batch,8]'.")
    chosen = choose_buckets(parsed.ranges) if buckets is None else parse_buckets(buckets, parsed)
    return parsed.resolve(specs), parsed, chosen


def _static(specs: tuple[InputSpec, ...], sizes: Dims | None) -> tuple[InputSpec, ...]:
    """Returns the specs at an example of the sizes."""
    if sizes is None:
        return specs
    example = sizes.example()
    return tuple(spec.at(example) if isinstance(spec, TensorSpec) else spec for spec in specs)


def check(
    model: str | Path | torch.nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    shapes: str | None = None,
    dims: str | None = None,
    targets: Sequence[str] = ("cpu",),
    training: bool = False,
    plugins: Sequence[str] = (),
) -> Check:
    """Finds out how each operator of a model would be lowered, and all that stands in the way; compiles nothing.

    The arguments are those of `compile`.

    Raises:
        TpucError: The model cannot be loaded or exported. What cannot be lowered is in the result.
    """
    specs, sizes, _ = _sizes(parse_shapes(shapes) if shapes else (), dims, None)
    parsed = tuple(dict.fromkeys(map(Target.parse, targets)))
    load_plugins(plugins)
    loaded = _load(model, args, dict(kwargs or {}), _static(specs, sizes), training=training, with_weights=False)
    return check_model(loaded, parsed, shapes=specs, sizes=sizes.ranges if sizes else ())


def _load(
    model: str | Path | torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    specs: Sequence[InputSpec],
    *,
    training: bool,
    with_weights: bool,
) -> LoadedModel:
    if isinstance(model, torch.nn.Module):
        return _given(model, args, kwargs, specs)
    if args or kwargs:
        raise RequestError("example inputs go with a module; with a file, give shapes or example_inputs()")
    return load_model(str(model), shapes=specs, training=training, with_weights=with_weights)


def _given(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Sequence[InputSpec]
) -> LoadedModel:
    """Describes a module that was given from Python, with its example inputs."""
    if shapes:
        if args or kwargs:
            raise RequestError("give example inputs or shapes, not both")
        args, kwargs = bind(shapes, module.forward)
    name = type(module).__name__
    return LoadedModel(name=name, source=f"<module {name}>", program=module, args=args, kwargs=kwargs)


def _sha256(source: str) -> str:
    path = Path(source.rpartition(":")[0] or source)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
