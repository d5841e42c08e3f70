"""Embedding tables and bags."""

import pytest
import torch
from torch.nn import functional as F

from .support import check

TABLE = torch.arange(20.0).reshape(5, 4) - 7
INDICES = torch.tensor([4, 0, 0, 2, 1, 3])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [None, 0])
def test_bags_of_which_some_are_empty(mode: str, padding_idx: int | None) -> None:
    offsets = torch.tensor([0, 0, 3, 6])
    check(lambda i, t, o: F.embedding_bag(i, t, o, mode=mode, padding_idx=padding_idx), INDICES, TABLE, offsets)
    check(
        lambda i, t, o: F.embedding_bag(i, t, o, mode=mode, padding_idx=padding_idx, include_last_offset=True),
        INDICES,
        TABLE,
        offsets,
    )


@pytest.mark.parametrize("trained", [False, True])
def test_a_table_that_is_trained(trained: bool) -> None:
    bags = torch.nn.EmbeddingBag.from_pretrained(TABLE, freeze=not trained, include_last_offset=True, padding_idx=-1)
    check(lambda i, o: bags(i, o).detach(), INDICES, torch.tensor([0, 4, 6]))


def test_bags_of_one_size_with_factors() -> None:
    factors = torch.tensor([[1.0, -2.0, 0.5], [3.0, 0.0, 1.0]])
    check(
        lambda i, t, f: F.embedding_bag(i, t, mode="sum", per_sample_weights=f), INDICES.reshape(2, 3), TABLE, factors
    )


def test_rows_are_scaled_down_to_a_norm() -> None:
    table = TABLE.clone()
    check(lambda i, t: F.embedding(i, t.clone(), max_norm=5.0), INDICES, table)
    check(lambda i, t: F.embedding(i, t.clone(), max_norm=3.0, norm_type=1.0), INDICES.int(), table)
