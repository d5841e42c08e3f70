"""The registry: for each operator, the one way it becomes StableHLO.

There are three ways:

- `torch-mlir`: torch-mlir's own conversion, for operators where it is right and leaves nothing to clean up, and
  only for calls that its predicate admits;
- `jax`: a JAX function of the operator's own signature. The call is carried through torch-mlir as a `func.call`,
  and the function, lowered at the call's shapes and dtypes, is linked to it (`tpuc.frontend.link`);
- `decompose`: nothing is registered, and PyTorch's own decomposition of the operator is evaluated with the
  registered ones (`tpuc.lowerings.evaluate`).

The registry is explicit: a second registration of an operator is an error, and `tpuc ops` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from tpuc.errors import RequestError
from tpuc.lowerings.call import OpCall

How = Literal["torch-mlir", "jax"]
Promotion = Literal["default", "int_to_float", "bool", "keep"]
Function = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Lowering:
    """How one operator is lowered.

    Attributes:
        operator: The overload's full name: `aten.layer_norm.default`.
        how: `torch-mlir` or `jax`.
        why: Why it is done this way.
        since: The version of tpuc that brought it.
        function: A JAX function of the operator's signature; None where torch-mlir does every call. With
            `torch-mlir`, it serves the calls that `admits` refuses.
        admits: With `torch-mlir`, whether torch-mlir may have this call.
        promotion: How tensor arguments are cast before `function` sees them, by PyTorch's type promotion
            (`torch._prims_common.elementwise_dtypes`): `default` to the common dtype, `int_to_float` likewise with
            integers as floats, `bool` to the common dtype with a bool result; `keep` leaves them alone.
        random: Whether a node that calls the operator draws random numbers. If this is given, `function` takes JAX's
            random key first, or None where the node does not draw.
    """

    operator: str
    how: How
    why: str
    since: str
    function: Function | None = None
    admits: Callable[[OpCall], bool] | None = None
    promotion: Promotion = "keep"
    random: Callable[[torch.fx.Node], bool] | None = None


class Registry:
    """Operators by name, each with its one `Lowering`."""

    def __init__(self) -> None:
        self._lowerings: dict[str, Lowering] = {}

    def register(self, lowering: Lowering) -> None:
        """Adds a lowering.

        Raises:
            RequestError: The operator has one already.
        """
        if lowering.operator in self._lowerings:
            raise RequestError(
                f"{lowering.operator} has a lowering already", hint="An operator is lowered in one way only."
            )
        self._lowerings[lowering.operator] = lowering

    def get(self, operator: str) -> Lowering | None:
        """Returns the operator's lowering, or None."""
        return self._lowerings.get(operator)

    def __iter__(self) -> Iterator[Lowering]:
        return iter(sorted(self._lowerings.values(), key=lambda lowering: lowering.operator))

    def __len__(self) -> int:
        return len(self._lowerings)


REGISTRY = Registry()


def lowering(
    *operators: str,
    why: str,
    promotion: Promotion = "keep",
    random: Callable[[torch.fx.Node], bool] | None = None,
    since: str = "0.1",
) -> Callable[[Function], Function]:
    """Registers a JAX function as the lowering of operators that share its signature; see `Lowering`."""

    def register(function: Function) -> Function:
        for operator in operators:
            REGISTRY.register(
                Lowering(
                    operator=operator,
                    how="jax",
                    why=why,
                    since=since,
                    function=function,
                    promotion=promotion,
                    random=random,
                )
            )
        return function

    return register
