"""LLaMA's prefill by hand in JAX: logits for every token of a prompt.

Reference: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models" (2023); rotary embeddings in halves,
as transformers lays them out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, ShapeDtypeStruct
from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, flash_attention
from jax.typing import DTypeLike

#: A tree of arrays, or of their shapes.
Params = dict[str, Any]

_EPSILON = 1e-6
_ROTARY_BASE = 10000


@dataclass(frozen=True, kw_only=True)
class LlamaConfig:
    """The sizes of a network; LLaMA-7B unless said otherwise."""

    width: int = 4096
    layers: int = 32
    heads: int = 32
    inner: int = 11008
    vocabulary: int = 32000


def program(
    config: LlamaConfig, *, batch: int, tokens: int, dtype: DTypeLike, flash: bool = False
) -> tuple[Callable[..., Array], tuple[Any, ...]]:
    """Returns the network over token ids, and the shapes of its arguments.

    Args:
        config: The sizes of the network.
        batch: Prompts at a time.
        tokens: The length of each.
        dtype: Of the parameters.
        flash: Whether attention is JAX's own Pallas kernel.
    """
    ids = ShapeDtypeStruct((batch, tokens), jnp.int32)
    return partial(prefill, heads=config.heads, flash=flash), (shapes(config, dtype), ids)


def shapes(config: LlamaConfig, dtype: DTypeLike) -> Params:
    """The shapes of the parameters."""

    def array(*dims: int) -> ShapeDtypeStruct:
        return ShapeDtypeStruct(dims, dtype)

    def layer() -> Params:
        return {
            "attention_norm": array(width),
            "query": array(width, width),
            "key": array(width, width),
            "value": array(width, width),
            "output": array(width, width),
            "norm": array(width),
            "gate": array(width, config.inner),
            "up": array(width, config.inner),
            "down": array(config.inner, width),
        }

    width = config.width
    return {
        "words": array(config.vocabulary, width),
        "layers": [layer() for _ in range(config.layers)],
        "norm": array(width),
        "head": array(width, config.vocabulary),
    }


def prefill(params: Params, ids: Array, *, heads: int, flash: bool) -> Array:
    """Reads a prompt: token ids, i32[batch, tokens] -> logits, [batch, tokens, vocabulary]."""
    x = params["words"][ids]
    cos, sin = _rotary(ids.shape[1], x.shape[-1] // heads, x.dtype)
    for layer in params["layers"]:
        x = _layer(x, layer, cos, sin, heads, flash)
    return _norm(x, params["norm"]) @ params["head"]


def _layer(x: Array, params: Params, cos: Array, sin: Array, heads: int, flash: bool) -> Array:
    x = x + _attention(_norm(x, params["attention_norm"]), params, cos, sin, heads, flash) @ params["output"]
    y = _norm(x, params["norm"])
    return x + (jax.nn.silu(y @ params["gate"]) * (y @ params["up"])) @ params["down"]


def _attention(x: Array, params: Params, cos: Array, sin: Array, heads: int, flash: bool) -> Array:
    batch, tokens, width = x.shape
    query, key, value = (
        (x @ params[name]).reshape(batch, tokens, heads, width // heads) for name in ("query", "key", "value")
    )
    query, key = _rotate(query, cos, sin), _rotate(key, cos, sin)
    if flash:
        return _flash(query, key, value).reshape(batch, tokens, width)
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * (width // heads) ** -0.5
    causal = jnp.tril(jnp.ones((tokens, tokens), bool))
    scores = jnp.where(causal, scores, jnp.finfo(x.dtype).min)
    weights = jax.nn.softmax(scores.astype(jnp.float32)).astype(x.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(batch, tokens, width)


def _flash(query: Array, key: Array, value: Array) -> Array:
    """Attention of [batch, tokens, heads, width] by the kernel, in blocks of 512."""
    block = min(query.shape[1], 512)
    sizes = BlockSizes(block_b=1, block_q=block, block_k_major=block, block_k=block)
    by_heads = (x.swapaxes(1, 2) for x in (query, key, value))
    return flash_attention(*by_heads, causal=True, sm_scale=query.shape[-1] ** -0.5, block_sizes=sizes).swapaxes(1, 2)


def _rotary(tokens: int, width: int, dtype: DTypeLike) -> tuple[Array, Array]:
    """Cosine and sine of each position's angles, [1, tokens, 1, width]."""
    angles = jnp.arange(tokens)[:, None] / _ROTARY_BASE ** (jnp.arange(0, width, 2) / width)
    angles = jnp.concatenate([angles, angles], -1)[None, :, None]
    return jnp.cos(angles).astype(dtype), jnp.sin(angles).astype(dtype)


def _rotate(x: Array, cos: Array, sin: Array) -> Array:
    first, second = jnp.split(x, 2, -1)
    return x * cos + jnp.concatenate([-second, first], -1) * sin


def _norm(x: Array, scale: Array) -> Array:
    wide = x.astype(jnp.float32)
    return scale * (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + _EPSILON)).astype(x.dtype)
