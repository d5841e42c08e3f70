"""Loads the model that a command names: `model.py`, `model.py:symbol`, `program.pt2` or a checkpoint folder.

The user's code runs unchanged. A file is loaded by its path, never by an import name; while it loads, its folder
leads `sys.path`, as it does when Python runs the file.
"""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # Registers the operators of quantized programs.
from torch.export import ExportedProgram

from tpuc.errors import LoadError, RequestError
from tpuc.fake import lazy_weights
from tpuc.shapes import InputSpec, bind
from tpuc.user_code import run_file, user_code

_NO_INPUTS = "Give --shapes, or define example_inputs() in the file: a tuple, a dict, or both as a pair."


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model and what it is called with.

    Attributes:
        name: A short name for people and files: the symbol, or the file's stem.
        source: Where it came from: `model.py:Net`.
        program: The module, or a program that was exported before.
        args: Example positional inputs.
        kwargs: Example keyword inputs.
        notes: What was chosen for the user, one sentence each.
    """

    name: str
    source: str
    program: torch.nn.Module | ExportedProgram
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    notes: tuple[str, ...] = ()


def load_model(
    text: str, *, shapes: Sequence[InputSpec] = (), training: bool = False, with_weights: bool = True
) -> LoadedModel:
    """Loads the model that `text` names.

    Args:
        text: `model.py`, `model.py:symbol`, `program.pt2`, or a folder with config.json and safetensors.
        shapes: The inputs' shapes; none means the file's own example_inputs().
        training: Whether the module stays in the mode that it comes in; otherwise it is put in inference mode.
        with_weights: Whether parameters get memory; without, they are fake and the model may be of any size.

    Raises:
        LoadError: There is no such file, it holds no model or several, or its code fails.
        RequestError: The shapes do not fit forward.
    """
    path, symbol = _split(text)
    if not path.exists():
        raise LoadError(f"there is no file {path}", hint=_near(path))
    if path.is_dir():
        module, name, notes = _load_checkpoint(path, with_weights)
        file = None
    elif path.suffix == ".pt2":
        return _load_exported(path, shapes)
    elif path.suffix == ".py":
        with lazy_weights(enabled=not with_weights):
            file = run_file(path, "model")
        module, name, notes = _find_module(file, path, symbol, with_weights)
    else:
        raise LoadError(f"{path} is neither a .py file, a .pt2 program nor a checkpoint folder")
    if not training and module.training:
        module.eval()
        notes = [*notes, "put in inference mode (--training keeps the mode it has)"]
    args, kwargs = _inputs(module, shapes, file, path)
    return LoadedModel(
        name=name,
        source=f"{path}:{name}" if path.suffix == ".py" else str(path),
        program=module,
        args=args,
        kwargs=kwargs,
        notes=tuple(notes),
    )


def _split(text: str) -> tuple[Path, str]:
    if not Path(text).exists() and ":" in text:
        path, _, symbol = text.rpartition(":")
        return Path(path), symbol
    return Path(text), ""


def _near(path: Path) -> str | None:
    if not path.parent.is_dir():
        return f"There is no folder {path.parent} either."
    near = difflib.get_close_matches(path.name, [other.name for other in path.parent.iterdir()], n=1)
    return f"Did you mean {path.parent / near[0]}?" if near else None


def _find_module(
    file: ModuleType, path: Path, symbol: str, with_weights: bool
) -> tuple[torch.nn.Module, str, list[str]]:
    if symbol:
        if not hasattr(file, symbol):
            found = ", ".join(_candidates(file)) or "no model at all"
            raise LoadError(f"{path} has no {symbol!r}", hint=f"It has {found}.")
        return _make(getattr(file, symbol), symbol, path, with_weights), symbol, []
    candidates = _candidates(file)
    if not candidates:
        raise LoadError(
            f"{path} holds no model",
            hint="A model is a torch.nn.Module, a class of one, or a function named `model` that makes one.",
        )
    chosen = "model" if "model" in candidates else _the_obvious_one(candidates)
    if chosen is None:
        raise LoadError(
            f"{path} holds several models: {', '.join(candidates)}", hint=f"Name one: {path}:{next(iter(candidates))}"
        )
    return _make(candidates[chosen], chosen, path, with_weights), chosen, [f"took {chosen} from {path.name}"]


def _candidates(file: ModuleType) -> dict[str, Any]:
    """What a file offers as models: modules it made, classes it defines, and a function named `model`."""
    found = {}
    for name, value in vars(file).items():
        if name.startswith("_"):
            continue
        own = getattr(value, "__module__", None) == file.__name__
        is_class = inspect.isclass(value) and issubclass(value, torch.nn.Module) and own
        is_maker = name == "model" and inspect.isfunction(value)
        if isinstance(value, torch.nn.Module) or is_class or is_maker:
            found[name] = value
    return found


def _the_obvious_one(candidates: dict[str, Any]) -> str | None:
    """The only one; or the only module made; or the only class that is made without arguments."""
    rules: tuple[Callable[[Any], bool], ...] = (
        lambda value: True,
        lambda value: isinstance(value, torch.nn.Module),
        lambda value: inspect.isclass(value) and not _required(value),
    )
    for rule in rules:
        names = [name for name, value in candidates.items() if rule(value)]
        if len(names) == 1:
            return names[0]
    return None


def _required(value: Callable[..., Any]) -> list[str]:
    """The parameters without a default."""
    return [
        name
        for name, parameter in inspect.signature(value).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def _make(value: Any, name: str, path: Path, with_weights: bool) -> torch.nn.Module:
    if isinstance(value, torch.nn.Module):
        return value
    if not callable(value):
        raise LoadError(f"{name} in {path} is a {type(value).__name__}, not a module, a class or a function")
    if required := _required(value):
        raise LoadError(
            f"{name} in {path} needs arguments: {', '.join(required)}",
            hint="Write a function without arguments that returns the module, and name it: def model(): ...",
        )
    with user_code(f"making {name}"), lazy_weights(enabled=not with_weights):
        module = value()
    if not isinstance(module, torch.nn.Module):
        raise LoadError(f"{name} in {path} made a {type(module).__name__}, not a torch.nn.Module")
    return module


def _inputs(
    module: torch.nn.Module, shapes: Sequence[InputSpec], file: ModuleType | None, path: Path
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if shapes:
        return bind(shapes, module.forward)
    maker = getattr(file, "example_inputs", None)
    if maker is None:
        if not _required(module.forward):
            return (), {}
        takes = ", ".join(inspect.signature(module.forward).parameters)
        raise RequestError(f"the shapes of {path.name}'s inputs are not known: forward takes {takes}", hint=_NO_INPUTS)
    with user_code("example_inputs()"):
        made = maker()
    match made:
        case (tuple() as args, dict() as kwargs):
            return args, kwargs
        case tuple():
            return made, {}
        case dict():
            return (), made
    raise LoadError(f"example_inputs() in {path} returned a {type(made).__name__}", hint=_NO_INPUTS)


def _load_exported(path: Path, shapes: Sequence[InputSpec]) -> LoadedModel:
    if shapes:
        raise RequestError(f"{path} was exported with its shapes, and takes no --shapes")
    try:
        program = torch.export.load(path)
    except Exception as error:  # torch.export.load has no error of its own for a file that it cannot read.
        raise LoadError(f"{path} is not a program that this PyTorch can read: {error}") from error
    return LoadedModel(name=path.stem, source=str(path), program=program, args=(), kwargs={})


def _load_checkpoint(path: Path, with_weights: bool) -> tuple[torch.nn.Module, str, list[str]]:
    config = path / "config.json"
    if not config.is_file():
        raise LoadError(f"{path} is a folder without config.json", hint="A checkpoint folder has one, and safetensors.")
    try:
        import transformers
    except ImportError as error:
        raise LoadError("a checkpoint folder needs transformers", hint="pip install 'tpuc[zoo]'") from error
    try:
        names = json.loads(config.read_text()).get("architectures") or []
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError) as error:
        raise LoadError(f"{config} is not a model's configuration: {error}") from error
    kind: Any = getattr(transformers, names[0], None) if names else transformers.AutoModel
    if kind is None:
        raise LoadError(f"transformers {transformers.__version__} has no {names[0]}, which {config} asks for")
    with user_code(f"loading {path.name} with transformers"), lazy_weights(enabled=not with_weights):
        if with_weights:
            # The dtype of the checkpoint, not a copy in f32.
            module = kind.from_pretrained(path, local_files_only=True, dtype="auto", use_safetensors=True)
        else:
            module = kind._from_config(transformers.AutoConfig.from_pretrained(path, local_files_only=True))
    return module, path.resolve().name, [f"took {kind.__name__} as {config.name} says"]
