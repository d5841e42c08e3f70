"""Runs a whole module, and compares all the tensors that it returns with eager's."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks.against_eager import Runner, Verdict, difference, shapes_and_dtypes
from tpuc.packaging import to_numpy


def run_module(
    runner: Runner, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, random: bool = False
) -> Verdict:
    """Runs a module.

    Args:
        runner: Who runs it.
        module: The module; what its forward writes to stays as it is.
        args: Its positional inputs.
        kwargs: Its inputs by name.
        random: Whether it draws random numbers: shapes and dtypes are compared then, no values.
    """

    def eager() -> list[torch.Tensor]:
        own_args, own_kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, (args, dict(kwargs)))
        with torch.no_grad():
            outputs = copy.deepcopy(module)(*own_args, **own_kwargs)
        return [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]

    def compare(results: list[Any], expected: list[torch.Tensor]) -> str:
        return (shapes_and_dtypes if random else difference)(
            results, [to_numpy(tensor.detach()) for tensor in expected]
        )

    return runner.run(module, args, kwargs, eager=eager, compare=compare)
