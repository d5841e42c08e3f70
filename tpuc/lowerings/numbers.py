"""Numbers that depend on the data, as tensors of no dimensions; see `tpuc.frontend.data_dependence`."""

from __future__ import annotations

import jax
import torch

from tpuc.lowerings.registry import lowering

Array = jax.Array

torch.library.define("tpuc::number", "(Tensor x) -> Tensor")


@lowering("tpuc.number.default", why="a program has tensors only")
def number(x: Array) -> Array:
    """The one element of a tensor; the result is i64, f64 or bool, as Python's numbers are."""
    return x.reshape(())
