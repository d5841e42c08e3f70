"""Complex numbers: their parts, and their views as pairs of real numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tpuc.lowerings.registry import lowering

Array = jax.Array


@lowering("aten.complex.default", why="from two real tensors", promotion="default")
def make_complex(real: Array, imag: Array) -> Array:
    """`real + imag * i`."""
    return lax.complex(*jnp.broadcast_arrays(real, imag))


@lowering("aten.polar.default", why="from two real tensors", promotion="default")
def polar(length: Array, angle: Array) -> Array:
    """The complex number of a length and an angle."""
    return make_complex(length * jnp.cos(angle), length * jnp.sin(angle))


@lowering("aten.view_as_complex.default", why="a program has values, not storage")
def view_as_complex(x: Array) -> Array:
    """Pairs along the last dimension as complex numbers."""
    return lax.complex(x[..., 0], x[..., 1])


@lowering("aten.view_as_real.default", "aten.view_as_real_copy.default", why="a program has values, not storage")
def view_as_real(x: Array) -> Array:
    """Complex numbers as pairs along a new last dimension."""
    return jnp.stack([x.real, x.imag], axis=-1)


@lowering("aten.real.default", why="a real tensor is its own real part")
def real(x: Array) -> Array:
    """The real part."""
    return jnp.real(x)


@lowering("aten.imag.default", why="not a view")
def imag(x: Array) -> Array:
    """The imaginary part."""
    return jnp.imag(x)


@lowering(
    "aten._conj.default",
    "aten._conj_physical.default",
    "aten.conj.default",
    "aten.conj_physical.default",
    why="PyTorch marks a view as conjugate; a program has values",
)
def conj(x: Array) -> Array:
    """The conjugate."""
    return jnp.conj(x) if jnp.issubdtype(x.dtype, jnp.complexfloating) else x


@lowering("aten._neg_view.default", why="PyTorch marks a view as negative; a program has values")
def neg_view(x: Array) -> Array:
    """The negative."""
    return -x


@lowering("aten.angle.default", why="NaN stays NaN in real tensors", promotion="int_to_float")
def angle(x: Array) -> Array:
    """The angle of a complex number; of a real one 0, or pi below zero."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return jnp.arctan2(x.imag, x.real)
    return jnp.where(jnp.isnan(x), x, jnp.where(x < 0, jnp.asarray(jnp.pi, x.dtype), 0))


@lowering("aten.sgn.default", why="of a complex number, its direction", promotion="default")
def sgn(x: Array) -> Array:
    """`x / |x|`, and 0 for 0; real numbers have -1, 0 or 1, and 0 for NaN."""
    if x.dtype == jnp.bool_:
        return x
    if not jnp.issubdtype(x.dtype, jnp.complexfloating):
        return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)
    length = jnp.abs(x)
    return jnp.where(length == 0, 0, x / length)
