"""Gradients of core operators that PyTorch does not decompose: JAX's transposes of the forward lowerings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax

from tpuc.lowerings.convolution import convolution
from tpuc.lowerings.pooling import adaptive_avg_pool, avg_pool
from tpuc.lowerings.registry import lowering

Array = jax.Array


@lowering("aten.convolution_backward.default", why="JAX's transpose of the forward one")
def convolution_backward(
    gradient: Array,
    x: Array,
    weight: Array,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> list[Array | None]:
    """The gradients of the input, the weight and the bias; None for those that the mask leaves out."""

    def forward(x: Array, weight: Array) -> Array:
        return convolution(x, weight, None, stride, padding, dilation, transposed, output_padding, groups)

    of_x, of_weight = _pull_back(forward, gradient, x, weight)
    channel = gradient.ndim - (weight.ndim - 1)
    of_bias = gradient.sum([axis for axis in range(gradient.ndim) if axis != channel])
    return [result if wanted else None for result, wanted in zip((of_x, of_weight, of_bias), output_mask, strict=True)]


def avg_pool_backward(
    gradient: Array,
    x: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    *,
    rank: int,
) -> Array:
    """The gradient of the input of an average over windows of the last dimensions."""

    def forward(x: Array) -> Array:
        return avg_pool(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, rank=rank)

    return _pull_back(forward, gradient, x)[0]


def adaptive_avg_pool_backward(gradient: Array, x: Array, *, rank: int) -> Array:
    """The gradient of the input of an adaptive average over the last dimensions."""
    return _pull_back(partial(adaptive_avg_pool, output_size=gradient.shape[-rank:]), gradient, x)[0]


def _pull_back(function: Callable[..., Array], gradient: Array, *inputs: Array) -> tuple[Any, ...]:
    """The gradients of a function's inputs for that of its result."""
    result, transpose = jax.vjp(function, *inputs)
    gradients: tuple[Any, ...] = transpose(gradient.astype(result.dtype))
    return gradients


for _rank in (2, 3):
    lowering(f"aten.avg_pool{_rank}d_backward.default", why="JAX's transpose of the forward one")(
        partial(avg_pool_backward, rank=_rank)
    )
    lowering(f"aten._adaptive_avg_pool{_rank}d_backward.default", why="JAX's transpose of the forward one")(
        partial(adaptive_avg_pool_backward, rank=_rank)
    )
