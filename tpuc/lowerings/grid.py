"""Sampling at the points of a grid."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp

from tpuc.lowerings.interpolation import cubic_kernel
from tpuc.lowerings.registry import lowering

Array = jax.Array
#: PyTorch's numbers of the modes, and of the paddings. Source: ATen/native/GridSamplerUtils.h.
_LINEAR, _NEAREST, _CUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)
_CUBIC_A = -0.75


def grid_sampler(x: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Array:
    """Samples images or volumes at points.

    Each neighbour of a point is gathered with all its channels at once, which lie side by side for that.

    Args:
        x: [N, C, (D,) H, W].
        grid: [N, ..., rank]: points whose coordinates, the last dimension's first, are -1 and 1 at the borders.
        interpolation_mode: 0 linear, 1 nearest, 2 cubic (images only).
        padding_mode: What lies outside: 0 zeros, 1 the border, 2 the image mirrored.
        align_corners: Whether -1 and 1 are the centers of the outermost elements, or their outer edges.

    Returns:
        [N, C, ...], with the grid's dimensions.
    """
    sizes = x.shape[2:]
    wide = grid.astype(jnp.promote_types(grid.dtype, jnp.float32))
    positions = [_position(wide[..., len(sizes) - 1 - axis], size, align_corners) for axis, size in enumerate(sizes)]
    inside = partial(_pulled_inside, padding=padding_mode, align_corners=align_corners)
    if interpolation_mode != _CUBIC:
        positions = [inside(position, size) for position, size in zip(positions, sizes, strict=True)]
    neighbours = [_NEIGHBOURS[interpolation_mode](position) for position in positions]
    rows = jnp.moveaxis(x, 1, -1).reshape(-1, x.shape[1])
    image = jnp.arange(x.shape[0]).reshape(-1, *(1,) * (grid.ndim - 2))
    total = jnp.zeros((*grid.shape[:-1], x.shape[1]), wide.dtype)
    for chosen in itertools.product(*neighbours):
        row, weight = image, jnp.ones((), wide.dtype)
        for (at, share), size in zip(chosen, sizes, strict=True):
            place = inside(at, size) if interpolation_mode == _CUBIC else at
            row = row * size + jnp.clip(place, 0, size - 1).astype(jnp.int32)
            weight = weight * jnp.where((place >= 0) & (place <= size - 1), share, 0)
        total = total + rows[row] * weight[..., None]
    return jnp.moveaxis(total, -1, 1)


for _rank in (2, 3):
    lowering(f"aten.grid_sampler_{_rank}d.default", why="channels are gathered together")(grid_sampler)
lowering("aten.grid_sampler.default", why="channels are gathered together")(grid_sampler)


def _position(coordinate: Array, size: int, align_corners: bool) -> Array:
    """From -1 ... 1 to elements. Source: `grid_sampler_unnormalize`, GridSampler.h."""
    if align_corners:
        return (coordinate + 1) / 2 * (size - 1)
    return ((coordinate + 1) * size - 1) / 2


def _pulled_inside(position: Array, size: int, *, padding: int, align_corners: bool) -> Array:
    """Brings positions to the image as the padding says; with zeros they stay outside."""
    if padding == _ZEROS:
        return position
    if padding == _REFLECTION:
        low, high = (0, 2 * (size - 1)) if align_corners else (-1, 2 * size - 1)
        position = _mirrored(position, low / 2, (high - low) / 2)
    return jnp.clip(position, 0, size - 1)


def _mirrored(position: Array, low: float, span: float) -> Array:
    if not span:
        return jnp.zeros_like(position)
    distance = jnp.abs(position - low)
    rest = jnp.fmod(distance, span)
    return low + jnp.where(jnp.floor(distance / span) % 2 == 0, rest, span - rest)


def _nearest(position: Array) -> list[tuple[Array, Array]]:
    return [(jnp.round(position), jnp.ones((), position.dtype))]


def _linear(position: Array) -> list[tuple[Array, Array]]:
    low = jnp.floor(position)
    return [(low, low + 1 - position), (low + 1, position - low)]


def _cubic(position: Array) -> list[tuple[Array, Array]]:
    low = jnp.floor(position)
    return [(low + offset, cubic_kernel(jnp.abs(position - low - offset), _CUBIC_A)) for offset in range(-1, 3)]


#: The elements that make a point of one dimension, each with its weight.
_NEIGHBOURS: dict[int, Callable[[Array], Sequence[tuple[Array, Array]]]] = {
    _LINEAR: _linear,
    _NEAREST: _nearest,
    _CUBIC: _cubic,
}
