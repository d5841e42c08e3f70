"""Lowering for sizes that vary: tables that depend on a size are computed in the program, not beforehand.

A program with named sizes is lowered at a few of them, and what differs must be numbers. A table of interpolation
weights is not; the operations that compute it from the size are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax.numpy as jnp
import numpy as np

_VARY: ContextVar[bool] = ContextVar("_VARY", default=False)


@contextmanager
def any_size() -> Iterator[None]:
    """Lowers for sizes that vary while the block runs."""
    token = _VARY.set(True)
    try:
        yield
    finally:
        _VARY.reset(token)


def sizes_vary() -> bool:
    """Whether the sizes that a lowering sees are samples of ones that vary."""
    return _VARY.get()


def tables() -> Any:
    """Returns the module that computes tables: NumPy, or JAX's copy of it where sizes vary."""
    return jnp if sizes_vary() else np
