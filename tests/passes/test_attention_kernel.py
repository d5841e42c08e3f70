"""Attention as a kernel: when, what becomes of its mask and its shared heads, and that it computes the same.

The kernel is lowered as JAX interprets it, so that the CPU can evaluate what the pass makes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from tpuc import mlir
from tpuc.errors import RequestError
from tpuc.lowerings.attention import ATTENTION, attention
from tpuc.lowerings.flash_attention import lower_flash_attention
from tpuc.passes import attention_kernel, parse_pipeline, run_passes
from tpuc.passes.attention_kernel import AttentionKernel
from tpuc.targets import CPU, Target

from .evaluation import evaluate, make_inputs

V5P = Target.parse("v5p")
B, HEADS, TOKENS, SIZE = 2, 4, 24, 16
QKV = (jax.ShapeDtypeStruct((B, HEADS, TOKENS, SIZE), jnp.float32),) * 3

#: What a kernel was lowered for: query, key, value, mask, table of rotary embeddings, whether it is causal.
Lowered = tuple[Any, ...]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[Lowered]:
    """Lowers kernels for the CPU, and collects what they were lowered for."""
    lowered: list[Lowered] = []

    def lower(*shapes: Any, is_causal: bool, scale: float) -> bytes:
        *operands, rotary = shapes
        lowered.append((*operands, rotary[0] if rotary else None, is_causal))
        return lower_flash_attention(*shapes, is_causal=is_causal, scale=scale, interpret=True)

    monkeypatch.setattr(attention_kernel, "lower_flash_attention", lower)
    return lowered


def _composite(*operands: Array, is_causal: bool = False, scale: float = 0.25) -> Array:
    result: Array = lax.composite(attention, ATTENTION, version=1)(*operands, is_causal=is_causal, scale=scale)
    return result


def _run(function: Callable[..., Array], *shapes: jax.ShapeDtypeStruct, passes: str, target: Target = V5P) -> str:
    """Runs passes over a JAX function, and compares what it computes before and after.

    Returns:
        The module as the passes leave it.
    """
    text = jax.jit(function).trace(*shapes).lower(lowering_platforms=("cpu",)).as_text()
    with mlir.make_context() as context:
        module = mlir.parse(text, context)
        mlir.inline_calls(module)
        mlir.run_pipeline(module, "symbol-dce")
        inputs = make_inputs(module, 0)
        before = evaluate(module, inputs)
        run_passes(module, parse_pipeline(passes), target)
        after = evaluate(module, inputs)
        for old, new in zip(before, after, strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5)
        return mlir.to_text(module)


def _as_kernel(function: Callable[..., Array], *shapes: jax.ShapeDtypeStruct) -> str:
    return _run(function, *shapes, passes="attention-kernel{use=always}")


def test_calls_of_one_kind_share_a_kernel(kernels: list[Lowered]) -> None:
    def twice(query: Array, key: Array, value: Array) -> Array:
        return _composite(_composite(query, key, value, is_causal=True), key, value, is_causal=True)

    text = _as_kernel(twice, *QKV)
    assert kernels == [(*QKV, None, None, True)]
    assert "composite" not in text
    assert text.count("func.func") == 1


def test_a_mask_that_is_an_input(kernels: list[Lowered]) -> None:
    mask = jax.ShapeDtypeStruct((B, 1, 1, TOKENS), jnp.bool_)
    _as_kernel(_composite, *QKV, mask)
    assert kernels == [(*QKV, mask, None, False)]


def test_a_mask_is_read_as_it_was_before_it_was_broadcast(kernels: list[Lowered]) -> None:
    def broadcast(query: Array, key: Array, value: Array, mask: Array) -> Array:
        return _composite(query, key, value, lax.broadcast_in_dim(mask, (B, HEADS, TOKENS, TOKENS), (0, 1, 2, 3)))

    mask = jax.ShapeDtypeStruct((B, 1, 1, TOKENS), jnp.float32)
    _as_kernel(broadcast, *QKV, mask)
    assert kernels == [(*QKV, mask, None, False)]


def _with_mask(make: Callable[[], Array], query: Array, key: Array, value: Array) -> Array:
    return _composite(query, key, value, make())


def _triangle() -> Array:
    positions = jnp.arange(TOKENS)
    return (positions[:, None] >= positions)[None, None]


def test_a_mask_of_the_past_is_causality(kernels: list[Lowered]) -> None:
    _as_kernel(partial(_with_mask, _triangle), *QKV)
    _as_kernel(partial(_with_mask, lambda: jnp.where(_triangle(), 0.0, -jnp.inf)), *QKV)
    assert kernels == [(*QKV, None, None, True)] * 2


def test_a_mask_that_hides_nothing_goes(kernels: list[Lowered]) -> None:
    _as_kernel(partial(_with_mask, lambda: (jnp.arange(TOKENS) >= 0)[None, None, None]), *QKV)
    assert kernels == [(*QKV, None, None, False)]


@pytest.mark.parametrize("make", [lambda: ~_triangle(), lambda: jnp.where(_triangle(), 0.5, -jnp.inf)])
def test_any_other_mask_stays(kernels: list[Lowered], make: Callable[[], Array]) -> None:
    _as_kernel(partial(_with_mask, make), *QKV)
    ((_, _, _, mask, _, is_causal),) = kernels
    assert mask is not None
    assert mask.shape == (1, 1, TOKENS, TOKENS)
    assert not is_causal


def test_repeated_heads_are_read_once(kernels: list[Lowered]) -> None:
    def repeated(query: Array, key: Array, value: Array) -> Array:
        return _composite(query, jnp.repeat(key, 2, axis=1), jnp.repeat(value, 2, axis=1))

    shared = jax.ShapeDtypeStruct((B, HEADS // 2, TOKENS, SIZE), jnp.float32)
    _as_kernel(repeated, QKV[0], shared, shared)
    assert kernels == [(QKV[0], shared, shared, None, None, False)]


ROTATED = jax.ShapeDtypeStruct((B, HEADS, TOKENS, 128), jnp.float32)


def _rotate(x: Array, cos: Array, sin: Array) -> Array:
    first, second = jnp.split(x, 2, -1)
    return x * cos + jnp.concatenate([-second, first], -1) * sin


@pytest.mark.parametrize("batches", [1, B])
def test_rotary_embeddings_are_left_to_the_kernel(kernels: list[Lowered], batches: int) -> None:
    def rotated(query: Array, key: Array, value: Array, cos: Array, sin: Array) -> Array:
        cos, sin = cos[:, None], sin[:, None]
        return _composite(_rotate(query, cos, sin), _rotate(key, cos, sin), value)

    table = jax.ShapeDtypeStruct((batches, TOKENS, 128), jnp.float32)
    text = _run(rotated, *[ROTATED] * 3, table, table, passes="simplify-shape,cse,attention-kernel{use=always},cse")
    assert kernels == [(*[ROTATED] * 3, None, table, False)]
    # The kernel itself works on blocks of two dimensions.
    assert not re.search(r"stablehlo.negate .*: tensor<\d+x\d+x\d+x", text)


def test_shared_heads_may_be_rotated(kernels: list[Lowered]) -> None:
    def rotated(query: Array, key: Array, value: Array, cos: Array, sin: Array) -> Array:
        query, key = _rotate(query, cos, sin), _rotate(key, cos, sin)
        return _composite(query, jnp.repeat(key, 2, axis=1), jnp.repeat(value, 2, axis=1))

    shared = jax.ShapeDtypeStruct((B, HEADS // 2, TOKENS, 128), jnp.float32)
    table = jax.ShapeDtypeStruct((TOKENS, 128), jnp.float32)
    _run(rotated, ROTATED, shared, shared, table, table, passes="simplify-shape,cse,attention-kernel{use=always}")
    expected = jax.ShapeDtypeStruct((1, TOKENS, 128), jnp.float32)
    assert kernels == [(ROTATED, shared, shared, None, expected, False)]


@pytest.mark.parametrize(
    "rotate",
    [
        lambda query, key, cos, sin: (_rotate(query, cos, sin), key),
        lambda query, key, cos, sin: (_rotate(query, cos, sin), _rotate(key, sin, cos)),
        lambda query, key, cos, sin: (_rotate(query, cos, sin)[:, ::-1], _rotate(key, cos, sin)[:, ::-1]),
        lambda query, key, cos, sin: (query * cos + key * sin, key * cos + query * sin),
    ],
    ids=["queries alone", "other angles", "something after", "no half turn"],
)
def test_what_is_no_rotation_of_both_stays(kernels: list[Lowered], rotate: Callable[..., tuple[Array, Array]]) -> None:
    def rotated(query: Array, key: Array, value: Array, cos: Array, sin: Array) -> Array:
        return _composite(*rotate(query, key, cos, sin), value)

    table = jax.ShapeDtypeStruct((TOKENS, 128), jnp.float32)
    _run(rotated, *[ROTATED] * 3, table, table, passes="simplify-shape,cse,attention-kernel{use=always}")
    assert kernels == [(*[ROTATED] * 3, None, None, False)]


def test_a_chip_without_products_of_bf16_gets_none_of_those(kernels: list[Lowered]) -> None:
    shapes = [jax.ShapeDtypeStruct(shape.shape, jnp.bfloat16) for shape in QKV]
    text = jax.jit(_composite).trace(*shapes).lower(lowering_platforms=("cpu",)).as_text()
    for chip in ("v3", "v4"):
        with mlir.make_context() as context:
            run_passes(mlir.parse(text, context), [AttentionKernel(use="always")], Target.parse(chip))
    assert len(kernels) == 1


def test_the_cpu_gets_none(kernels: list[Lowered]) -> None:
    _run(_composite, *QKV, passes="attention-kernel{use=always}", target=CPU)
    assert not kernels


def test_f64_gets_none(kernels: list[Lowered]) -> None:
    with jax.enable_x64(True):
        _as_kernel(_composite, *(jax.ShapeDtypeStruct(shape.shape, jnp.float64) for shape in QKV))
    assert not kernels


@pytest.mark.parametrize(("tokens", "count"), [(1024, 0), (2048, 1)])
def test_the_rule_goes_by_the_bytes_of_the_scores(kernels: list[Lowered], tokens: int, count: int) -> None:
    # 8 heads x 1024 x 1024 x 4 bytes are 32 MiB, half of a v5p's VMEM.
    shapes = (jax.ShapeDtypeStruct((1, 8, tokens, 64), jnp.bfloat16),) * 3
    with mlir.make_context() as context:
        module = mlir.parse(jax.jit(_composite).trace(*shapes).lower(lowering_platforms=("cpu",)).as_text(), context)
        run_passes(module, [AttentionKernel()], V5P)
    assert len(kernels) == count


def test_an_unknown_use() -> None:
    with pytest.raises(RequestError, match="use=sometimes"):
        parse_pipeline("attention-kernel{use=sometimes}")
