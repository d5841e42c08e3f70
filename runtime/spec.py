"""What a tensor looks like: its name, element type and dimensions, and their text form `x=bf16[batch,2*seq-1]`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tpuc.runtime.dtypes import DType, dtype
from tpuc.runtime.errors import InputError
from tpuc.runtime.sizes import SizeExpr

_TEXT = re.compile(r"(?:(?P<name>[^=\s]+)=)?(?P<dtype>\w+)\[(?P<dims>[^\[\]]*)\]")


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """The name, element type and dimensions of a tensor.

    Attributes:
        name: The name, or "" where a tensor needs none.
        dtype: The element type's name: `bf16`.
        dims: The dimensions, outermost first. A text is an expression of sizes that are not known until the program
            runs: `seq`, `(height-3)//2+1`.
    """

    name: str
    dtype: str
    dims: tuple[int | str, ...]

    @classmethod
    def parse(cls, text: str) -> TensorSpec:
        """Reads the text form: `x=bf16[batch,2*seq]`, `f32[1,3,224,224]`, `step=i32[]`.

        Raises:
            InputError: The text has another form, or names an unknown dtype.
        """
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise InputError(
                f"{text!r} is not a tensor spec", hint="Write name=dtype[dims], such as x=f32[1,3,224,224]."
            )
        dtype(match["dtype"])
        dims = tuple(_parse_dim(part, text) for part in match["dims"].split(",")) if match["dims"].strip() else ()
        return cls(name=match["name"] or "", dtype=match["dtype"], dims=dims)

    def __str__(self) -> str:
        shape = f"{self.dtype}[{','.join(map(str, self.dims))}]"
        return f"{self.name}={shape}" if self.name else shape

    @property
    def type(self) -> DType:
        """The element type.

        Raises:
            InputError: `dtype` names none.
        """
        return dtype(self.dtype)

    @property
    def is_static(self) -> bool:
        """Whether every dimension is a number."""
        return all(isinstance(dim, int) for dim in self.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions as numbers.

        Raises:
            InputError: One of them is an expression.
        """
        sizes = tuple(dim for dim in self.dims if isinstance(dim, int))
        if len(sizes) != len(self.dims):
            raise InputError(f"{self} has a size that is not known yet", hint="Give every dimension as a number.")
        return sizes

    @property
    def names(self) -> frozenset[str]:
        """The sizes that the dimensions depend on."""
        return frozenset[str]().union(*(SizeExpr.of(dim).names for dim in self.dims))

    def at(self, sizes: Mapping[str, int]) -> TensorSpec:
        """Returns the spec with numbers for its dimensions.

        Raises:
            KeyError: A size is missing.
        """
        return replace(self, dims=tuple(SizeExpr.of(dim).evaluate(sizes) for dim in self.dims))

    def admits(self, shape: Sequence[int]) -> bool:
        """Says whether a tensor of this shape can be meant: as many dimensions, and those that are numbers the same."""
        return len(shape) == len(self.dims) and all(
            isinstance(dim, str) or dim == size for dim, size in zip(self.dims, shape, strict=True)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor's values, dense.

        Raises:
            InputError: A dimension is an expression.
        """
        return math.prod(self.shape) * self.type.itemsize


def _parse_dim(part: str, text: str) -> int | str:
    part = part.strip()
    if part.isascii() and part.isdigit():
        return int(part)
    try:
        expression = SizeExpr.of(part)
    except InputError as error:
        raise InputError(f"{part!r} in {text!r} is no size", hint=error.hint) from None
    if expression.constant is not None:
        raise InputError(f"{part!r} in {text!r} is a number that is not written as one")
    return str(expression)
