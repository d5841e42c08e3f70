"""The registry: for each operator, the one way it becomes StableHLO.

There are three ways:

- `torch-mlir`: torch-mlir's own conversion, for the few calls that it converts well (`tpuc.lowerings.native`);
- `jax`: a JAX function of the operator's own signature. The call is carried through torch-mlir as a `func.call`,
  and the function, lowered at the call's shapes and dtypes, is linked to it (`tpuc.frontend.link`);
- `decomposition`: nothing is registered, and PyTorch's own decomposition of the operator is evaluated with the
  registered ones (`tpuc.lowerings.evaluate`).

An operator may have one function for every platform, and one more for each platform that can do better: a kernel.
The registry is explicit: a second registration of either is an error, and `tpuc ops` prints it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from tpuc.errors import RequestError
from tpuc.lowerings.platforms import PLATFORMS, Platform

Promotion = Literal["default", "int_to_float", "bool", "keep"]
Function = Callable[..., Any]
#: What a lowering returns for a result that only a gradient reads: it becomes zeros of the shape that PyTorch gives.
UNREAD: Any = object()


@dataclass(frozen=True, kw_only=True)
class Lowering:
    """How one operator is lowered.

    Attributes:
        operator: The overload's full name: `aten.layer_norm.default`.
        function: A JAX function of the operator's signature.
        why: Why it is done this way.
        since: The version of tpuc that brought it; "" for a user's own.
        platform: The one platform that the function is for; None means all that have no function of their own.
        promotion: How tensor arguments are cast before `function` sees them, by PyTorch's type promotion
            (`torch._prims_common.elementwise_dtypes`): `default` to the common dtype, `int_to_float` likewise with
            integers as floats, `bool` to the common dtype with a bool result; `keep` leaves them alone.
        random: Whether a node that calls the operator draws random numbers. If this is given, `function` takes JAX's
            random key first, or None where the node does not draw.
    """

    operator: str
    function: Function
    why: str
    since: str
    platform: Platform | None = None
    promotion: Promotion = "keep"
    random: Callable[[torch.fx.Node], bool] | None = None

    @property
    def place(self) -> str:
        """Where the function is: `file:line`; "" for one that is not written in Python."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


class Registry:
    """Operators by name, each with its one `Lowering`, and its one for each platform."""

    def __init__(self) -> None:
        self._lowerings: dict[tuple[str, Platform | None], Lowering] = {}

    def register(self, lowering: Lowering) -> None:
        """Adds a lowering. A function that is defined again, as when its file is run again, takes its own place.

        Raises:
            RequestError: The operator has one already, from another place.
        """
        key = (lowering.operator, lowering.platform)
        found = self._lowerings.get(key)
        if found is not None and not _is_redefinition(found.function, lowering.function):
            raise RequestError(
                f"{lowering.operator} has a lowering already, at {found.place}",
                where=lowering.place or None,
                hint="An operator is lowered in one way only.",
            )
        self._lowerings[key] = lowering

    def get(self, operator: str, platform: Platform | None = None) -> Lowering | None:
        """Returns the operator's lowering for all platforms, or for just this one; None if there is none."""
        return self._lowerings.get((operator, platform))

    def kernels(self, operator: str) -> list[Lowering]:
        """Returns the operator's lowerings for one platform each."""
        return [found for platform in PLATFORMS if (found := self.get(operator, platform))]

    def __iter__(self) -> Iterator[Lowering]:
        return iter(sorted(self._lowerings.values(), key=lambda found: (found.operator, found.platform or "")))

    def __len__(self) -> int:
        return len(self._lowerings)


def _is_redefinition(old: Function, new: Function) -> bool:
    names = [(getattr(each, "__module__", ""), getattr(each, "__qualname__", "<none>")) for each in (old, new)]
    # Lambdas and the functions that another makes share their names.
    return names[0] == names[1] and "<" not in names[0][1]


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
                    function=function,
                    why=why,
                    since=since,
                    promotion=promotion,
                    random=random,
                )
            )
        return function

    return register
