"""The attention kernel, as JAX interprets it on the CPU, against eager; and compiled for TPUs."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from jax import Array
from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.backend.compile import compile_program
from tpuc.lowerings import flash_attention as kernel
from tpuc.lowerings.attention import attention
from tpuc.lowerings.flash_attention import flash_attention, lower_flash_attention, takes_rotary
from tpuc.packaging import to_numpy
from tpuc.passes.attention_kernel import ONLY_F32
from tpuc.targets import CHIPS, Target

B, L, S = 2, 70, 77


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 32, so that short sequences take several of them, and no length divides by one."""
    for name in ("QUERY_BLOCK", "KEY_BLOCK", "CAUSAL_KEY_BLOCK"):
        monkeypatch.setattr(kernel, name, 32)


def _check(
    *,
    heads: int = 4,
    kv_heads: int = 4,
    rows: int = L,
    columns: int = S,
    size: int = 64,
    value_size: int | None = None,
    mask: torch.Tensor | None = None,
    is_causal: bool = False,
    dtype: torch.dtype = torch.float32,
) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(B, *shape, generator=generator).to(dtype)
        for shape in (
            (heads, rows, size),
            (kv_heads, columns, size),
            (kv_heads, columns, value_size or size),
        )
    )
    eager_mask = mask
    if mask is not None and is_causal:  # Eager takes one or the other.
        eager_mask = mask & torch.ones(rows, columns, dtype=torch.bool).tril()
    elif mask is not None and mask.dtype != torch.bool:
        eager_mask = mask.float()
    expected = F.scaled_dot_product_attention(
        query.float(),
        key.float(),
        value.float(),
        eager_mask,
        is_causal=is_causal and mask is None,
        scale=0.3,
        enable_gqa=heads != kv_heads,
    )
    result = flash_attention(
        *(jnp.asarray(to_numpy(tensor)) for tensor in (query, key, value)),
        None if mask is None else jnp.asarray(to_numpy(mask)),
        is_causal=is_causal,
        scale=0.3,
        interpret=True,
    )
    assert str(result.dtype) == str(dtype).removeprefix("torch.")
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    np.testing.assert_allclose(
        np.asarray(result).astype(np.float32), expected.numpy(), rtol=tolerance, atol=tolerance, strict=True
    )


@pytest.mark.parametrize("size", [32, 64, 80])
def test_every_head_size(size: int) -> None:
    # 4 heads of 32 and 2 of 64 share a block; 80 is padded to one of its own.
    _check(size=size)


def test_values_of_another_size() -> None:
    _check(size=64, value_size=48)


@pytest.mark.parametrize(
    ("rows", "columns", "is_causal"), [(64, 64, True), (20, 20, False), (70, 33, True), (33, 70, True), (1, 70, False)]
)
def test_lengths(rows: int, columns: int, is_causal: bool) -> None:
    _check(rows=rows, columns=columns, is_causal=is_causal)


@pytest.mark.parametrize(("kv_heads", "size", "is_causal"), [(1, 128, True), (2, 128, False), (2, 64, True)])
def test_grouped_queries(kv_heads: int, size: int, is_causal: bool) -> None:
    _check(kv_heads=kv_heads, size=size, is_causal=is_causal)


def _mask(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(1)) > 0.4


@pytest.mark.parametrize("shape", [(L, S), (B, 1, 1, S), (B, 4, L, S), (1, 4, 1, S)])
def test_bool_masks(shape: tuple[int, ...]) -> None:
    _check(mask=_mask(*shape))


@pytest.mark.parametrize("shape", [(1, 1, L, S), (B, 1, L, 1), (B, 4, L, S)])
def test_masks_that_are_added(shape: tuple[int, ...]) -> None:
    _check(mask=torch.where(_mask(*shape), 0.5, -float("inf")))


def test_a_mask_and_causality() -> None:
    _check(mask=_mask(B, 1, 1, S), is_causal=True)


def test_a_row_that_sees_nothing_is_zero() -> None:
    mask = torch.ones(L, S, dtype=torch.bool)
    mask[2] = False
    _check(mask=mask)
    _check(mask=torch.where(mask, 0.0, -float("inf")))


def test_a_row_of_the_least_numbers_is_a_mean() -> None:
    mask = torch.zeros(L, S)
    mask[2] = torch.finfo(torch.float32).min
    _check(mask=mask)


def test_bf16() -> None:
    _check(dtype=torch.bfloat16, is_causal=True, mask=_mask(B, 1, 1, S))
    _check(dtype=torch.bfloat16, kv_heads=1, size=128)
    _check(dtype=torch.bfloat16, mask=torch.where(_mask(B, 1, L, S), 0.5, -float("inf")).to(torch.bfloat16))


def _rotate(x: Array, cos: Array, sin: Array) -> Array:
    half = x.shape[-1] // 2
    return x * cos[:, None] + jnp.concatenate([-x[..., half:], x[..., :half]], -1) * sin[:, None]


@pytest.mark.parametrize(
    ("kv_heads", "size", "tables", "dtype"),
    [(4, 64, 1, "float32"), (2, 80, B, "float32"), (1, 128, 1, "float32"), (4, 32, 1, "bfloat16")],
)
def test_rotary_embeddings(kv_heads: int, size: int, tables: int, dtype: str) -> None:
    shapes = [(B, 4, L, size), (B, kv_heads, L, size), (B, kv_heads, L, size), (tables, L, size), (tables, L, size)]
    keys = jax.random.split(jax.random.key(0), len(shapes))
    query, key, value, cos, sin = (
        jax.random.normal(each, shape, jnp.dtype(dtype)) for each, shape in zip(keys, shapes, strict=True)
    )
    assert takes_rotary(query, key, size)
    expected = attention(_rotate(query, cos, sin), _rotate(key, cos, sin), value, is_causal=True, scale=0.3)
    result = flash_attention(query, key, value, None, (cos, sin), is_causal=True, scale=0.3, interpret=True)
    # A rotation rounds once in the kernel, and three times outside.
    tolerance = 1e-5 if dtype == "float32" else 0.1
    np.testing.assert_allclose(
        np.asarray(result, np.float32), np.asarray(expected, np.float32), rtol=tolerance, atol=tolerance
    )


def test_rotary_embeddings_that_the_kernel_does_not_take() -> None:
    def takes(*, rows: int = 128, columns: int = 128, heads: int = 4, size: int = 64) -> bool:
        query, key, _ = _arrays(heads=heads, rows=rows, columns=columns, size=size, dtype="bfloat16")
        return takes_rotary(query, key, size)

    assert takes()
    assert not takes(columns=256)  # Which positions keys have is not known.
    assert not takes(heads=2, size=32)  # 64 columns fill half a register.
    assert not takes(size=63)
    assert not takes(rows=8192, columns=8192)  # The tables would fill the VMEM.


def _arrays(*, heads: int, rows: int, columns: int, size: int, dtype: str) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct((B, heads, tokens, size), jnp.dtype(dtype)) for tokens in (rows, columns, columns)]


def _cost(program: bytes) -> tuple[int, int]:
    with mlir.make_context() as context:
        (call,) = mlir.find(mlir.parse(program, context), "stablehlo.custom_call")
        cost = json.loads(ir.StringAttr(call.attributes["backend_config"]).value)["custom_call_config"]["cost_estimate"]
    return cost["flops"], cost["bytes_accessed"]


def test_the_cost_is_that_of_the_blocks_that_run() -> None:
    arrays = _arrays(heads=4, rows=64, columns=64, size=128, dtype="bfloat16")
    full, causal = (
        _cost(lower_flash_attention(*arrays, None, is_causal=is_causal, scale=1.0)) for is_causal in (False, True)
    )
    block, operand = B * 4 * 2 * 32 * 32 * (128 + 128), B * 4 * 64 * 128 * 2
    # Of the 2 x 2 blocks of scores, causality leaves 3. Keys and values are read again for the second block of queries.
    assert full == (4 * block, 6 * operand)
    assert causal == (3 * block, 5 * operand)


@pytest.mark.slow  # A second for each of 38 programs.
@pytest.mark.parametrize(
    ("chip", "dtype"),
    [
        (chip.name, dtype)
        for chip in CHIPS
        for dtype in ("float32", "bfloat16")
        if dtype == "float32" or chip.name not in ONLY_F32
    ],
)
@pytest.mark.parametrize("what", ["causality", "a mask", "rotary embeddings"])
def test_every_chip_takes_it(chip: str, dtype: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    arrays = _arrays(heads=4, rows=1111, columns=1111, size=64, dtype=dtype)
    mask = jax.ShapeDtypeStruct((B, 4, 1111, 1111), jnp.bool_) if what == "a mask" else None
    table = jax.ShapeDtypeStruct((1, 1111, 64), jnp.dtype(dtype))
    rotary = (table, table) if what == "rotary embeddings" else None
    program = lower_flash_attention(*arrays, mask, rotary, is_causal=what == "causality", scale=0.1)
    assert "tpu_custom_call" in compile_program(program, Target.parse(chip)).hlo
