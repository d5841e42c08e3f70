"""Losses that PyTorch does not decompose, or decomposes wrongly. All others are made of simpler operators."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tpuc.lowerings.registry import lowering

Array = jax.Array
#: PyTorch's numbers of the reductions that have one result. Source: ATen/core/Reduction.h.
_MEAN, _SUM = 1, 2
_WHY = "never all logits at once"


@lowering("torch_nn._linear_cross_entropy_batch_chunked.default", why=_WHY)
def linear_cross_entropy(
    x: Array,
    linear_weight: Array,
    target: Array,
    linear_bias: Array | None,
    weight: Array | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    chunk: int,
    _policy: str,
    _dtype: Any,
    _retain_graph: bool,
    *compute_gradients: bool,
) -> tuple[Array, Array, Array, Array]:
    """The cross entropy of a linear layer's outputs, `mean` or `sum`, and three gradients of size 0."""
    if any(compute_gradients) or label_smoothing:
        raise NotImplementedError("linear_cross_entropy with gradients or label smoothing")
    losses, weights = _losses(x, linear_weight, target, linear_bias, weight, ignore_index, chunk)
    loss = losses.sum()
    if reduction == "mean":
        loss = loss / weights.sum()
    return loss, jnp.zeros((0, 0), x.dtype), jnp.zeros((0, 0), x.dtype), jnp.zeros((0,), x.dtype)


@lowering("torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default", why=_WHY)
def linear_cross_entropy_no_reduction(
    x: Array,
    linear_weight: Array,
    target: Array,
    linear_bias: Array | None,
    weight: Array | None,
    ignore_index: int,
    chunk: int,
    _policy: str,
    _dtype: Any,
) -> Array:
    """The cross entropy of a linear layer's outputs, of each row."""
    return _losses(x, linear_weight, target, linear_bias, weight, ignore_index, chunk)[0]


def _losses(
    x: Array,
    linear_weight: Array,
    target: Array,
    linear_bias: Array | None,
    weight: Array | None,
    ignore_index: int,
    chunk: int,
) -> tuple[Array, Array]:
    """The weighted loss and the weight of each row: [N, F] and [N] to twice [N]. `chunk` rows have logits at a time."""

    def of_row(row: tuple[Array, Array]) -> tuple[Array, Array]:
        features, label = row
        logits = jnp.matmul(linear_weight, features, preferred_element_type=wide)
        if linear_bias is not None:
            logits = logits + linear_bias
        counts = label != ignore_index
        label = jnp.where(counts, label, 0)
        share = jnp.where(counts, 1 if weight is None else weight[label], 0).astype(wide)
        return share * (jax.nn.logsumexp(logits) - logits[label]), share

    wide = jnp.promote_types(x.dtype, jnp.float32)
    return lax.map(of_row, (x, target), batch_size=max(chunk, 1))


@lowering("aten.multilabel_margin_loss_forward.default", why="PyTorch's decomposition counts what follows the labels")
def multilabel_margin_loss_forward(x: Array, target: Array, reduction: int) -> tuple[Array, Array]:
    """By how much labels fail to exceed other classes by 1, of rows or one; and which classes are labels.

    Args:
        x: [N, C] or [C].
        target: Its shape: labels, up to the first -1.
        reduction: 0 none, 1 mean, 2 sum.
    """
    rows, labels = jnp.atleast_2d(x), jnp.atleast_2d(target)
    classes = rows.shape[1]
    counts = jnp.cumsum(labels == -1, axis=1) == 0
    labels = jnp.where(counts, labels, 0)
    is_label = (counts[:, :, None] & (labels[:, :, None] == jnp.arange(classes))).any(1)
    scores = jnp.take_along_axis(rows, labels, axis=1)
    lacking = jnp.maximum(1 - scores[:, :, None] + rows[:, None, :], 0)
    losses = jnp.where(counts[:, :, None] & ~is_label[:, None, :], lacking, 0).sum((1, 2)) / classes
    if reduction == _MEAN:
        losses = losses.mean()
    elif reduction == _SUM:
        losses = losses.sum()
    return losses, is_label.reshape(x.shape)
