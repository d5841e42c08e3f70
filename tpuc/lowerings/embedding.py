"""Embedding tables, and bags of their rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tpuc.lowerings.indexing import narrow, read
from tpuc.lowerings.registry import UNREAD, lowering
from tpuc.lowerings.sorting import searchsorted

Array = jax.Array
_SUM, _MEAN, _MAX = 0, 1, 2


@lowering("aten.embedding.default", why="torch-mlir wraps indices that cannot be negative")
def embedding(weight: Array, indices: Array, padding_idx: int = -1, *_flags: Any) -> Array:
    """Rows of a table."""
    return read(weight, narrow(indices, weight.shape[0]))


@lowering("aten.embedding_renorm.default", why="torch-mlir fails")
def embedding_renorm(weight: Array, indices: Array, max_norm: float, norm_type: float) -> Array:
    """The table with the rows that are used scaled down to a norm, where theirs is larger."""
    place = narrow(indices.reshape(-1), weight.shape[0])
    rows = read(weight, place).astype(jnp.promote_types(weight.dtype, jnp.float32))
    norm = jnp.linalg.norm(rows, ord=norm_type, axis=-1, keepdims=True)
    # The summand is PyTorch's: aten/src/ATen/native/Embedding.cpp.
    scaled = jnp.where(norm > max_norm, rows * (max_norm / (norm + 1e-7)), rows)
    return weight.at[place].set(scaled.astype(weight.dtype), mode="promise_in_bounds")


@lowering(
    "aten._embedding_bag.default",
    "aten._embedding_bag_forward_only.default",
    "aten.embedding_bag.default",
    why="torch-mlir fails",
)
def embedding_bag(
    weight: Array,
    indices: Array,
    offsets: Array,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Array, Any, Any, Any]:
    """Reduces the rows of each bag.

    Args:
        weight: [rows, width].
        indices: [n], the rows of all bags, one bag after the other.
        offsets: [bags], where each bag begins; with `include_last_offset` one more, where the last ends.
        scale_grad_by_freq: For the gradient.
        mode: 0 sum, 1 mean, 2 max.
        sparse: For the gradient.
        per_sample_weights: [n], factors of the rows, or None.
        include_last_offset: See `offsets`.
        padding_idx: Rows of this index are left out; negative for none.

    Returns:
        [bags, width], zeros for an empty bag; and three that only the gradient reads.
    """
    bags = offsets.shape[0] - include_last_offset
    return _reduce_bags(weight, indices, offsets, bags, mode, per_sample_weights, padding_idx), UNREAD, UNREAD, UNREAD


@lowering("aten.embedding_bag.padding_idx", why="what its decomposition gives hangs on whether the table is trained")
def embedding_bag_padding_idx(
    weight: Array,
    indices: Array,
    offsets: Array,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Array | None,
    include_last_offset: bool,
    padding_idx: int | None,
) -> tuple[Array, Any, Any, Any]:
    """`embedding_bag` whose `padding_idx` is None for none, and counts from the end if it is negative."""
    left_out = -1 if padding_idx is None else padding_idx % weight.shape[0]
    return embedding_bag(
        weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, left_out
    )


def _reduce_bags(
    weight: Array, indices: Array, offsets: Array, bags: int, mode: int, factors: Array | None, padding_idx: int
) -> Array:
    rows = embedding(weight, indices).astype(jnp.promote_types(weight.dtype, jnp.float32))
    if factors is not None:
        rows = rows * factors[:, None]
    bag = searchsorted(offsets, jnp.arange(indices.shape[0], dtype=offsets.dtype), right=True) - 1
    if padding_idx >= 0:
        bag = jnp.where(indices == padding_idx, bags, bag)  # A bag that is not there: the row is dropped.
    count = jnp.zeros(bags, jnp.int32).at[bag].add(1, mode="drop")[:, None]
    if mode == _MAX:
        largest = jnp.full((bags, weight.shape[1]), -jnp.inf, rows.dtype).at[bag].max(rows, mode="drop")
        return jnp.where(count == 0, 0, largest)
    total = jnp.zeros((bags, weight.shape[1]), rows.dtype).at[bag].add(rows, mode="drop")
    return total / jnp.maximum(count, 1) if mode == _MEAN else total
