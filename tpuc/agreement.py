"""Compares a compiled program with eager PyTorch, on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tpuc import runtime
from tpuc.packaging import to_numpy
from tpuc.run import random_input
from tpuc.runtime import TensorSpec
from tpuc.runtime.dtypes import Array, dtype_of
from tpuc.zoo import Agreement

#: The largest difference allowed between two ways to compute an output, relative to its largest value. A dtype that is
#: not here must be equal.
LIMITS: Mapping[str, float] = {"f64": 1e-7, "f32": 1e-4, "f16": 2e-3, "bf16": 2e-2, "c64": 1e-4, "c128": 1e-7}

_SEED = 0


def compare_with_eager(
    artifact: Path,
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    check: Callable[[Any], Any] | None = None,
) -> Agreement:
    """Runs an artifact's cpu executable and the module that it was compiled from on the same inputs.

    Args:
        artifact: The artifact.
        module: The module; it runs once, so its state must be the artifact's first.
        args: Positional inputs.
        kwargs: Keyword inputs.
        check: Takes the outputs in the module's own structure; what it makes of both must be equal.

    Raises:
        TpucError: The artifact does not load or run.
    """
    with runtime.load(artifact) as program:
        places = program.manifest.input_structure.bind(args, kwargs)
        outputs = program.run({program.inputs[number].name: value for number, (_, value) in places.items()})
    with torch.no_grad():
        expected = module(*args, **kwargs)
    leaves, structure = pytree.tree_flatten(expected)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    agreements = [
        _compare(name, array, to_numpy(tensor)) for (name, array), tensor in zip(outputs.items(), tensors, strict=True)
    ]
    worst = max(agreements, key=lambda agreement: (not agreement.holds, agreement.error))
    if check is None:
        return worst
    arrays = iter(outputs.values())
    got = [_to_torch(next(arrays), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    equal = bool(check(pytree.tree_unflatten(got, structure)) == check(expected))
    return Agreement(output=worst.output, error=worst.error, limit=worst.limit, check=equal)


def randomize(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Puts made-up numbers in the place of every tensor, as `tpuc run --random` makes them up."""
    leaves, structure = pytree.tree_flatten((args, dict(kwargs)))
    made = [_random(leaf, number) if isinstance(leaf, torch.Tensor) else leaf for number, leaf in enumerate(leaves)]
    new_args, new_kwargs = pytree.tree_unflatten(made, structure)
    return new_args, new_kwargs


def _random(tensor: torch.Tensor, number: int) -> torch.Tensor:
    spec = TensorSpec(name=str(number), dtype=dtype_of(to_numpy(tensor)).name, dims=tuple(tensor.shape))
    return _to_torch(random_input(spec, _SEED), tensor.dtype)


def _to_torch(array: Array, dtype: torch.dtype) -> torch.Tensor:
    # PyTorch reads no NumPy array of bf16 or f8; f32 holds all their values.
    return torch.from_numpy(array if array.dtype.isbuiltin == 1 else array.astype(np.float32)).to(dtype)


def _compare(name: str, result: Array, expected: Array) -> Agreement:
    dtype = dtype_of(expected).name
    return Agreement(output=name, error=relative_error(result, expected), limit=LIMITS.get(dtype, 0.0))


def relative_error(result: Array, expected: Array) -> float:
    """The largest difference of two arrays of one shape, relative to the largest finite value of the second.

    Infinities and NaNs must be in the same places; otherwise the error is infinite.
    """
    if not expected.size:
        return 0.0
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    a, b = result.astype(wide), expected.astype(wide)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    scale = float(np.abs(b[finite]).max())
    return float(np.abs(a[finite] - b[finite]).max()) / (scale or 1.0)
