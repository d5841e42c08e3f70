"""Attention as a kernel: when, what becomes of its mask and its shared heads, and that it computes the same.

The kernel is lowered as JAX interprets it, so that the CPU can evaluate what the pass makes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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

#: What a kernel was lowered for: query, key, value, mask, whether it is causal.
Lowered = tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct, jax.ShapeDtypeStruct, jax.ShapeDtypeStruct | None, bool]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[Lowered]:
    """Lowers kernels for the CPU, and collects what they were lowered for."""
    lowered: list[Lowered] = []

    def lower(*shapes: jax.ShapeDtypeStruct, is_causal: bool, scale: float) -> bytes:
        lowered.append((*shapes, is_causal))  # type: ignore[arg-type]
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
    assert kernels == [(*QKV, None, True)]
    assert "composite" not in text
    assert text.count("func.func") == 1


def test_a_mask_that_is_an_input(kernels: list[Lowered]) -> None:
    mask = jax.ShapeDtypeStruct((B, 1, 1, TOKENS), jnp.bool_)
    _as_kernel(_composite, *QKV, mask)
    assert kernels == [(*QKV, mask, False)]


def test_a_mask_is_read_as_it_was_before_it_was_broadcast(kernels: list[Lowered]) -> None:
    def broadcast(query: Array, key: Array, value: Array, mask: Array) -> Array:
        return _composite(query, key, value, lax.broadcast_in_dim(mask, (B, HEADS, TOKENS, TOKENS), (0, 1, 2, 3)))

    mask = jax.ShapeDtypeStruct((B, 1, 1, TOKENS), jnp.float32)
    _as_kernel(broadcast, *QKV, mask)
    assert kernels == [(*QKV, mask, False)]


def _with_mask(make: Callable[[], Array], query: Array, key: Array, value: Array) -> Array:
    return _composite(query, key, value, make())


def _triangle() -> Array:
    positions = jnp.arange(TOKENS)
    return (positions[:, None] >= positions)[None, None]


def test_a_mask_of_the_past_is_causality(kernels: list[Lowered]) -> None:
    _as_kernel(partial(_with_mask, _triangle), *QKV)
    _as_kernel(partial(_with_mask, lambda: jnp.where(_triangle(), 0.0, -jnp.inf)), *QKV)
    assert kernels == [(*QKV, None, True)] * 2


def test_a_mask_that_hides_nothing_goes(kernels: list[Lowered]) -> None:
    _as_kernel(partial(_with_mask, lambda: (jnp.arange(TOKENS) >= 0)[None, None, None]), *QKV)
    assert kernels == [(*QKV, None, False)]


@pytest.mark.parametrize("make", [lambda: ~_triangle(), lambda: jnp.where(_triangle(), 0.5, -jnp.inf)])
def test_any_other_mask_stays(kernels: list[Lowered], make: Callable[[], Array]) -> None:
    _as_kernel(partial(_with_mask, make), *QKV)
    ((_, _, _, mask, is_causal),) = kernels
    assert mask is not None
    assert mask.shape == (1, 1, TOKENS, TOKENS)
    assert not is_causal


def test_repeated_heads_are_read_once(kernels: list[Lowered]) -> None:
    def repeated(query: Array, key: Array, value: Array) -> Array:
        return _composite(query, jnp.repeat(key, 2, axis=1), jnp.repeat(value, 2, axis=1))

    shared = jax.ShapeDtypeStruct((B, HEADS // 2, TOKENS, SIZE), jnp.float32)
    _as_kernel(repeated, QKV[0], shared, shared)
    assert kernels == [(QKV[0], shared, shared, None, False)]


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
