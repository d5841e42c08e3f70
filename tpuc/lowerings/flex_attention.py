"""Attention whose scores and mask are functions of the user's: `torch.nn.attention.flex_attention`.

Each function is a graph on one score: it takes the numbers of the batch, the head, the query and the key, and the
tensors that it closes over. It is evaluated for all scores at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from torch.fx import GraphModule

from tpuc.lowerings.evaluate import evaluate_graph
from tpuc.lowerings.registry import lowering

Array = jax.Array


@lowering("higher_order.flex_attention", why="PyTorch's kernels are for other devices")
def flex_attention(
    query: Array,
    key: Array,
    value: Array,
    score_function: GraphModule,
    block_mask: Sequence[Any],
    scale: float,
    _kernel_options: dict[str, Any],
    score_operands: Sequence[Any] = (),
    mask_operands: Sequence[Any] = (),
) -> tuple[Array, Array, Array]:
    """Attends with scores that one function changes and another masks.

    Args:
        query: [N, H, L, E]; computed in f32, or f64 if it is f64.
        key: [N or 1, G, S, E], where G divides H.
        value: [N or 1, G, S, V].
        score_function: Makes a score of a score and its place.
        block_mask: What tells a kernel which blocks it may leave out, and last the function that masks: only that is
            needed here.
        scale: What the products are multiplied by.
        score_operands: What `score_function` closes over.
        mask_operands: What the mask's function closes over.

    Returns:
        [N, H, L, V]; the logarithm, to base 2, of each row's sum of exponentials, [N, H, L]; each row's largest score,
        over ln 2, likewise. A row that is masked whole gives 0, and -inf.
    """
    dtype = jnp.float64 if query.dtype == jnp.float64 else jnp.float32
    groups = query.shape[1] // key.shape[1]
    key, value = (
        jnp.broadcast_to(jnp.repeat(x, groups, axis=1), (query.shape[0], query.shape[1], *x.shape[2:]))
        for x in (key, value)
    )
    scores = jnp.matmul(query.astype(dtype), jnp.swapaxes(key, -2, -1).astype(dtype)) * jnp.asarray(scale, dtype)
    places = [jnp.arange(size, dtype=jnp.int32) for size in scores.shape]
    visible = _for_all(block_mask[-1], mask_operands, scores=False)(*places)
    changed = _for_all(score_function, score_operands, scores=True)(scores, *places)
    scores = jnp.where(visible, changed, -jnp.inf).astype(dtype)

    largest = scores.max(-1, keepdims=True)
    weights = jnp.exp(scores - jnp.where(jnp.isneginf(largest), jnp.zeros_like(largest), largest))
    total = weights.sum(-1, keepdims=True)
    weights = weights / jnp.where(total == 0, jnp.ones_like(total), total)
    log_total = jnp.log(total) + largest
    outputs = jnp.matmul(weights.astype(query.dtype), value.astype(query.dtype))
    return outputs, log_total[..., 0] / math.log(2), largest[..., 0] / math.log(2)


def _for_all(function: GraphModule, operands: Sequence[Any], *, scores: bool) -> Callable[..., Array]:
    """Lets a function of one place, and of the score there, take the numbers along each dimension, and all scores."""

    def mapped(*values: Any) -> Array:
        result = evaluate_graph(function.graph, (*values, *operands))
        return result[0] if isinstance(result, tuple | list) else result

    for dim in reversed(range(4)):
        axes = [0 if other == dim else None for other in range(4)]
        mapped = jax.vmap(mapped, in_axes=(0, *axes) if scores else tuple(axes))
    return mapped
