"""Scaled dot-product attention."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import torch
from jax import lax

from tpuc.lowerings.call import argument_of
from tpuc.lowerings.random import native_dropout
from tpuc.lowerings.registry import lowering

Array = jax.Array


def _drops(node: torch.fx.Node) -> bool:
    return bool(argument_of(node, "dropout_p"))


@lowering(
    "aten.scaled_dot_product_attention.default",
    why="kept whole, so that passes see attention; softmax in f32",
    random=_drops,
)
def scaled_dot_product_attention(
    random_key: Array | None,
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Array:
    """`softmax(query @ key.T * scale + mask) @ value`.

    Args:
        random_key: For dropout; None if there is none.
        query: [..., heads, L, E].
        key: [..., kv_heads, S, E]; with `enable_gqa`, kv_heads divides heads.
        value: [..., kv_heads, S, Ev].
        attn_mask: Broadcasts to [..., heads, L, S]: bool (True takes part) or added to the scores.
        dropout_p: The probability with which a weight of the softmax becomes 0.
        is_causal: Position i sees positions up to i.
        scale: 1 / sqrt(E) if None.
        enable_gqa: Whether several query heads share one of key and value.
    """
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    groups = query.shape[-3] // key.shape[-3] if enable_gqa else 1
    batch = jnp.broadcast_shapes(query.shape[:-3], key.shape[:-3]) if query.ndim > 2 else ()
    if groups > 1:
        # Query heads that share a key head lie side by side.
        query = query.reshape(*query.shape[:-3], key.shape[-3], groups, *query.shape[-2:])
        key, value = key[..., None, :, :], value[..., None, :, :]
    wide = jnp.promote_types(query.dtype, jnp.float32)
    scores = jnp.einsum("...le,...se->...ls", query, key, preferred_element_type=wide) * jnp.asarray(scale, wide)
    if attn_mask is not None and groups > 1 and attn_mask.ndim >= 3:
        heads = attn_mask.shape[-3]
        split = (key.shape[-4], groups) if heads > 1 else (1, 1)
        attn_mask = attn_mask.reshape(*attn_mask.shape[:-3], *split, *attn_mask.shape[-2:])
    scores = _masked(scores, attn_mask, is_causal)
    weights = _softmax(scores, may_be_masked_out=attn_mask is not None or is_causal)
    if random_key is not None:
        weights, _ = native_dropout(random_key, weights, dropout_p, True)
    output = jnp.einsum("...ls,...se->...le", weights.astype(value.dtype), value)
    if groups > 1:
        output = output.reshape(*batch, -1, *output.shape[-2:])
    return output


def _masked(scores: Array, mask: Array | None, is_causal: bool) -> Array:
    if is_causal:
        rows, columns = scores.shape[-2:]
        seen = lax.broadcasted_iota(jnp.int32, (rows, columns), 0) >= lax.broadcasted_iota(
            jnp.int32, (rows, columns), 1
        )
        scores = jnp.where(seen, scores, -jnp.inf)
    if mask is None:
        return scores
    if mask.dtype == jnp.bool_:
        return jnp.where(mask, scores, -jnp.inf)
    return scores + mask


def _softmax(scores: Array, *, may_be_masked_out: bool) -> Array:
    """Softmax over the last dimension; a row that is all -inf gives zeros, as PyTorch has it."""
    if not may_be_masked_out:
        return jax.nn.softmax(scores, axis=-1)
    # Reductions that begin at the least finite number and the least normal one let such a row come out as 0 / tiny.
    # Other rows sum to 1 or more, and do not see it. A select after each reduction would keep XLA from fusing them.
    limits, last = jnp.finfo(scores.dtype), (scores.ndim - 1,)
    peak = lax.reduce(scores, limits.min, lax.max, last)
    weights = jnp.exp(scores - peak[..., None])
    total = lax.reduce(weights, limits.tiny, lax.add, last)
    return weights / total[..., None]
