"""BERT's encoder by hand in JAX.

Reference: Devlin, Chang, Lee and Toutanova, "BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding" (NAACL 2019), with the exact GELU, as transformers computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, ShapeDtypeStruct
from jax.typing import DTypeLike

#: A tree of arrays, or of their shapes.
Params = dict[str, Any]

_EPSILON = 1e-12
_MASKED = -1e9


@dataclass(frozen=True, kw_only=True)
class BertConfig:
    """The sizes of an encoder; BERT-base unless said otherwise."""

    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    vocabulary: int = 30522
    positions: int = 512


BASE = BertConfig()
LARGE = BertConfig(width=1024, layers=24, heads=16, inner=4096)


def program(
    config: BertConfig, *, batch: int, tokens: int, dtype: DTypeLike
) -> tuple[Callable[..., tuple[Array, Array]], tuple[Any, ...]]:
    """Returns the encoder of token ids and an attention mask, and the shapes of its arguments."""
    ids = ShapeDtypeStruct((batch, tokens), jnp.int32)
    return partial(encode, heads=config.heads), (shapes(config, dtype), ids, ids)


def shapes(config: BertConfig, dtype: DTypeLike) -> Params:
    """The shapes of the parameters."""

    def array(*dims: int) -> ShapeDtypeStruct:
        return ShapeDtypeStruct(dims, dtype)

    def linear(inputs: int, outputs: int) -> Params:
        return {"weight": array(inputs, outputs), "bias": array(outputs)}

    def norm() -> Params:
        return {"scale": array(width), "bias": array(width)}

    def layer() -> Params:
        return {
            "query": linear(width, width),
            "key": linear(width, width),
            "value": linear(width, width),
            "output": linear(width, width),
            "attention_norm": norm(),
            "up": linear(width, config.inner),
            "down": linear(config.inner, width),
            "norm": norm(),
        }

    width = config.width
    return {
        "words": array(config.vocabulary, width),
        "positions": array(config.positions, width),
        "types": array(2, width),
        "norm": norm(),
        "layers": [layer() for _ in range(config.layers)],
        "pooler": linear(width, width),
    }


def encode(params: Params, ids: Array, attention_mask: Array, *, heads: int) -> tuple[Array, Array]:
    """Encodes sentences.

    Args:
        params: The parameters, as `shapes` lays them out.
        ids: Token ids, i32[batch, tokens].
        attention_mask: 1 for a token, 0 for padding, i32[batch, tokens].
        heads: Attention heads.

    Returns:
        The hidden states, [batch, tokens, width], and the pooled first token, [batch, width].
    """
    words = params["words"]
    x = words[ids] + params["positions"][: ids.shape[1]][None] + params["types"][jnp.zeros_like(ids)]
    x = _norm(x, params["norm"])
    mask = jnp.where(attention_mask[:, None, None, :] > 0, 0.0, _MASKED).astype(words.dtype)
    for layer in params["layers"]:
        x = _layer(x, mask, layer, heads)
    return x, jnp.tanh(_linear(x[:, 0], params["pooler"]))


def _layer(x: Array, mask: Array, params: Params, heads: int) -> Array:
    attended = _linear(_attention(x, mask, params, heads), params["output"])
    x = _norm(x + attended, params["attention_norm"])
    inner = jax.nn.gelu(_linear(x, params["up"]), approximate=False)
    return _norm(x + _linear(inner, params["down"]), params["norm"])


def _attention(x: Array, mask: Array, params: Params, heads: int) -> Array:
    batch, tokens, width = x.shape
    query, key, value = (
        _linear(x, params[name]).reshape(batch, tokens, heads, width // heads) for name in ("query", "key", "value")
    )
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(width // heads) + mask
    weights = jax.nn.softmax(scores.astype(jnp.float32)).astype(x.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(batch, tokens, width)


def _linear(x: Array, params: Params) -> Array:
    return x @ params["weight"] + params["bias"]


def _norm(x: Array, params: Params) -> Array:
    wide = x.astype(jnp.float32)
    centered = wide - wide.mean(-1, keepdims=True)
    variance = (centered**2).mean(-1, keepdims=True)
    return (centered * jax.lax.rsqrt(variance + _EPSILON)).astype(x.dtype) * params["scale"] + params["bias"]
