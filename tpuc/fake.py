"""Modules whose weights have shapes and no memory.

Under `lazy_weights`, a large tensor that a factory makes goes to PyTorch's meta device, and everything computed
from it stays there; small tensors stay real, so that what a module computes from its configuration (rotary
frequencies, masks, scales) keeps its values. `fake_weights` then gives torch.export what it wants: fake tensors.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

#: Elements from which a tensor counts as large. Weights smaller than this cost next to nothing.
_LARGE = 1 << 20

_FACTORIES: frozenset[Callable[..., Any]] = frozenset(
    {torch.empty, torch.full, torch.ones, torch.rand, torch.randn, torch.zeros}
)


class _LazyWeights(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if (
            func in _FACTORIES
            and kwargs.get("device") in (None, "cpu", torch.device("cpu"))
            and _elements(args, kwargs) >= _LARGE
        ):
            kwargs = {**kwargs, "device": "meta"}
        return func(*args, **kwargs)


@contextmanager
def lazy_weights(*, enabled: bool) -> Iterator[None]:
    """Makes large tensors without memory while the block runs, if enabled."""
    if not enabled:
        yield
        return
    with _LazyWeights(), warnings.catch_warnings():
        # A checkpoint that the user's code loads has nowhere to go.
        warnings.filterwarnings("ignore", "for .*: copying from a non-meta parameter", UserWarning)
        yield


def fake_weights(module: torch.nn.Module) -> FakeTensorMode:
    """Replaces a module's parameters, and those of its buffers that have no memory, by fake tensors on the CPU.

    Returns:
        The mode that the fake tensors belong to, under which the module must be exported.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    replaced: dict[int, torch.Tensor] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        # A tied weight stays tied.
        if id(tensor) not in replaced:
            with mode:
                made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            replaced[id(tensor)] = torch.nn.Parameter(made, requires_grad=False) if is_parameter else made
        return replaced[id(tensor)]

    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = fake(parameter)  # type: ignore[assignment]
        for name, buffer in part._buffers.items():
            if buffer is not None and buffer.is_meta:
                part._buffers[name] = fake(buffer)
    return mode


def fake_mode_of(graph: torch.fx.Graph) -> FakeTensorMode | None:
    """Returns the mode of a graph's fake tensors, which may be another than the active one; None if it has none."""
    for node in graph.nodes:
        for leaf in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(leaf, FakeTensor):
                return leaf.fake_mode
    return None


def _elements(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    size = kwargs.get("size", args[0] if args and isinstance(args[0], list | tuple) else args)
    return math.prod(part for part in size if isinstance(part, int))
