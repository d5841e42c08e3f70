"""The text that says what a model is called with: `input_ids=i64[1,128] scale=0.5 mask=None`."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tpuc.dtypes import TORCH_DTYPES
from tpuc.errors import InputError, RequestError
from tpuc.runtime.spec import TensorSpec

_HINT = (
    "Write name=dtype[dims] for a tensor, name=value for a number, bool, text or None; a single input needs no name."
)
_TENSOR = re.compile(r"(?P<name>[^=\s\[\]]+=)?(?P<dtype>\w*)\[(?P<dims>[^\[\]]*)\]")
_VALUE = re.compile(r"(?P<name>[^=\s\[\]]+)=(?P<value>[^\[\]]+)")


@dataclass(frozen=True, kw_only=True)
class ValueSpec:
    """A Python value given for an input, which becomes part of the program."""

    name: str
    value: bool | int | float | str | None

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}"


InputSpec = TensorSpec | ValueSpec


def parse_shapes(text: str) -> tuple[InputSpec, ...]:
    """Reads a shapes text: specs divided by white space.

    A tensor's dtype may be left out, for f32: `x=[1,3,224,224]`.

    Raises:
        RequestError: A part is no spec, names an unknown dtype (the nearest known is given), or a name twice.
    """
    # White space inside brackets is not a division.
    parts = re.sub(r"\[[^\]]*\]", lambda match: "".join(match.group().split()), text).split()
    if not parts:
        raise RequestError("the shapes are empty", hint=_HINT)
    specs = tuple(map(_parse_one, parts))
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            what = f"the shapes give {name} twice" if name else "the shapes give several inputs without a name"
            raise RequestError(what, hint=_HINT)
    return specs


def _parse_one(text: str) -> InputSpec:
    if tensor := _TENSOR.fullmatch(text):
        try:
            return TensorSpec.parse(f"{tensor['name'] or ''}{tensor['dtype'] or 'f32'}[{tensor['dims']}]")
        except InputError as error:
            raise RequestError(f"{error.what} in {text!r}", hint=error.hint) from error
    if value := _VALUE.fullmatch(text):
        return ValueSpec(name=value["name"], value=_literal(value["value"], text))
    raise RequestError(f"{text!r} is not an input spec", hint=_HINT)


def _literal(text: str, whole: str) -> bool | int | float | str | None:
    try:
        value = ast.literal_eval({"true": "True", "false": "False", "none": "None"}.get(text, text))
    except (ValueError, SyntaxError) as error:
        raise RequestError(f"{text!r} in {whole!r} is neither a tensor spec nor a value", hint=_HINT) from error
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise RequestError(f"{text!r} in {whole!r}: only None, bools, numbers and texts can be given", hint=_HINT)


def bind(specs: Sequence[InputSpec], forward: Callable[..., Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Makes example inputs for a forward function: zeros in the given shapes.

    Inputs go by position as far as forward's parameters follow one another, and by name after that.

    Raises:
        RequestError: A name is not forward's (the nearest is given), a required input is missing, or a dimension is
            a name.
    """
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(forward).parameters.items()
        if parameter.kind is not parameter.VAR_POSITIONAL
    }
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    named = {name: parameter for name, parameter in parameters.items() if parameter.kind is not parameter.VAR_KEYWORD}
    given: dict[str, Any] = {}
    for spec in specs:
        name = spec.name or next(iter(named), "")
        if name not in named and not takes_any:
            near = difflib.get_close_matches(name, named, n=1)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise RequestError(
                f"forward has no input {name!r}", hint=f"{hint}It takes {', '.join(named) or 'nothing'}."
            )
        given[name] = _example(spec)
    missing = [name for name, parameter in named.items() if parameter.default is parameter.empty and name not in given]
    if missing:
        raise RequestError(f"the shapes leave out {', '.join(missing)}", hint=f"forward takes {', '.join(named)}.")
    args = []
    for name, parameter in named.items():
        if name not in given or parameter.kind is parameter.KEYWORD_ONLY:
            break
        args.append(given.pop(name))
    return tuple(args), given


def _example(spec: InputSpec) -> Any:
    if isinstance(spec, ValueSpec):
        return spec.value
    if not spec.is_static:
        raise RequestError(f"{spec}: a dimension is a name", hint="Give every dimension as a number.")
    # Zeros are valid indices, masks and numbers, and cost no memory until they are read.
    return torch.zeros(spec.shape, dtype=TORCH_DTYPES[spec.dtype])
