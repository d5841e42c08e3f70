"""Turns what a caller gives for an input into an array that fits it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tpuc.runtime.dlpack import from_dlpack
from tpuc.runtime.dtypes import Array, dtype_of
from tpuc.runtime.errors import InputError
from tpuc.runtime.spec import TensorSpec


def as_input(value: Any, spec: TensorSpec, where: str) -> Array:
    """Makes a dense, row-major, native-endian array of an input, without a copy where it is one already.

    Args:
        value: A NumPy array, anything with `__dlpack__`, or, for an input without dimensions, a Python number.
        spec: What the input must be; a dimension that is an expression may be any number. Values are never converted to
            another type behind the caller's back.
        where: What the input is called, for errors.

    Raises:
        InputError: It is something else, or has another type or other dimensions.
    """
    array = _as_array(value, spec, where)
    given = dtype_of(array)
    if given.name != spec.dtype:
        raise InputError(f"{where}: expected {spec.dtype}, got {given.name}", hint=_conversion(value, spec, where))
    if not spec.admits(array.shape):
        got = TensorSpec(name="", dtype=given.name, dims=array.shape)
        raise InputError(f"{where}: expected {_type_of(spec)}, got {got}")
    return np.asarray(array, dtype=spec.type.numpy, order="C")


def _as_array(value: Any, spec: TensorSpec, where: str) -> Array:
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return from_dlpack(value, where)
    if isinstance(value, bool | int | float | complex):
        return _number(value, spec, where)
    raise InputError(
        f"{where}: expected {_type_of(spec)}, got a {type(value).__name__}",
        hint="Give a NumPy array, or a tensor that knows DLPack.",
    )


def _number(value: complex, spec: TensorSpec, where: str) -> Array:
    kind = spec.type.numpy
    # A bool is no number here, an int may stand for a float, and nothing else is converted.
    ranks = {bool: 0, int: 1, float: 2, complex: 3}
    allowed = {"b": (0,), "i": (1,), "u": (1,), "c": (1, 2, 3)}.get(kind.kind, (1, 2))
    if ranks[type(value)] not in allowed:
        raise InputError(f"{where}: expected {spec.dtype}, got {value!r}")
    try:
        return np.array(value, dtype=kind)
    except OverflowError:
        raise InputError(f"{where}: {value!r} does not fit {spec.dtype}") from None


def _type_of(spec: TensorSpec) -> TensorSpec:
    return replace(spec, name="")


def _conversion(value: Any, spec: TensorSpec, where: str) -> str:
    if not isinstance(value, np.ndarray):
        return f"Convert it to {spec.dtype}."
    wanted = spec.type.numpy
    module = "numpy" if wanted.isbuiltin == 1 else "ml_dtypes"
    return f"Convert it: {where}.astype({module}.{wanted})."
