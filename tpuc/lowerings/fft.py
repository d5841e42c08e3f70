"""Fourier transforms: the three that PyTorch's others are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from tpuc.lowerings.registry import lowering

Array = jax.Array
_WHY = "torch-mlir has no Fourier transform; XLA has one natively"
#: XLA transforms so many dimensions at once.
_XLA_RANK = 3
#: The power of n that a transform is multiplied by, for each of ATen's modes: none, by the root of n, by n.
#: Source: `fft_norm_mode` in ATen/native/SpectralOpsUtils.h.
_POWERS = (0.0, -0.5, -1.0)


@lowering("aten._fft_c2c.default", why=_WHY)
def fft_c2c(x: Array, dim: Sequence[int], normalization: int, forward: bool) -> Array:
    """The transform of complex values over dimensions, or its inverse."""
    y = _complex_transform(x, dim, forward=forward)
    return _scaled(y, [x.shape[d] for d in dim], normalization, inverse=not forward)


@lowering("aten._fft_r2c.default", why=_WHY)
def fft_r2c(x: Array, dim: Sequence[int], normalization: int, onesided: bool) -> Array:
    """The transform of real values; one-sided, the last of `dim` keeps its non-negative frequencies only."""
    sizes = [x.shape[d] for d in dim]
    if onesided:
        y = _last_dimension(x, dim[-1], lax.FftType.RFFT, sizes[-1])
        y = _complex_transform(y, dim[:-1], forward=True)
    else:
        y = _complex_transform(x.astype(jnp.promote_types(x.dtype, jnp.complex64)), dim, forward=True)
    return _scaled(y, sizes, normalization, inverse=False)


@lowering("aten._fft_c2r.default", why=_WHY)
def fft_c2r(x: Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> Array:
    """The inverse of the one-sided transform: real values, of which the last of `dim` has `last_dim_size`."""
    sizes = [*(x.shape[d] for d in dim[:-1]), last_dim_size]
    y = _complex_transform(x, dim[:-1], forward=False)
    y = lax.slice_in_dim(y, 0, last_dim_size // 2 + 1, axis=dim[-1] % x.ndim)
    y = _last_dimension(y, dim[-1], lax.FftType.IRFFT, last_dim_size)
    return _scaled(y, sizes, normalization, inverse=True)


def _complex_transform(x: Array, dim: Sequence[int], *, forward: bool) -> Array:
    kind = lax.FftType.FFT if forward else lax.FftType.IFFT
    for start in range(0, len(dim), _XLA_RANK):
        group = dim[start : start + _XLA_RANK]
        last = range(-len(group), 0)
        y = jnp.moveaxis(x, group, last)
        x = jnp.moveaxis(_fft(y, kind, y.shape[-len(group) :]), last, group)
    return x


def _last_dimension(x: Array, dim: int, kind: lax.FftType, size: int) -> Array:
    return jnp.moveaxis(_fft(jnp.moveaxis(x, dim, -1), kind, (size,)), -1, dim)


def _fft(x: Array, kind: lax.FftType, sizes: Sequence[int]) -> Array:
    def by_xla(x: Array) -> Array:
        return lax.fft(x, kind, sizes)

    if x.dtype not in (jnp.float64, jnp.complex128):
        return by_xla(x)
    result: Array = lax.platform_dependent(x, tpu=partial(fft_by_products, kind=kind, sizes=sizes), default=by_xla)
    return result


def fft_by_products(x: Array, *, kind: lax.FftType, sizes: Sequence[int]) -> Array:
    """What `lax.fft` gives, of products with the matrices of the transforms: libtpu has no transform in 64 bits.

    The matrices depend on sizes alone, and are made with the weights.
    """
    if kind == lax.FftType.IRFFT:
        (n,) = sizes
        # The frequencies that are left out are the conjugates of those between the first and, if n is even, the last.
        count = jnp.arange(n // 2 + 1)
        twice = jnp.where((count == 0) | (2 * count == n), 1.0, 2.0)
        return ((x * twice) @ _matrix(n, kind)[: n // 2 + 1]).real
    y = x.astype(jnp.complex128)
    for axis, n in zip(range(-len(sizes), 0), sizes, strict=True):
        y = jnp.moveaxis(jnp.moveaxis(y, axis, -1) @ _matrix(n, kind), -1, axis)
    return y[..., : sizes[-1] // 2 + 1] if kind == lax.FftType.RFFT else y


def _matrix(n: int, kind: lax.FftType) -> Array:
    """The matrix [n, n] of a transform of n values, or of its inverse."""
    is_inverse = kind in (lax.FftType.IFFT, lax.FftType.IRFFT)
    count = jnp.arange(n)
    # Reduced to one turn before it is rounded.
    turns = (count[:, None] * count % n).astype(jnp.float64) / n
    angles = (2 if is_inverse else -2) * math.pi * turns
    return lax.complex(jnp.cos(angles), jnp.sin(angles)) / (n if is_inverse else 1)


def _scaled(y: Array, sizes: Sequence[int], normalization: int, *, inverse: bool) -> Array:
    """Normalizes; XLA's inverses are divided by n already, which PyTorch's are not."""
    n = math.prod(sizes) or 1
    factor = float(n) ** (_POWERS[normalization] + inverse)
    return y if factor == 1 else y * jnp.asarray(factor, jnp.finfo(y.dtype).dtype)
