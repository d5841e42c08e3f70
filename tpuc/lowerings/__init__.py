"""How each operator becomes StableHLO: the registry, and one file a family of operators.

Importing this package registers every lowering. JAX is told to stay on the CPU: it only traces here.
"""

from __future__ import annotations

import jax

jax.config.update("jax_platforms", "cpu")

from tpuc.lowerings import (  # noqa: E402  After JAX is told.
    activation,
    attention,
    convolution,
    creation,
    elementwise,
    indexing,
    matmul,
    normalization,
    pooling,
    reduction,
    shape,
)

__all__ = [
    "activation",
    "attention",
    "convolution",
    "creation",
    "elementwise",
    "indexing",
    "matmul",
    "normalization",
    "pooling",
    "reduction",
    "shape",
]
