"""Functions that differ by platform, inside one traced body."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tpuc.lowerings.platforms import by_platform, refuse_on_tpu

X = np.arange(4.0, dtype=np.float32)


def _text(function: Any, platform: str) -> str:
    return str(jax.jit(function).trace(X).lower(lowering_platforms=(platform,)).as_text())


def _body(x: jax.Array) -> jax.Array:
    (y,) = by_platform(lambda x: [jnp.sin(x)], {"tpu": lambda x: [jnp.tan(x)]}, x * 2)
    return y + 1


def test_a_kernel_takes_the_place_of_the_function_on_its_platform() -> None:
    assert "stablehlo.sine" in _text(_body, "cpu")
    assert "stablehlo.tan " in _text(_body, "tpu")
    assert "stablehlo.sine" not in _text(_body, "tpu")
    np.testing.assert_allclose(jax.jit(_body)(X), np.sin(X * 2) + 1, rtol=1e-6)


def test_it_may_stand_in_a_loop() -> None:
    def looped(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda _, x: _body(x), x)

    assert "stablehlo.tan " in _text(looped, "tpu")
    np.testing.assert_allclose(jax.jit(looped)(X), _body(_body(_body(X))), rtol=1e-5)


def test_kernels_see_no_64_bit_types() -> None:
    seen = []

    def kernel(x: jax.Array) -> list[jax.Array]:
        seen.append(jnp.arange(2).dtype)
        return [x]

    with jax.enable_x64(True):
        _text(lambda x: by_platform(lambda x: [x], {"tpu": kernel}, x)[0], "tpu")
    assert set(seen) == {jnp.dtype("int32")}


def test_a_platform_may_be_refused() -> None:
    def refusing(x: jax.Array) -> jax.Array:
        return refuse_on_tpu(x, "it has none")

    np.testing.assert_array_equal(jax.jit(refusing)(X), X)
    with pytest.raises(NotImplementedError, match="it has none"):
        _text(refusing, "tpu")
