"""Scaled dot-product attention against eager: masks, causality, grouped queries, rows without anything to see."""

import pytest
import torch
import torch.nn.functional as F

from .support import check, lowered

B, HEADS, L, S, E = 2, 4, 5, 7, 8


def _qkv(*, kv_heads: int = HEADS, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return (
        torch.randn(B, HEADS, L, E, dtype=dtype),
        torch.randn(B, kv_heads, S, E, dtype=dtype),
        torch.randn(B, kv_heads, S, 6, dtype=dtype),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_plain_and_scaled(dtype: torch.dtype) -> None:
    check(F.scaled_dot_product_attention, *_qkv(dtype=dtype))
    check(F.scaled_dot_product_attention, *_qkv(dtype=dtype), scale=0.3)


def test_without_heads_or_batch() -> None:
    q, k, v = (each[0, 0] for each in _qkv())
    check(F.scaled_dot_product_attention, q, k, v)
    check(F.scaled_dot_product_attention, q[None], k[None], v[None], is_causal=True)


@pytest.mark.parametrize("shapes", [((1, 4), (2, 1)), ((2, 1), (2, 4)), ((4,), (2, 4)), ((3, 2, 4), (2, 4))])
def test_batches_and_heads_broadcast(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    of_query, of_key = shapes
    q, k, v = torch.randn(*of_query, L, E), torch.randn(*of_key, S, E), torch.randn(*of_key, S, 6)
    check(F.scaled_dot_product_attention, q, k, v)
    mask = torch.randn(2, 1, L, S)
    check(F.scaled_dot_product_attention, q, k, v, attn_mask=mask)


def test_causal_counts_from_the_first() -> None:
    check(F.scaled_dot_product_attention, *_qkv(), is_causal=True)
    q, k, _ = _qkv()
    check(F.scaled_dot_product_attention, k, q, q, is_causal=True)


@pytest.mark.parametrize("shape", [(L, S), (B, 1, L, S), (B, HEADS, L, S), (B, 1, 1, S)])
def test_masks(shape: tuple[int, ...]) -> None:
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) > 0.4
    check(F.scaled_dot_product_attention, *_qkv(), attn_mask=mask)
    check(F.scaled_dot_product_attention, *_qkv(), attn_mask=torch.where(mask, 0.5, -float("inf")))


def test_a_row_that_sees_nothing_is_zero() -> None:
    mask = torch.ones(L, S, dtype=torch.bool)
    mask[2] = False
    check(F.scaled_dot_product_attention, *_qkv(), attn_mask=mask)


@pytest.mark.parametrize("shape", [None, (L, S), (B, 1, L, S), (B, HEADS, L, S)])
def test_grouped_queries(shape: tuple[int, ...] | None) -> None:
    mask = None if shape is None else torch.randn(shape)
    check(F.scaled_dot_product_attention, *_qkv(kv_heads=2), attn_mask=mask, enable_gqa=True)
    check(F.scaled_dot_product_attention, *_qkv(kv_heads=1), enable_gqa=True, is_causal=True)


def test_nothing_to_attend_to() -> None:
    q, k, v = _qkv()
    check(F.scaled_dot_product_attention, q, k[:, :, :0], v[:, :, :0])
    check(F.scaled_dot_product_attention, q[:, :, :0], k, v)


def test_layers() -> None:
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    check(layer, torch.randn(2, 5, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 8))
    encoder = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    check(encoder, torch.randn(2, 5, 8))


def test_dropout_drops() -> None:
    q, k, v = _qkv()
    (kept,) = lowered(F.scaled_dot_product_attention, q, k, v)
    (dropped,) = lowered(F.scaled_dot_product_attention, q, k, v, dropout_p=0.5)
    assert dropped.shape == kept.shape
    assert abs(dropped - kept).max() > 0.1
