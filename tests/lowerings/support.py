"""Compares a PyTorch function, lowered through tpuc, with eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
from torch.utils import _pytree as pytree

from tpuc.frontend.capture import capture, export
from tpuc.lowerings.evaluate import evaluate_graph
from tpuc.packaging import to_numpy

#: Absolute, and relative to each element; other dtypes are equal.
TOLERANCE = {
    "float32": 1e-5,
    "float64": 1e-12,
    "complex64": 1e-5,
    "complex128": 1e-12,
    "bfloat16": 2e-2,
    "float16": 2e-3,
}


class _Call(torch.nn.Module):
    """Calls a function; the tensors among its arguments are the module's inputs."""

    def __init__(self, function: Callable[..., Any], leaves: list[Any], spec: pytree.TreeSpec) -> None:
        super().__init__()
        self._function = function
        self._leaves = leaves
        self._spec = spec

    def forward(self, *tensors: torch.Tensor) -> Any:
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return self._function(*args, **kwargs)


def lowered(function: Callable[..., Any], *args: Any, seed: int = 0, **kwargs: Any) -> list[Any]:
    """Exports a call, lowers it through the registry, runs it on the CPU, and returns the results as NumPy arrays.

    What draws random numbers draws them from the seed.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    captured = capture(export(_Call(function, leaves, spec), tuple(tensors), {}))
    inputs = iter(tensors)
    values = [
        np.int64(seed)
        if argument.kind == "seed"
        else to_numpy(next(inputs) if argument.tensor is None else argument.tensor)
        for argument in captured.arguments
    ]
    with jax.enable_x64(True):
        results = jax.jit(lambda *arrays: evaluate_graph(captured.graph, arrays))(*values)
    return [np.asarray(result) for result in results]


def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Asserts that a lowered call gives eager's results: shapes, dtypes and values, NaN where eager has NaN."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    copies = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    eager_args, eager_kwargs = pytree.tree_unflatten(copies, spec)
    expected = [to_numpy(leaf) for leaf in pytree.tree_leaves(function(*eager_args, **eager_kwargs))]
    results = lowered(function, *args, **kwargs)
    assert len(results) == len(expected)
    for result, want in zip(results, expected, strict=True):
        assert (result.shape, result.dtype) == (want.shape, want.dtype)
        tolerance = TOLERANCE.get(str(want.dtype), 0)
        wide = np.complex128 if want.dtype.kind == "c" else np.float64 if tolerance else want.dtype
        np.testing.assert_allclose(result.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance)
