"""Attention as one Mosaic kernel, which keeps the scores in VMEM.

Reference: Dao et al., "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness" (NeurIPS 2022): the
softmax over a row is built up block by block of keys, from the largest score so far and the sum so far.

Why not one of the kernels that come with JAX: they take [batch, heads, tokens, head size], and a projection makes
[batch, tokens, heads * head size]. With one of them each of query, key, value and result is transposed in HBM, and a
head size below 128 is padded to 128 there. This one reads the projections as they are: a block of 128 columns is one
head of 128, or two of 64. It also takes what PyTorch allows and those do not: any mask that broadcasts, rows that see
nothing, grouped queries together with lengths that divide by no block. And it rotates queries and keys by their
position itself: XLA, which turns halves of heads, would do it in a layout that no kernel reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxlib.mlir import ir

from tpuc import mlir

Array = jax.Array

#: Elements of a vector register's minor dimension; the last dimension of a block divides by it, or is the whole one.
LANES = 128
#: The most rows of queries, and of keys, that one step of the kernel works on. Scores of 512 x 1024 in f32 are 2 MiB:
#: with their exponentials and a mask they fit the 16 MiB that a kernel gets on every chip. Causal attention takes
#: narrower blocks, since it computes those on the diagonal whole.
QUERY_BLOCK = 512
KEY_BLOCK = 1024
CAUSAL_KEY_BLOCK = 512
#: The most bytes of VMEM for rotary tables: they are there whole, twice.
ROTARY_BYTES = 4 << 20

#: Cosines and sines of rotary embeddings, [batch or 1, L, E] each.
Rotary = tuple[Array, Array]


def flash_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    rotary: Rotary | None = None,
    *,
    is_causal: bool,
    scale: float,
    interpret: bool = False,
) -> Array:
    """`softmax(query @ key.T * scale + mask) @ value`; a row that sees nothing is zero.

    Scores and softmax are f32; the products take their operands as they are.

    Args:
        query: f32 or bf16, [batch, heads, L, E].
        key: Same dtype, [batch, kv_heads, S, E]; kv_heads divides heads, and heads that share one lie side by side.
        value: Same dtype, [batch, kv_heads, S, Ev].
        mask: Broadcasts to [batch, heads, L, S]: bool (True takes part), or f32 or bf16, added to the scores.
        rotary: If given, queries and keys x become x * cos + concatenate(-x[E/2:], x[:E/2]) * sin first. L is S then,
            and `takes_rotary` must allow it.
        is_causal: Position i sees positions up to i only.
        scale: What the scores are multiplied with.
        interpret: Whether the kernel is evaluated by JAX on any platform, step by step.

    Returns:
        [batch, heads, L, Ev], of the dtype of `query`.
    """
    heads, kv_heads = query.shape[1], key.shape[1]
    packed = _heads_per_block(heads, kv_heads, query.shape[3], value.shape[3])
    width, half = value.shape[3], query.shape[3] // 2 if rotary else 0
    if packed == 1:
        query, key, value = (_pad_last(x, LANES) for x in (query, key, value))
    call = _Call.of(query, key, value, mask, packed=packed, half=half, is_causal=is_causal, scale=scale)
    arrays = [_merge_heads(x) for x in (query, key, value)]
    if mask is not None:
        # A bool in VMEM is a byte in HBM.
        mask = mask.astype(jnp.int8) if mask.dtype == jnp.bool_ else mask
        arrays.append(mask.reshape((1,) * (4 - mask.ndim) + mask.shape))
    if rotary is not None:
        arrays += [call.lay_out(table) for table in rotary]
    output = call.run(arrays, interpret=interpret)
    return output.reshape(*output.shape[:2], heads, -1).swapaxes(1, 2)[..., :width]


def takes_rotary(query: Array | jax.ShapeDtypeStruct, key: Array | jax.ShapeDtypeStruct, value_size: int) -> bool:
    """Whether the kernel rotates these queries and keys itself: its tables fit, and their columns fill registers."""
    _, heads, rows, size = query.shape
    packed = _heads_per_block(heads, key.shape[1], size, value_size)
    width = packed * size if packed > 1 else size + -size % LANES
    fits = 4 * rows * width * query.dtype.itemsize <= ROTARY_BYTES
    return rows == key.shape[2] and size % 2 == 0 and width % LANES == 0 and fits


def _heads_per_block(heads: int, kv_heads: int, size: int, value_size: int) -> int:
    """How many heads share a block's columns; 1 also where heads of another size are padded to a block each."""
    if size != value_size or heads != kv_heads:
        return 1
    if heads * size <= LANES:
        return heads
    packed = LANES // size
    return packed if packed and packed * size == LANES and heads % packed == 0 else 1


def _pad_last(x: Array, multiple: int) -> Array:
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % multiple)])


def _merge_heads(x: Array) -> Array:
    batch, heads, tokens, size = x.shape
    return x.swapaxes(1, 2).reshape(batch, tokens, heads * size)


@dataclass(frozen=True, kw_only=True)
class _Call:
    """The shapes of one call of the kernel, and how it is cut into blocks.

    Attributes:
        batch: Independent problems.
        groups: Blocks of heads; each step of the grid works on one.
        packed: Heads in a block.
        queries_per_key: Blocks of query heads that share one of key heads.
        rows: L.
        columns: S.
        size: E, and of a block `packed` times it.
        value_size: Ev, likewise.
        query_block: Rows of a block of queries.
        key_block: Rows of a block of keys.
        half: Half of the columns of a head, which rotary embeddings turn against the other half; 0 without them.
        mask_shape: Of the mask, with 1 where it broadcasts; None without one.
    """

    batch: int
    groups: int
    packed: int
    queries_per_key: int
    rows: int
    columns: int
    size: int
    value_size: int
    query_block: int
    key_block: int
    half: int
    mask_shape: tuple[int, ...] | None
    is_causal: bool
    scale: float

    @classmethod
    def of(
        cls,
        query: Array,
        key: Array,
        value: Array,
        mask: Array | None,
        *,
        packed: int,
        half: int,
        is_causal: bool,
        scale: float,
    ) -> _Call:
        batch, heads, rows, size = query.shape
        columns = key.shape[2]
        widest = CAUSAL_KEY_BLOCK if is_causal else KEY_BLOCK
        return cls(
            batch=batch,
            groups=heads // packed,
            packed=packed,
            queries_per_key=heads // key.shape[1],
            rows=rows,
            columns=columns,
            size=size,
            value_size=value.shape[3],
            query_block=min(rows, QUERY_BLOCK),
            key_block=min(columns, widest),
            half=half,
            mask_shape=None if mask is None else (1,) * (4 - mask.ndim) + mask.shape,
            is_causal=is_causal,
            scale=scale,
        )

    @property
    def grid(self) -> tuple[int, int, int, int]:
        """Batches, groups of heads, blocks of queries, blocks of keys."""
        return (
            self.batch,
            self.groups,
            pl.cdiv(self.rows, self.query_block),
            pl.cdiv(self.columns, self.key_block),
        )

    def lay_out(self, table: Array) -> Array:
        """A rotary table [batch or 1, L, E] in the columns of a block of heads, and in rows that blocks divide."""
        wide = _pad_last(table, LANES) if self.packed == 1 else jnp.tile(table, self.packed)
        _, _, query_blocks, key_blocks = self.grid
        rows = max(query_blocks * self.query_block, key_blocks * self.key_block)
        return jnp.pad(wide, [(0, 0), (0, rows - table.shape[1]), (0, 0)])

    def run(self, arrays: Sequence[Array], *, interpret: bool) -> Array:
        """Runs the kernel on query, key, value, each [batch, tokens, heads * size], then a mask, then rotary tables."""
        rows, width = self.query_block, self.packed * self.value_size
        query_spec = pl.BlockSpec((None, rows, self.packed * self.size), lambda b, h, i, j: (b, i, h))
        output_spec = pl.BlockSpec((None, rows, width), lambda b, h, i, j: (b, i, h))
        key_specs = [
            pl.BlockSpec(
                (None, self.key_block, self.packed * size),
                lambda b, h, i, j: (b, self._read(i, j), lax.div(h, self.queries_per_key)),
            )
            for size in (self.size, self.value_size)
        ]
        kernel = pl.pallas_call(
            partial(_kernel, self),
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=0,
                grid=self.grid,
                in_specs=[query_spec, *key_specs, *self._mask_specs(), *map(_whole, arrays[-2:] if self.half else [])],
                out_specs=output_spec,
                scratch_shapes=[
                    pltpu.VMEM((rows, width), jnp.float32),
                    pltpu.VMEM((self.packed, rows, 1), jnp.float32),
                    pltpu.VMEM((self.packed, rows, 1), jnp.float32),
                    *([pltpu.VMEM((rows, self.packed * self.size), arrays[0].dtype)] if self.half else []),
                ],
            ),
            out_shape=jax.ShapeDtypeStruct((self.batch, self.rows, self.groups * width), arrays[0].dtype),
            compiler_params=pltpu.CompilerParams(
                dimension_semantics=("parallel", "parallel", "parallel", "arbitrary"),
            ),
            cost_estimate=self._cost(arrays),
            interpret=interpret,
            name="tpuc_flash_attention",
        )
        output: Array = kernel(*arrays)
        return output

    def _mask_specs(self) -> list[pl.BlockSpec]:
        if self.mask_shape is None:
            return []
        batch, heads, rows, columns = (size > 1 for size in self.mask_shape)
        return [
            pl.BlockSpec(
                (None, self.packed if heads else 1, self.query_block if rows else 1, self.key_block if columns else 1),
                lambda b, h, i, j: (
                    b if batch else 0,
                    h if heads else 0,
                    i if rows else 0,
                    self._read(i, j) if columns else 0,
                ),
            )
        ]

    def _last(self, i: Any) -> Any:
        """The last block of keys that block `i` of queries sees anything of."""
        last = self.grid[3] - 1
        if not self.is_causal:
            return last
        return lax.min(lax.div((i + 1) * self.query_block - 1, self.key_block), last)

    def _read(self, i: Any, j: Any) -> Any:
        """The block of keys that a step reads: for one that is not looked at, the one that is there already."""
        return lax.min(j, self._last(i)) if self.is_causal else j

    def _cost(self, arrays: Sequence[Array]) -> pl.CostEstimate:
        """What runs and is read: blocks that causality hides are neither, those on the diagonal whole."""
        _, _, query_blocks, key_blocks = self.grid
        steps = query_blocks * key_blocks
        if self.is_causal:
            steps = sum(
                min(((i + 1) * self.query_block - 1) // self.key_block, key_blocks - 1) + 1 for i in range(query_blocks)
            )
        pairs = min(steps * self.query_block * self.key_block, self.rows * self.columns)
        heads = self.batch * self.groups * self.packed
        query, key, value, *rest = (math.prod(x.shape) * x.dtype.itemsize for x in arrays)
        # With one block of keys, it stays while the blocks of queries go by.
        reads = self.queries_per_key * steps / key_blocks if key_blocks > 1 else 1
        result = query * self.value_size // self.size
        return pl.CostEstimate(
            flops=2 * heads * pairs * (self.size + self.value_size),
            transcendentals=heads * pairs,
            bytes_accessed=query + result + int((key + value) * reads) + sum(rest),
        )


def _whole(table: Array) -> pl.BlockSpec:
    """All rows of a table, for the batch at hand or for all."""
    has_batch = table.shape[0] > 1
    return pl.BlockSpec((None, *table.shape[1:]), lambda b, h, i, j: (b if has_batch else 0, 0, 0))


def _kernel(call: _Call, query_ref: Any, key_ref: Any, value_ref: Any, *refs: Any) -> None:
    """One block of queries against one of keys, for all heads of a block."""
    rest = list(refs)
    mask_ref = rest.pop(0) if call.mask_shape is not None else None
    tables = (rest.pop(0), rest.pop(0)) if call.half else None
    output_ref, total_ref, peak_ref, sum_ref, *turned_ref = rest
    i, j = pl.program_id(2), pl.program_id(3)

    @pl.when(j == 0)
    def _() -> None:
        total_ref[...] = jnp.zeros_like(total_ref)
        # Finite: a row that has seen nothing yet must not subtract infinity from infinity.
        peak_ref[...] = jnp.full_like(peak_ref, jnp.finfo(jnp.float32).min)
        sum_ref[...] = jnp.zeros_like(sum_ref)
        if tables is not None:
            turned_ref[0][...] = _turn(query_ref[...], tables, i, call.grid[2], call)

    @pl.when(j <= call._last(i))
    def _() -> None:
        query = turned_ref[0][...] if turned_ref else query_ref[...]
        key = key_ref[...] if tables is None else _turn(key_ref[...], tables, j, call.grid[3], call)
        value = _in_bounds(value_ref[...], call, j)
        for head in range(call.packed):
            scores = lax.dot_general(
                _only(query, head, call.size, call.packed),
                key,
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
            mask = _mask_of(mask_ref, head) if mask_ref is not None else None
            scores = _masked(scores * call.scale, mask, call, i, j)
            peak = jnp.maximum(peak_ref[head], scores.max(1, keepdims=True))
            weights = jnp.exp(scores - peak)
            decay = jnp.exp(peak_ref[head] - peak)
            peak_ref[head] = peak
            sum_ref[head] = sum_ref[head] * decay + weights.sum(1, keepdims=True)
            product = lax.dot(weights.astype(value.dtype), value, preferred_element_type=jnp.float32)
            total = total_ref[...] * decay + product
            total_ref[...] = _select(total, total_ref[...], head, call.value_size, call.packed)

    @pl.when(j == call.grid[3] - 1)
    def _() -> None:
        output = jnp.zeros_like(total_ref)
        for head in range(call.packed):
            # The largest score adds one to its row's sum: zero means that nothing was seen.
            sums = sum_ref[head]
            scaled = total_ref[...] / jnp.where(sums == 0, 1, sums)
            output = _select(scaled, output, head, call.value_size, call.packed)
        output_ref[...] = output.astype(output_ref.dtype)


def _turn(block: Array, tables: tuple[Any, Any], index: Any, blocks: int, call: _Call) -> Array:
    """Rotary embeddings of the rows of a block, by its place among others of its size."""
    rows, width = block.shape
    place = pl.ds(pl.multiple_of(index * rows, rows) if blocks > 1 else 0, rows)
    cos, sin = (table[place, :].astype(jnp.float32) for table in tables)
    x = block.astype(jnp.float32)
    column = lax.rem(lax.broadcasted_iota(jnp.int32, x.shape, 1), call.size)
    # A roll by n puts x[c - n] at column c.
    turned = jnp.where(column < call.half, -pltpu.roll(x, width - call.half, 1), pltpu.roll(x, call.half, 1))
    return (x * cos + turned * sin).astype(block.dtype)


def _only(block: Array, head: int, size: int, packed: int) -> Array:
    """The block with zeros in the columns of the other heads.

    The product with it is the one head's. The matrix unit multiplies 128 columns in the time of 64.
    """
    return _select(block, jnp.zeros_like(block), head, size, packed)


def _select(inside: Array, outside: Array, head: int, size: int, packed: int) -> Array:
    """The columns of one head from one array, the rest from another."""
    if packed == 1:
        return inside
    columns = lax.broadcasted_iota(jnp.int32, inside.shape, 1)
    return jnp.where(lax.div(columns, size) == head, inside, outside)


def _mask_of(mask_ref: Any, head: int) -> Array:
    mask: Array = mask_ref[head if mask_ref.shape[0] > 1 else 0]
    return mask.astype(jnp.int32) != 0 if mask.dtype == jnp.int8 else mask.astype(jnp.float32)


def _in_bounds(value: Array, call: _Call, j: Any) -> Array:
    """Zeros in the rows past the last key: what is read there is anything, and a weight of zero times NaN is NaN."""
    if call.columns % call.key_block == 0:
        return value
    rows = lax.broadcasted_iota(jnp.int32, value.shape, 0) + j * call.key_block
    return jnp.where(rows < call.columns, value, jnp.zeros_like(value))


def _masked(scores: Array, mask: Array | None, call: _Call, i: Any, j: Any) -> Array:
    """The scores, with -inf where a query does not see a key."""
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf) if mask.dtype == jnp.bool_ else scores + mask
    columns = lax.broadcasted_iota(jnp.int32, scores.shape, 1) + j * call.key_block
    if call.columns % call.key_block:
        scores = jnp.where(columns < call.columns, scores, -jnp.inf)
    if call.is_causal:
        rows = lax.broadcasted_iota(jnp.int32, scores.shape, 0) + i * call.query_block
        scores = jnp.where(columns <= rows, scores, -jnp.inf)
    return scores


def lower_flash_attention(
    query: jax.ShapeDtypeStruct,
    key: jax.ShapeDtypeStruct,
    value: jax.ShapeDtypeStruct,
    mask: jax.ShapeDtypeStruct | None = None,
    rotary: tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct] | None = None,
    *,
    is_causal: bool,
    scale: float,
    interpret: bool = False,
) -> bytes:
    """Lowers `flash_attention` at these shapes for a TPU, or as JAX interprets it for the CPU.

    Returns:
        A StableHLO module as MLIR bytecode. Its `@main` takes query, key and value, then what there is of mask and
        rotary tables.
    """
    function = partial(flash_attention, is_causal=is_causal, scale=scale, interpret=interpret)
    arguments = (query, key, value, mask, rotary)
    with jax.enable_x64(False):
        traced = jax.jit(function).trace(*arguments)
        lowered: Any = traced.lower(lowering_platforms=("cpu" if interpret else "tpu",))
    module: ir.Module = lowered.compiler_ir("stablehlo")
    mlir.run_pipeline(module, "strip-debuginfo")
    return mlir.to_bytecode(module)
