"""One call of an operator, as a lowering sees it: shapes and dtypes in place of tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tpuc.errors import ExportError


@dataclass(frozen=True, kw_only=True)
class TensorMeta:
    """A tensor's shape and dtype.

    Attributes:
        shape: Static sizes.
        dtype: PyTorch's dtype.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorMeta:
        """Reads a tensor's, real or fake.

        Raises:
            ExportError: It is a number that depends on data, or a size is symbolic.
        """
        if not isinstance(tensor, torch.Tensor):
            raise ExportError(f"the program holds {tensor}, a Python number that depends on the values of tensors")
        if not all(isinstance(size, int) for size in tensor.shape):
            raise ExportError(f"a tensor has a symbolic size: {tuple(tensor.shape)}")
        return cls(shape=tuple(tensor.shape), dtype=tensor.dtype)


#: The keyword argument under which an operator that draws random numbers gets its seed, an i64 tensor of no dimension.
SEED = "seed"


@dataclass(frozen=True, kw_only=True)
class OpCall:
    """An operator with the kinds of its arguments and results.

    Attributes:
        target: The operator: an `OpOverload`, or a higher-order operator.
        args: Positional arguments; tensors stand as `TensorMeta`.
        kwargs: Keyword arguments, likewise.
        results: The results' structure, likewise.
    """

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: Any

    @property
    def operator(self) -> str:
        """The operator's full name: `aten.layer_norm.default`."""
        return operator_name(self.target)

    @property
    def tensors(self) -> tuple[TensorMeta, ...]:
        """The tensor arguments, in the order of flattening."""
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        return tuple(leaf for leaf in leaves if isinstance(leaf, TensorMeta))

    @property
    def outputs(self) -> tuple[TensorMeta, ...]:
        """The tensor results, in the order of flattening."""
        return tuple(leaf for leaf in pytree.tree_leaves(self.results) if isinstance(leaf, TensorMeta))

    def signature(self) -> str:
        """Identifies the call among others: equal text, equal body.

        Arguments are told apart by type as well as value: `1`, `1.0` and `True` are three. A graph equals itself only.
        """
        leaves, spec = pytree.tree_flatten((self.args, self.kwargs))
        parts = (_identity(leaf) for leaf in leaves)
        outputs = ",".join(map(repr, self.outputs))
        return f"{self.operator}({','.join(parts)})->{outputs};{spec}"

    def with_tensors(self, values: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns args and kwargs with `values` in the places of the tensors."""
        leaves, spec = pytree.tree_flatten((self.args, self.kwargs))
        rest = iter(values)
        filled = [next(rest) if isinstance(leaf, TensorMeta) else leaf for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return args, kwargs


def _identity(leaf: Any) -> str:
    return f"{type(leaf).__name__}:{id(leaf) if isinstance(leaf, torch.fx.GraphModule) else repr(leaf)}"


def argument_of(node: torch.fx.Node, name: str) -> Any:
    """Returns a node's argument by the name that it has in the operator's schema; its default if it is not given."""
    target = node.target
    assert isinstance(target, torch._ops.OpOverload)
    for place, argument in enumerate(target._schema.arguments):
        if argument.name == name:
            return node.args[place] if place < len(node.args) else node.kwargs.get(name, argument.default_value)
    raise KeyError(name)


def operator_name(target: Callable[..., Any] | str) -> str:
    """Returns the name that the registry knows an operator by, such as `aten.add.Tensor`."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    return getattr(target, "__name__", str(target))
