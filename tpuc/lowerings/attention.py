"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import torch
from jax import lax

from tpuc.lowerings.call import argument_of
from tpuc.lowerings.random import native_dropout
from tpuc.lowerings.registry import lowering

Array = jax.Array

#: The composite that stands for attention in StableHLO, until a pass makes a kernel of it or puts it back as it was.
ATTENTION = "tpuc.attention"


def _drops(node: torch.fx.Node) -> bool:
    return bool(argument_of(node, "dropout_p"))


@lowering(
    "aten.scaled_dot_product_attention.default",
    why="kept whole as a composite, so that passes see attention; softmax in f32",
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
    batch = jnp.broadcast_shapes(*(x.shape[:-3] for x in (query, key, value)))
    if not enable_gqa:
        # Heads broadcast as batches do.
        leading = jnp.broadcast_shapes(*(x.shape[:-2] for x in (query, key, value)))
        query, key, value = (jnp.broadcast_to(x, leading + x.shape[-2:]) for x in (query, key, value))
    shape = (*batch, *query.shape[-3:-1], value.shape[-1])
    operands = [_with_batch(x, batch) for x in (query, key, value)]
    if attn_mask is not None:
        if math.prod(attn_mask.shape[:-3]) > 1:
            operands.append(_with_batch(attn_mask, batch))
        else:
            operands.append(_with_batch(attn_mask.reshape(attn_mask.shape[-3:]), ()))
    if random_key is None:
        output = lax.composite(attention, ATTENTION, version=1)(*operands, is_causal=is_causal, scale=scale)
    else:
        output = attention(
            *operands,
            is_causal=is_causal,
            scale=scale,
            drop=lambda weights: native_dropout(random_key, weights, dropout_p, True)[0],
        )
    return output.reshape(shape)


def _with_batch(x: Array, batch: tuple[int, ...]) -> Array:
    """Broadcasts [..., heads, tokens, size] to these batches, and gives it one dimension for all of them."""
    x = x.reshape((1,) * (3 - x.ndim) + x.shape)
    x = jnp.broadcast_to(x, (*batch, *x.shape[-3:]))
    return x.reshape(math.prod(batch), *x.shape[-3:])


def attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    is_causal: bool,
    scale: float,
    drop: Callable[[Array], Array] = lambda weights: weights,
) -> Array:
    """What the composite `tpuc.attention` stands for: softmax(query @ key.T * scale + mask) @ value, softmax in f32.

    Args:
        query: [batch, heads, L, E].
        key: [batch, kv_heads, S, E]; kv_heads divides heads, and heads that share one lie side by side.
        value: [batch, kv_heads, S, Ev].
        mask: [batch or 1, heads or 1, L or 1, S or 1]: bool (True takes part) or added to the scores.
        is_causal: Position i sees positions up to i only.
        scale: What the scores are multiplied with.
        drop: What becomes of the weights of the softmax, for dropout.

    Returns:
        [batch, heads, L, Ev]; a row that sees nothing is zero.
    """
    heads, kv_heads = query.shape[1], key.shape[1]
    output_shape = (*query.shape[:-1], value.shape[-1])
    if heads != kv_heads:
        # A dimension for the heads that share one of key and value.
        query = query.reshape(query.shape[0], kv_heads, heads // kv_heads, *query.shape[2:])
        key, value = key[:, :, None], value[:, :, None]
        if mask is not None:
            split = (kv_heads, heads // kv_heads) if mask.shape[1] > 1 else (1, 1)
            mask = mask.reshape(mask.shape[0], *split, *mask.shape[2:])
    wide = jnp.promote_types(query.dtype, jnp.float32)
    scores = jnp.einsum("...le,...se->...ls", query, key, preferred_element_type=wide) * jnp.asarray(scale, wide)
    scores = _masked(scores, mask, is_causal)
    weights = drop(_softmax(scores, may_be_masked_out=mask is not None or is_causal))
    return jnp.einsum("...ls,...se->...le", weights.astype(value.dtype), value).reshape(output_shape)


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
