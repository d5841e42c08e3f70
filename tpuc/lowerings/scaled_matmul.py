"""Matrix products of float8 with scales, and products of groups of rows."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch
from jax import lax

from tpuc.lowerings.dtypes import to_jax
from tpuc.lowerings.registry import lowering

Array = jax.Array
#: PyTorch's numbers of the ways to scale that are lowered. Source: `ScalingType` in ATen/BlasBackend.h.
_TENSOR_WISE, _ROW_WISE = 0, 1


@lowering("aten._scaled_mm.default", why="torch-mlir has no float8")
def scaled_mm(
    x: Array,
    y: Array,
    scale_x: Array,
    scale_y: Array,
    bias: Array | None = None,
    scale_result: Array | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Array:
    """`(x * scale_x) @ (y * scale_y) + bias`, one scale for all or for each row of `x` and column of `y`."""
    rows, columns = (x.shape[0], 1), (1, y.shape[1])
    for scale, side in ((scale_x, rows), (scale_y, columns)):
        if scale.size != 1 and scale.shape != side:
            raise NotImplementedError(f"a float8 product with scales of shape {scale.shape}, one a block")
    # bf16 holds every float8, and the products are exact in f32: chips without float8 lose nothing.
    product = jnp.matmul(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), preferred_element_type=jnp.float32)
    product = product * scale_x.reshape(-1, 1) * scale_y.reshape(1, -1)
    if bias is not None:
        product = product + bias
    wanted = x.dtype if out_dtype is None else to_jax(out_dtype)
    if scale_result is not None:
        product = product * scale_result
    if wanted == jnp.float8_e4m3fn:  # It has no infinity; PyTorch saturates here, though not where it casts.
        limit = float(jnp.finfo(wanted).max)
        product = jnp.clip(product, -limit, limit)
    return product.astype(wanted)


@lowering("aten._scaled_mm_v2.default", why="torch-mlir has no float8")
def scaled_mm_v2(
    x: Array,
    y: Array,
    scale_x: Sequence[Array],
    recipe_x: Sequence[int],
    swizzle_x: Sequence[int],
    scale_y: Sequence[Array],
    recipe_y: Sequence[int],
    swizzle_y: Sequence[int],
    bias: Array | None,
    out_dtype: torch.dtype | None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Array:
    """`_scaled_mm` whose arguments say how they scale."""
    recipes = {int(recipe) for recipe in (*recipe_x, *recipe_y)}
    if not recipes <= {_TENSOR_WISE, _ROW_WISE} or any(map(int, (*swizzle_x, *swizzle_y))):
        raise NotImplementedError("a float8 product with scales one a block")
    return scaled_mm(x, y, scale_x[0], scale_y[0], bias, None, out_dtype)


@lowering(
    "aten._grouped_mm.default",
    "transformers.grouped_mm_fallback.default",  # What mixtures of experts of transformers call for f32.
    why="a ragged product, which XLA has",
)
def grouped_mm(
    x: Array,
    y: Array,
    offs: Array | None = None,
    bias: Array | None = None,
    out_dtype: torch.dtype | None = None,
) -> Array:
    """A product for each group.

    Args:
        x: [G, M, K]; or [M, K], whose rows (or, where `y` has two dimensions too, columns) are divided among groups.
        y: [G, K, N]; or [K, N], divided likewise: its columns, or rows.
        offs: i32[G]: where each group ends, in what is divided.
        bias: Not used by PyTorch.
        out_dtype: The result's dtype.

    Returns:
        [G, M, N] if both or neither are divided, else [M, N]. What lies behind the last group is zero.
    """
    if bias is not None:
        raise NotImplementedError("grouped_mm with a bias")
    # Both compilers accumulate in f32, whatever the result's dtype.
    wanted = x.dtype if out_dtype is None else to_jax(out_dtype)
    if offs is None:
        return jnp.matmul(x, y, preferred_element_type=wanted)
    sizes = jnp.diff(offs, prepend=0).astype(jnp.int32)
    if x.ndim == 3:
        # The columns of y are divided: the rows of its transpose.
        product = lax.ragged_dot(y.T, jnp.swapaxes(x, 1, 2), sizes, preferred_element_type=wanted)
        return product.T
    if y.ndim == 3:
        return lax.ragged_dot(x, y, sizes, preferred_element_type=wanted)
    divided_inside = lax.RaggedDotDimensionNumbers(
        dot_dimension_numbers=(((1,), (0,)), ((), ())), lhs_ragged_dimensions=[1], rhs_group_dimensions=[]
    )
    return lax.ragged_dot_general(x, y, sizes, divided_inside, preferred_element_type=wanted)
