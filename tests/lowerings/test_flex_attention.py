"""Attention with the user's own scores and masks, as eager computes it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from .support import check

pytestmark = [
    # PyTorch tells everybody who does not compile that it is slow.
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
]


def _normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + shape[1])).to(dtype)


def test_a_score_function_sees_the_score_and_its_place() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: torch.tanh(score) + (i - j) * 0.1 * (h + b))

    check(function, _normal(2, 4, 5, 8), _normal(2, 4, 7, 8), _normal(2, 4, 7, 3))


def test_it_closes_over_tensors() -> None:
    def function(q: Tensor, slopes: Tensor, lengths: Tensor) -> Tensor:
        def score(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return torch.where(j < lengths[b], score - slopes[h] * (i - j).abs(), -float("inf"))

        return flex_attention(q, q, q, score_mod=score)

    check(function, _normal(2, 4, 6, 8), torch.rand(4), torch.tensor([3, 6]))


def test_groups_of_queries_share_a_key() -> None:
    def function(q: Tensor, k: Tensor) -> Tensor:
        return flex_attention(q, k, k, enable_gqa=True)

    check(function, _normal(2, 6, 5, 8), _normal(2, 2, 7, 8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_block_mask(dtype: torch.dtype) -> None:
    def function(q: Tensor) -> Tensor:
        mask = create_block_mask(lambda b, h, i, j: (j <= i) & (i - j < 3), None, None, 16, 16, device="cpu")
        return flex_attention(q, q, q, block_mask=mask)

    check(function, _normal(1, 2, 16, 8, dtype=dtype))


def test_a_row_that_is_masked_whole_is_zero() -> None:
    def function(q: Tensor) -> tuple[Tensor, Tensor]:
        def score(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return torch.where(i > 1, score, -float("inf"))

        output, aux = flex_attention(q, q, q, score_mod=score, return_aux=AuxRequest(lse=True))
        return output, aux.lse

    check(function, _normal(1, 2, 4, 8))
