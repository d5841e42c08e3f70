"""Lets a lowering say that a platform lacks something, where JAX would lower it and the compiler then refuse it."""

from __future__ import annotations

from typing import Any, NoReturn

import jax
from jax.extend.core import Primitive
from jax.interpreters import mlir

Array = jax.Array

_refused_on_tpu = Primitive("refused_on_tpu")


def refuse_on_tpu(x: Array, reason: str) -> Array:
    """Returns `x`; where the program is lowered for a TPU, that raises NotImplementedError with the reason.

    `lower_body` then has no body for a TPU, and a compile for one names the user's line.
    """
    result: Array = _refused_on_tpu.bind(x, reason=reason)
    return result


def _nothing(x: Any, *, reason: str) -> Any:
    return x


def _lower(_context: Any, x: Any, *, reason: str) -> list[Any]:
    return [x]


def _refuse(_context: Any, x: Any, *, reason: str) -> NoReturn:
    raise NotImplementedError(reason)


_refused_on_tpu.def_impl(_nothing)
_refused_on_tpu.def_abstract_eval(_nothing)
mlir.register_lowering(_refused_on_tpu, _lower)
mlir.register_lowering(_refused_on_tpu, _refuse, platform="tpu")
