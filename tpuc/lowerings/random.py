"""Random numbers, dropout, and whatever else draws.

Each function takes JAX's random key first (`Lowering.random`), which comes from the program's seed
(`tpuc.frontend.randomness`). The generator is Threefry, the same on every platform: equal seeds give equal results.
They are not PyTorch's numbers; the distributions are.

Numbers are drawn in f32, or f64 where the result is f64, and rounded once; only what must stay below an upper bound is
drawn in the result's own dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from tpuc.lowerings.call import argument_of
from tpuc.lowerings.dtypes import to_jax
from tpuc.lowerings.registry import lowering

Array = jax.Array
Key = jax.Array
DType = np.dtype[Any]

_THREEFRY = "Threefry from the program's seed"

torch.library.define("tpuc::split_seed", "(Tensor seed, int count) -> Tensor[]")


@lowering("tpuc.split_seed.default", why="a seed for each node that draws")
def split_seed(seed: Array, count: int) -> list[Array]:
    """Derives seeds, i64 of no dimension, from one: the two halves of each are a key of Threefry."""
    words = jax.random.key_data(jax.random.split(jax.random.key(seed), count)).astype(jnp.int64)
    return list((words[:, 0] << 32) | words[:, 1])


def always(_node: torch.fx.Node) -> bool:
    """That a node draws, whatever its arguments."""
    return True


def in_training(node: torch.fx.Node) -> bool:
    """Whether a node is a dropout that drops; `train` may be None, which means yes."""
    return argument_of(node, "train") is not False and argument_of(node, "p") > 0


def _while_training(node: torch.fx.Node) -> bool:
    return bool(argument_of(node, "training"))


def _float(dtype: DType) -> Any:
    """The dtype to draw in for a result."""
    return jnp.float64 if dtype in (jnp.float64, jnp.complex128) else jnp.float32


def _named(dtype: torch.dtype | None, default: Any = jnp.float32) -> DType:
    return np.dtype(default) if dtype is None else to_jax(dtype)


def _normal(key: Key, shape: Sequence[int], dtype: DType) -> Array:
    # A complex number of variance 1 has parts of variance 1/2, in JAX as in PyTorch.
    complex_dtype = dtype if jnp.issubdtype(dtype, jnp.complexfloating) else None
    return jax.random.normal(key, tuple(shape), complex_dtype or _float(dtype))


def _uniform(key: Key, shape: Sequence[int], dtype: Any, low: float = 0.0, high: float = 1.0) -> Array:
    """Uniform numbers of a real dtype, from low up to, not including, high."""
    # Plain Python bounds would be constants of f64 in the program.
    return jax.random.uniform(key, tuple(shape), dtype, jnp.asarray(low, dtype), jnp.asarray(high, dtype))


def _unit(key: Key, shape: Sequence[int], dtype: DType) -> Array:
    """Uniform numbers on [0, 1) for a result of any dtype: both parts of a complex number, f32 for integers."""
    if not jnp.issubdtype(dtype, jnp.complexfloating):
        return _uniform(key, shape, dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.float32)
    parts = _uniform(key, (*shape, 2), _float(dtype))
    return lax.complex(parts[..., 0], parts[..., 1])


def _integers(key: Key, shape: Sequence[int], low: Any, high: Any) -> Array:
    """Integers from low up to, not including, high; of 32 bits where that is enough, which a TPU draws faster."""
    narrow = isinstance(low, int) and isinstance(high, int) and low >= -(2**31) and high < 2**31
    return jax.random.randint(key, tuple(shape), low, high, jnp.int32 if narrow else jnp.int64)


def keep_mask(key: Key, p: float, shape: Sequence[int]) -> Array:
    """True with probability `1 - p`, elementwise: what dropout keeps."""
    return _uniform(key, shape, jnp.float32) >= jnp.float32(p)


# --- Factories


@lowering("aten.rand.default", "aten.rand.generator", why=_THREEFRY, random=always)
def rand(key: Key, size: Sequence[int], *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """Uniform on [0, 1)."""
    return _unit(key, size, _named(dtype))


@lowering("aten.rand_like.default", "aten.rand_like.generator", why=_THREEFRY, random=always)
def rand_like(key: Key, x: Array, *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """Uniform on [0, 1), in another tensor's shape."""
    return _unit(key, x.shape, _named(dtype, x.dtype))


@lowering("aten.randn.default", "aten.randn.generator", why=_THREEFRY, random=always)
def randn(key: Key, size: Sequence[int], *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """Standard normal."""
    return _normal(key, size, _named(dtype))


@lowering("aten.randn_like.default", "aten.randn_like.generator", why=_THREEFRY, random=always)
def randn_like(key: Key, x: Array, *, dtype: torch.dtype | None = None, **_kwargs: Any) -> Array:
    """Standard normal, in another tensor's shape."""
    return _normal(key, x.shape, _named(dtype, x.dtype))


@lowering("aten.randint.default", "aten.randint.generator", why=_THREEFRY, random=always)
def randint(key: Key, high: int, size: Sequence[int], **_kwargs: Any) -> Array:
    """Integers from 0 up to, not including, a bound."""
    return _integers(key, size, 0, high)


@lowering("aten.randint.low", "aten.randint.low_generator", why=_THREEFRY, random=always)
def randint_low(key: Key, low: int, high: int, size: Sequence[int], **_kwargs: Any) -> Array:
    """Integers from one bound up to, not including, another."""
    return _integers(key, size, low, high)


@lowering(
    "aten.randint_like.default",
    "aten.randint_like.generator",
    "aten.randint_like.Tensor",
    "aten.randint_like.Tensor_generator",
    why=_THREEFRY,
    random=always,
)
def randint_like(key: Key, x: Array, high: Any, **_kwargs: Any) -> Array:
    """Integers from 0 up to, not including, a bound, in another tensor's shape."""
    return _integers(key, x.shape, 0, high)


@lowering("aten.randint_like.low_dtype", "aten.randint_like.low_generator_dtype", why=_THREEFRY, random=always)
def randint_like_low(key: Key, x: Array, low: int, high: int, **_kwargs: Any) -> Array:
    """Integers from one bound up to, not including, another, in another tensor's shape."""
    return _integers(key, x.shape, low, high)


@lowering("aten.randperm.default", "aten.randperm.generator", why=_THREEFRY, random=always)
def randperm(key: Key, n: int, **_kwargs: Any) -> Array:
    """The numbers below n, shuffled."""
    return jax.random.permutation(key, jnp.arange(n, dtype=jnp.int32 if n < 2**31 else jnp.int64))


# --- Distributions. An operator that writes to its input, such as `normal_`, comes without the underscore, with the
# tensor that it fills as its first argument.


@lowering(
    "aten.normal.Tensor_Tensor", "aten.normal.Tensor_float", "aten.normal.float_Tensor", why=_THREEFRY, random=always
)
def normal(key: Key, mean: Any, std: Any = 1.0, **_kwargs: Any) -> Array:
    """Normal, with a mean and a standard deviation for each element."""
    shape = jnp.broadcast_shapes(jnp.shape(mean), jnp.shape(std))
    dtype = (mean if isinstance(mean, jax.Array) else std).dtype
    return _normal(key, shape, dtype) * std + mean


@lowering("aten.normal.float_float", why=_THREEFRY, random=always)
def normal_of_size(
    key: Key, mean: float, std: float, size: Sequence[int], *, dtype: torch.dtype | None = None, **_kwargs: Any
) -> Array:
    """Normal, of a mean and a standard deviation."""
    return _normal(key, size, _named(dtype)) * std + mean


@lowering("aten.normal_functional.default", why=_THREEFRY, random=always)
def normal_functional(key: Key, x: Array, mean: float = 0.0, std: float = 1.0, **_kwargs: Any) -> Array:
    """Fills with normal numbers."""
    return _normal(key, x.shape, x.dtype) * std + mean


@lowering("aten.log_normal.default", why=_THREEFRY, random=always)
def log_normal(key: Key, x: Array, mean: float = 1.0, std: float = 2.0, **_kwargs: Any) -> Array:
    """Fills with numbers whose logarithm is normal."""
    return jnp.exp(_normal(key, x.shape, x.dtype) * std + mean)


@lowering("aten.uniform.default", why=_THREEFRY, random=always)
def uniform(key: Key, x: Array, low: float = 0.0, high: float = 1.0, **_kwargs: Any) -> Array:
    """Fills with uniform numbers between two bounds."""
    return _unit(key, x.shape, x.dtype) * (high - low) + low


@lowering("aten.exponential.default", why=_THREEFRY, random=always)
def exponential(key: Key, x: Array, lambd: float = 1.0, **_kwargs: Any) -> Array:
    """Fills with exponential numbers."""
    return jax.random.exponential(key, x.shape, _float(x.dtype)) / lambd


@lowering("aten.cauchy.default", why=_THREEFRY, random=always)
def cauchy(key: Key, x: Array, median: float = 0.0, sigma: float = 1.0, **_kwargs: Any) -> Array:
    """Fills with Cauchy numbers."""
    return jax.random.cauchy(key, x.shape, _float(x.dtype)) * sigma + median


@lowering("aten.geometric.default", why=_THREEFRY, random=always)
def geometric(key: Key, x: Array, p: float, **_kwargs: Any) -> Array:
    """Fills with the number of trials, from 1, until one of probability p succeeds."""
    draws = jax.random.exponential(key, x.shape, _float(x.dtype))
    return jnp.maximum(jnp.ceil(draws / -np.log1p(-p)), 1) if p < 1 else jnp.ones_like(draws)


@lowering("aten.random.default", why=_THREEFRY, random=always)
def random(key: Key, x: Array, **_kwargs: Any) -> Array:
    """Fills with all the integers that the dtype holds exactly, from 0."""
    if x.dtype == jnp.bool_:
        return _integers(key, x.shape, 0, 2)
    if jnp.issubdtype(x.dtype, jnp.floating):
        return _integers(key, x.shape, 0, 2 ** (jnp.finfo(x.dtype).nmant + 1) + 1)
    bits = jax.random.bits(key, x.shape, np.dtype(f"u{x.dtype.itemsize}"))
    return (bits if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else bits >> 1).astype(x.dtype)


@lowering("aten.random.to", why=_THREEFRY, random=always)
def random_to(key: Key, x: Array, high: int, **_kwargs: Any) -> Array:
    """Fills with integers from 0 up to, not including, a bound."""
    return _integers(key, x.shape, 0, high)


@lowering("aten.random.from", why=_THREEFRY, random=always)
def random_from(key: Key, x: Array, low: int, high: int | None, **_kwargs: Any) -> Array:
    """Fills with integers between two bounds; none named means the greatest integer of 64 bits."""
    return _integers(key, x.shape, low, 2**63 - 1 if high is None else high)


@lowering("aten.bernoulli.default", why=_THREEFRY, random=always)
def bernoulli(key: Key, p: Array, **_kwargs: Any) -> Array:
    """1 with the probability that an element is, else 0."""
    return _uniform(key, p.shape, _float(p.dtype)) < p


@lowering("aten.bernoulli.p", "aten.bernoulli.Tensor", why=_THREEFRY, random=always)
def bernoulli_p(key: Key, x: Array, p: Any, **_kwargs: Any) -> Array:
    """Fills with 1 of probability p, else 0."""
    return _uniform(key, x.shape, jnp.float32) < jnp.asarray(p).astype(jnp.float32)


@lowering("aten.poisson.default", why=_THREEFRY, random=always)
def poisson(key: Key, rate: Array, _generator: None = None) -> Array:
    """Poisson counts, with a rate for each element."""
    return jax.random.poisson(key, rate, dtype=jnp.int64 if rate.dtype == jnp.float64 else jnp.int32)


@lowering("aten.binomial.default", why=_THREEFRY, random=always)
def binomial(key: Key, count: Array, p: Array, _generator: None = None) -> Array:
    """Successes among a count of trials, each of probability p."""
    dtype = _float(count.dtype)
    return jax.random.binomial(key, count.astype(dtype), p.astype(dtype), dtype=dtype)


@lowering("aten._standard_gamma.default", why=_THREEFRY, random=always)
def standard_gamma(key: Key, shape: Array, _generator: None = None) -> Array:
    """Gamma numbers of scale 1, with a shape parameter for each element."""
    return jax.random.gamma(key, shape, dtype=_float(shape.dtype))


@lowering("aten._sample_dirichlet.default", why=_THREEFRY, random=always)
def sample_dirichlet(key: Key, concentration: Array, _generator: None = None) -> Array:
    """Dirichlet vectors along the last dimension."""
    return jax.random.dirichlet(key, concentration, dtype=_float(concentration.dtype))


@lowering("aten.multinomial.default", why=_THREEFRY, random=always)
def multinomial(key: Key, weights: Array, num_samples: int, replacement: bool = False, **_kwargs: Any) -> Array:
    """Indices of the last dimension, drawn in proportion to its weights.

    With replacement by inverting the distribution function; without, the largest of `log(weight)` plus Gumbel noise.
    """
    wide = weights.astype(_float(weights.dtype))
    if not replacement:
        noise = jax.random.gumbel(key, wide.shape, wide.dtype)
        return lax.top_k(jnp.log(wide) + noise, num_samples)[1]
    if wide.ndim == 1:
        return multinomial(key, wide[None], num_samples, True)[0]
    cumulative = jnp.cumsum(wide, axis=-1)
    total = cumulative[:, -1:]
    level = _uniform(key, (len(wide), num_samples), wide.dtype) * total
    # Rounding may reach the total, which belongs to no index.
    level = jnp.minimum(level, jnp.nextafter(total, jnp.zeros_like(total)))
    return jax.vmap(lambda row, at: jnp.searchsorted(row, at, side="right"))(cumulative, level)


# --- Dropout


@lowering("aten.dropout.default", why="nothing is dropped at inference", random=in_training)
def dropout(key: Key | None, x: Array, p: float, train: bool) -> Array:
    """Zeros with probability p, and the rest scaled up; at inference the input."""
    return x if key is None else native_dropout(key, x, p, train)[0]


@lowering("aten.native_dropout.default", why="nothing is dropped at inference", random=in_training)
def native_dropout(key: Key | None, x: Array, p: float, train: bool | None) -> tuple[Array, Array]:
    """Dropout, and the mask of what is kept."""
    if key is None:
        return x, jnp.ones(x.shape, jnp.bool_)
    mask = keep_mask(key, p, x.shape)
    scale = 1 / (1 - p) if p < 1 else 0.0
    return jnp.where(mask, x * jnp.asarray(scale, x.dtype), jnp.zeros((), x.dtype)), mask


@lowering("aten.rrelu.default", why="random slopes in training", random=_while_training)
def rrelu(key: Key | None, x: Array, lower: float = 1 / 8, upper: float = 1 / 3, *_rest: Any, **_kwargs: Any) -> Array:
    """Leaky ReLU, with a random slope for each element in training, and the mean of the slopes at inference."""
    return _rrelu(key, x, lower, upper)[0]


@lowering("aten.rrelu_with_noise_functional.default", why="random slopes in training", random=_while_training)
def rrelu_with_noise(
    key: Key | None, x: Array, noise: Array, lower: float = 1 / 8, upper: float = 1 / 3, *_rest: Any, **_kwargs: Any
) -> tuple[Array, Array]:
    """`rrelu`, with the slopes as a second result; at inference what came in."""
    y, slopes = _rrelu(key, x, lower, upper)
    return y, noise if key is None else slopes


def _rrelu(key: Key | None, x: Array, lower: float, upper: float) -> tuple[Array, Array]:
    if key is None:
        slope = jnp.asarray((lower + upper) / 2, x.dtype)
    else:
        slope = _uniform(key, x.shape, _float(x.dtype), lower, upper).astype(x.dtype)
    slopes = jnp.where(x > 0, jnp.ones((), x.dtype), slope)
    return x * slopes, slopes
