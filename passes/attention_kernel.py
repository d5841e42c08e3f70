"""attention-kernel: on a TPU, attention that is worth it becomes one kernel, which keeps the scores in VMEM.

XLA writes the scores of attention to HBM, reads them for the softmax, and reads its weights again for the second
product. The kernel (`tpuc.lowerings.flash_attention`) makes the output block by block.

Before:

    %0 = stablehlo.composite "tpuc.attention" %query, %key, %value
           {composite_attributes = {is_causal = true, scale = 8.8e-02 : f64}, decomposition = @attention}
           : (tensor<1x32x2048x128xbf16>, tensor<1x32x2048x128xbf16>, tensor<1x32x2048x128xbf16>)
           -> tensor<1x32x2048x128xbf16>

After:

    %0 = stablehlo.transpose %query, dims = [0, 2, 1, 3]
           : (tensor<1x32x2048x128xbf16>) -> tensor<1x2048x32x128xbf16>
    %1 = stablehlo.reshape %0 : (tensor<1x2048x32x128xbf16>) -> tensor<1x2048x4096xbf16>
    ...
    %6 = stablehlo.custom_call @tpu_custom_call(%1, %3, %5) {backend_config = ...}
           : (tensor<1x2048x4096xbf16>, tensor<1x2048x4096xbf16>, tensor<1x2048x4096xbf16>)
           -> tensor<1x2048x4096xbf16>
    ...

and the transposes meet those that took the heads apart. Every other attention becomes its decomposition: nothing is
left of the composites. A mask that depends on no input is evaluated first: one that only hides what comes later is
causality, which costs the kernel half the time, and one that hides nothing goes. Keys and values that are repeated for
the query heads that share them are read unrepeated, and rotary embeddings of queries and keys are left to the kernel.

The rule: scores that fill more than half of the VMEM, in f32, do not stay there for XLA, so the kernel takes them;
smaller ones do, and XLA's own fusions are as good. Queries, keys and values must be f32 or bf16.

Measured on v5p, in estimated cycles with the kernels at twice their roofline, and in temporaries: four layers of
LLaMA-7B, bf16, 2048 tokens: 30,596,676 and 1112 MiB become 20,366,355 (1,310,012 of them in kernels) and 91 MiB, when
XLA rotates queries and keys; when the kernel does, all of LLaMA-7B takes 131,343,621 instead of 142,509,676. Four
layers of BERT-large, bf16, 8 x 512 tokens, with a mask: 5,035,211 and 155 MiB become 2,952,090 (262,002) and 85 MiB.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpuc import mlir
from tpuc.errors import RequestError
from tpuc.lowerings.attention import ATTENTION
from tpuc.lowerings.flash_attention import lower_flash_attention, takes_rotary
from tpuc.passes.base import Pass, PassContext
from tpuc.passes.composites import composite_attributes, is_composite
from tpuc.passes.rewrite import Rules, Tensor
from tpuc.passes.rotary import match_rotation
from tpuc.passes.static_values import static_value
from tpuc.passes.tensors import broadcast, is_identity, producer, reshape, shape_struct
from tpuc.runtime.dtypes import Array
from tpuc.targets import Chip

#: What is this small stands for minus infinity: a score added to it is lost.
MASKED = -1e30
_FLOATS = ("f32", "bf16")
#: Chips whose Mosaic has no product of bf16.
ONLY_F32 = ("v2", "v3")
_MASKS = (*_FLOATS, "i1")


@dataclass(frozen=True, kw_only=True)
class AttentionKernel(Pass):
    """Replaces the composites of attention by a Mosaic kernel, or by their decomposition.

    Attributes:
        use: Whether a TPU gets the kernel: `auto` by the rule, `always` where it can, or `never`.
    """

    name: ClassVar[str] = "attention-kernel"
    use: str = "auto"

    def __post_init__(self) -> None:
        """Checks the option.

        Raises:
            RequestError: It has another value.
        """
        if self.use not in ("auto", "always", "never"):
            raise RequestError(f"pass {self.name}: use={self.use}", hint="It is auto, always or never.")

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place."""
        fired: Counter[str] = Counter()
        kernels = _Kernels(module.context)
        functions = mlir.functions(module)
        with module.context:
            for composite in mlir.find(module, "stablehlo.composite"):
                attention = _Attention.of(composite)
                if attention is None:
                    continue
                if self._takes(attention, context.target.chip):
                    kernels.put(attention)
                    fired["kernel"] += 1
                else:
                    mlir.inline(composite, functions[mlir.symbol(composite, "decomposition")])
                    fired["plain"] += 1
        mlir.run_pipeline(module, "symbol-dce")
        Rules().apply(module)  # What led to a mask, or to rotated queries, is read by nobody now, and goes.
        return fired

    def _takes(self, attention: _Attention, chip: Chip | None) -> bool:
        """Whether the kernel does this attention."""
        if chip is None or not attention.fits_kernel or self.use == "never":
            return False
        if chip.name in ONLY_F32 and str(attention.query.type.element_type) != "f32":
            return False
        return self.use == "always" or attention.score_bytes > chip.vmem_bytes // 2


@dataclass(frozen=True, kw_only=True)
class _Attention:
    """A composite of attention; `tpuc.lowerings.attention.attention` says what it means.

    Attributes:
        op: The composite.
        query: [batch, heads, L, E].
        key: [batch, kv_heads, S, E].
        value: [batch, kv_heads, S, Ev].
        mask: [batch or 1, heads or 1, L or 1, S or 1], or None.
        is_causal: Whether position i sees positions up to i only.
        scale: What the scores are multiplied with.
    """

    op: ir.Operation
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    is_causal: bool
    scale: float

    @classmethod
    def of(cls, composite: ir.Operation) -> _Attention | None:
        if not is_composite(composite, ATTENTION):
            return None
        attributes = composite_attributes(composite)
        query, key, value, *mask = composite.operands
        return cls(
            op=composite,
            query=query,
            key=key,
            value=value,
            mask=mask[0] if mask else None,
            is_causal=ir.BoolAttr(attributes["is_causal"]).value,
            scale=ir.FloatAttr(attributes["scale"]).value,
        )

    @property
    def fits_kernel(self) -> bool:
        """Whether the kernel has these dtypes."""
        has_mask = self.mask is None or str(self.mask.type.element_type) in _MASKS
        return has_mask and str(self.query.type.element_type) in _FLOATS

    @property
    def score_bytes(self) -> int:
        """Bytes of the scores in f32."""
        return 4 * math.prod(self.query.type.shape[:-1]) * self.key.type.shape[2]


class _Kernels:
    """Puts kernels in the place of composites; calls of the same kind share one lowering."""

    def __init__(self, context: ir.Context) -> None:
        self._context = context
        self._modules: dict[tuple[Any, ...], ir.Module] = {}
        self._masks: dict[Tensor, Array | None] = {}

    def put(self, attention: _Attention) -> None:
        """Replaces a composite."""
        with ir.InsertionPoint(attention.op), attention.op.location:
            query, key, value = attention.query, _shared(attention.key), _shared(attention.value)
            if key.type.shape[1] != value.type.shape[1]:
                key, value = attention.key, attention.value
            mask, is_causal = self._simplify(attention.mask, attention)
            query, key, tables = _take_rotation(query, key, value)
        operands = [query, key, value]
        body = self._lower(operands, mask, tables, is_causal=is_causal, scale=attention.scale)
        given = [*operands, *([mask] if mask is not None else []), *tables]
        mlir.inline(attention.op, mlir.functions(body)["main"], given)

    def _simplify(self, mask: Tensor | None, attention: _Attention) -> tuple[Tensor | None, bool]:
        """Drops a mask that hides nothing, or only what causality hides."""
        if mask is None:
            return None, attention.is_causal
        mask = _unbroadcast(mask)
        if mask not in self._masks:
            self._masks[mask] = static_value(mask)
        values = self._masks[mask]
        hides = None if values is None else _hidden(values)
        if hides is None:
            return mask, attention.is_causal
        if not hides.any():
            return None, attention.is_causal
        # Each row that causality leaves sees something, so the least number hides as minus infinity does.
        later = ~np.tri(attention.query.type.shape[2], attention.key.type.shape[2], dtype=np.bool_)
        if np.array_equal(hides, np.broadcast_to(later, hides.shape)):
            return None, True
        return mask, attention.is_causal

    def _lower(
        self, operands: list[Tensor], mask: Tensor | None, tables: list[Tensor], *, is_causal: bool, scale: float
    ) -> ir.Module:
        query, key, value = (shape_struct(each) for each in operands)
        mask_shape = shape_struct(mask) if mask is not None else None
        rotary = (shape_struct(tables[0]), shape_struct(tables[1])) if tables else None
        kind = (*map(str, (query, key, value, mask_shape, rotary)), is_causal, scale)
        if kind not in self._modules:
            source = lower_flash_attention(query, key, value, mask_shape, rotary, is_causal=is_causal, scale=scale)
            module = mlir.parse(source, self._context)
            mlir.inline_calls(module)
            self._modules[kind] = module
        return self._modules[kind]


def _take_rotation(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Queries and keys as they were before rotary embeddings, with the tables of those, if the kernel can rotate them.

    Returns:
        Queries, keys, and cosines and sines; or the same queries and keys, and no tables.
    """
    of_query, of_key = match_rotation(query), match_rotation(key)
    if of_query is None or of_key is None or not of_query.has_tables_of(of_key):
        return query, key, []
    if not takes_rotary(shape_struct(query), shape_struct(key), value.type.shape[3]):
        return query, key, []
    return of_query.x, of_key.x, of_query.tables()


def _hidden(mask: Array) -> Array | None:
    """Which scores a mask hides, if that is all that it does: it adds nothing to the others."""
    if mask.dtype == np.bool_:
        return np.logical_not(mask)
    hidden = np.asarray(mask < MASKED)
    return None if np.any(mask[~hidden]) else hidden


def _unbroadcast(mask: Tensor) -> Tensor:
    """The mask before it was broadcast along dimensions of size one."""
    copied = producer(mask, stablehlo.BroadcastInDimOp)
    if copied is None or copied.operand.type.rank != 4 or not is_identity(copied.broadcast_dimensions):
        return mask
    return copied.operand


def _shared(value: Tensor) -> Tensor:
    """Keys or values as they were before each head was repeated for the query heads that share it.

    However it is written, to repeat is to broadcast to [batch, kv_heads, repeats, S, E] and to reshape.
    """
    reshaped = producer(value, stablehlo.ReshapeOp)
    repeated = producer(reshaped.operand, stablehlo.BroadcastInDimOp) if reshaped else None
    if repeated is None:
        return value
    batch, heads, tokens, size = value.type.shape
    shape = repeated.result.type.shape
    if len(shape) != 5 or shape[1] * shape[2] != heads or [shape[0], *shape[3:]] != [batch, tokens, size]:
        return value
    dimensions = list(repeated.broadcast_dimensions)
    if 2 in dimensions:
        return value
    kept = [dimension - (dimension > 2) for dimension in dimensions]
    unrepeated = [batch, shape[1], tokens, size]
    if math.prod(repeated.operand.type.shape) == math.prod(unrepeated) and kept == sorted(kept):
        return reshape(repeated.operand, unrepeated)
    return broadcast(repeated.operand, unrepeated, kept)
