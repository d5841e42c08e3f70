"""Decompositions for operators whose own one in PyTorch has a size that depends on the data, although none does.

They are registered with PyTorch, so that torch.export too finds a static size.
"""

from __future__ import annotations

import itertools

import torch


@torch.ops.aten.combinations.default.py_impl(torch._C.DispatchKey.CompositeImplicitAutograd)
def combinations(x: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    """All choices of r elements of a vector, one a row; PyTorch selects them by a mask."""
    if r == 0:
        return x.new_empty(0)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(x.shape[0]), r))
    return x[torch.tensor(rows, dtype=torch.int64, device=x.device).reshape(len(rows), r)]
