"""What a function does on one platform only: another function that takes its place there, or a refusal.

A body is traced once and lowered for each platform (`tpuc.lowerings.body`), so both are JAX primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NoReturn

import jax
from jax.extend.core import Primitive
from jax.interpreters import mlir

Array = jax.Array
Platform = Literal["cpu", "tpu"]
Function = Callable[..., Sequence[Array]]

PLATFORMS: tuple[Platform, ...] = ("cpu", "tpu")

_by_platform = Primitive("by_platform")
_by_platform.multiple_results = True
_refused_on_tpu = Primitive("refused_on_tpu")


def refuse_on_tpu(x: Array, reason: str) -> Array:
    """Returns `x`; where the program is lowered for a TPU, that raises NotImplementedError with the reason.

    `lower_body` then has no body for a TPU, and a compile for one names the user's line.
    """
    result: Array = _refused_on_tpu.bind(x, reason=reason)
    return result


def by_platform(function: Function, kernels: Mapping[Platform, Function], *operands: Array) -> list[Array]:
    """Calls a kernel where the program is lowered for its platform, and the function on every other.

    Args:
        function: Takes the operands, and returns results.
        kernels: Functions for one platform each, with results of the same shapes and dtypes. They are traced without
            64-bit types, which Pallas cannot do with.
        operands: The arrays.
    """
    results: list[Array] = _by_platform.bind(*operands, function=function, kernels=tuple(kernels.items()))
    return results


def _abstract(*operands: Any, function: Function, kernels: Any) -> list[Any]:
    return [jax.core.ShapedArray(result.shape, result.dtype) for result in jax.eval_shape(function, *operands)]


def _lower_for(
    platform: Platform, context: Any, *operands: Any, function: Function, kernels: tuple[tuple[Platform, Function], ...]
) -> Any:
    chosen = dict(kernels).get(platform)
    return mlir.lower_fun(function if chosen is None else partial(_narrow, chosen))(context, *operands)


def _narrow(function: Function, *operands: Array) -> Sequence[Array]:
    with jax.enable_x64(False):
        return function(*operands)


_by_platform.def_impl(lambda *operands, function, kernels: function(*operands))
_by_platform.def_abstract_eval(_abstract)
for _platform in PLATFORMS:
    mlir.register_lowering(_by_platform, partial(_lower_for, _platform), platform=_platform)


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
