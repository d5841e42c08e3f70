"""Custom operators that write to their arguments.

torch.export makes each call of one functional: a higher-order operator takes the tensors that are written (the bases),
says which argument is which of them, or a slice of one, and returns the operator's results and the bases' new values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import torch
from jax import lax

from tpuc.lowerings.call import operator_name
from tpuc.lowerings.evaluate import MissingLoweringError
from tpuc.lowerings.registry import REGISTRY, lowering

Array = jax.Array


@dataclass(frozen=True, kw_only=True)
class _View:
    """Where a written argument stands in the bases.

    Attributes:
        base: The number of its base.
        dim: The dimension that it is a slice of; None if it is the whole base.
        start: The slice's first index.
        end: The index after its last.
    """

    base: int
    dim: int | None = None
    start: int = 0
    end: int = 0

    def read(self, bases: Sequence[Array]) -> Array:
        base = bases[self.base]
        return base if self.dim is None else lax.slice_in_dim(base, self.start, self.end, axis=self.dim)

    def write(self, bases: list[Array], value: Array) -> None:
        base = bases[self.base]
        value = value.astype(base.dtype)
        if self.dim is not None:
            value = lax.dynamic_update_slice_in_dim(base, value, self.start, axis=self.dim)
        bases[self.base] = value


@lowering("higher_order.auto_functionalized_v2", why="what is written to is returned")
def auto_functionalized(
    operator: torch._ops.OpOverload, *, _all_bases: Sequence[Array], **kwargs: Any
) -> tuple[Any, ...]:
    """Calls an operator's lowering, which returns its results and then a new value for each argument that it writes."""
    name = operator_name(operator)
    found = REGISTRY.get(name)
    if found is None:
        raise MissingLoweringError(name, "it writes to its arguments, and has no lowering that returns what it writes")
    bases = list(_all_bases)
    views = {
        argument.name: _view(argument.name, kwargs, bases)
        for argument in operator._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    }
    given = {
        argument.name: views[argument.name].read(bases) if argument.name in views else kwargs[argument.name]
        for argument in operator._schema.arguments
    }
    results = found.function(**given)
    flat = list(results) if isinstance(results, tuple | list) else [results]
    count = len(operator._schema.returns)
    for view, value in zip(views.values(), flat[count:], strict=True):
        view.write(bases, value)
    return (*(flat[:count] or [None]), *bases)


def _view(name: str, kwargs: dict[str, Any], bases: Sequence[Array]) -> _View:
    base = kwargs.get(f"_{name}_base_index")
    if base is None or f"_{name}_stride" in kwargs:
        raise NotImplementedError(f"it writes to {name}, which is neither a tensor of its own nor a slice of one")
    dim = kwargs.get(f"_{name}_slice_dim")
    if dim is None:
        return _View(base=base)
    start, end, _ = slice(kwargs[f"_{name}_slice_start"], kwargs[f"_{name}_slice_end"]).indices(bases[base].shape[dim])
    return _View(base=base, dim=dim, start=start, end=end)
