"""What is computed before the products that read it, in loops over layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from tpuc import mlir
from tpuc.passes.base import PassContext
from tpuc.passes.roll_layers import RollLayers
from tpuc.targets import CPU

from .evaluation import evaluate, make_inputs
from .jax_programs import jax_module

WIDTH = 8


def _norm(x: Array) -> Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def _normed(x: Array, wide: Array, back: Array) -> Array:
    return x + jnp.sum(_norm(x) @ wide) + x @ back


def _read_by_others(x: Array, wide: Array, back: Array) -> Array:
    normed = _norm(x)
    return x + jnp.sum(normed @ wide) + normed + x @ back


def _activated(x: Array, wide: Array, back: Array) -> Array:
    return jnp.tanh(x @ wide) @ back


def _gated(x: Array, wide: Array, back: Array) -> Array:
    halves = x @ wide
    half = halves.shape[1] // 2
    return (jnp.tanh(halves[:, :half]) * halves[:, half:]) @ back


@pytest.mark.parametrize(
    ("layer", "columns", "rows", "kept"),
    [
        # A norm is read by a product with as many columns, or with four times as many.
        (_normed, 3 * WIDTH, WIDTH, []),
        (_normed, 4 * WIDTH, WIDTH, ["multiply"]),
        # It is there anyway.
        (_read_by_others, 4 * WIDTH, WIDTH, []),
        # An activation between products, and one of halves of a product.
        (_activated, 4 * WIDTH, 4 * WIDTH, ["tanh"]),
        (_gated, 4 * WIDTH, 2 * WIDTH, []),
    ],
)
def test_what_is_kept_apart(layer: Callable[..., Array], columns: int, rows: int, kept: Sequence[str]) -> None:
    def layers(x: Array, *weights: Array) -> Array:
        for wide, back in zip(weights[::2], weights[1::2], strict=True):
            x = layer(x, wide, back)
        return x

    def shape(*sizes: int) -> Any:
        return jax.ShapeDtypeStruct(sizes, jnp.float32)

    with jax_module(layers, shape(4, WIDTH), *[shape(WIDTH, columns), shape(rows, WIDTH)] * 4) as module:
        inputs = make_inputs(module, 0)
        before = evaluate(module, inputs)
        assert RollLayers(mode="always", least=3).run(module, PassContext(target=CPU))["loops"] == 1
        module.operation.verify()
        for old, new in zip(before, evaluate(module, inputs), strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-4)
        barriers = mlir.find(module, "stablehlo.optimization_barrier")
        assert [each.operands[0].owner.name.removeprefix("stablehlo.") for each in barriers] == kept
