"""Finding layers: where they begin and end, and what goes from one to the next."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tpuc.passes.base import PassContext
from tpuc.passes.layers import Layers, find_layers
from tpuc.passes.main import Main
from tpuc.passes.roll_layers import RollLayers
from tpuc.targets import CPU

from .evaluation import evaluate, make_inputs
from .jax_programs import jax_module

X = jax.ShapeDtypeStruct((4, 8), jnp.float32)
W = jax.ShapeDtypeStruct((8, 8), jnp.float32)


def _norm(x: Array) -> Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def _types(layers: Layers) -> list[str]:
    return [str(each.yields[0].type) for each in layers.carried]


def test_a_layer_ends_where_the_fewest_bytes_go_on() -> None:
    def wide_inside(x: Array, *weights: Array) -> Array:
        for up, down in zip(weights[::2], weights[1::2], strict=True):
            x = jnp.tanh(x @ up) @ down
        return x

    up, down = jax.ShapeDtypeStruct((8, 32), jnp.float32), jax.ShapeDtypeStruct((32, 8), jnp.float32)
    with jax_module(wide_inside, X, *[up, down] * 5) as module:
        (layers,) = find_layers(Main(module), 2)
        assert layers.count == 5
        assert _types(layers) == ["tensor<4x8xf32>"]
        assert sorted(str(row[0].type) for row in layers.stacked) == ["tensor<32x8xf32>", "tensor<8x32xf32>"]


def test_a_sum_over_what_a_layer_gives_belongs_to_it() -> None:
    wide = jax.ShapeDtypeStruct((4, 1024), jnp.float32)

    def normed(x: Array, *weights: Array) -> Array:
        for weight in weights:
            x = x + _norm(x) @ weight
        return _norm(x)

    with jax_module(normed, wide, *[jax.ShapeDtypeStruct((1024, 1024), jnp.float32)] * 4) as module:
        (layers,) = find_layers(Main(module), 3)
        assert layers.count == 4
        assert "tensor<4x1024xf32>" in _types(layers)
        assert len(layers.carried) == 2


def test_layers_of_two_kinds_are_two_loops_and_the_one_that_reads_comes_first() -> None:
    def two_kinds(x: Array, *weights: Array) -> Array:
        for weight in weights[:3]:
            x = jnp.tanh(x @ weight)
        y = jnp.sin(x)
        for weight in weights[3:]:
            y = jnp.exp(y @ weight) + x
        return y

    with jax_module(two_kinds, X, *[W] * 6) as module:
        inputs = make_inputs(module, 0)
        inputs[1:] = [each * 0.1 for each in inputs[1:]]
        before = evaluate(module, inputs)
        first, second = find_layers(Main(module), 2)
        assert (first.count, second.count) == (3, 3)
        assert any(op.ops[0].operation.name == "stablehlo.exponential" for op in first.ops)
        assert RollLayers(mode="always", least=2).run(module, PassContext(target=CPU))["loops"] == 2
        module.operation.verify()
        (new,), (old,) = evaluate(module, inputs), before
        assert abs(new - old).max() < 1e-4


def test_the_first_layer_is_one_whatever_comes_before_it() -> None:
    def after_others(x: Array, *weights: Array) -> Array:
        x = jnp.cos(x) * 3
        mask = jnp.exp(x[:, :1])
        for weight in weights:
            x = x + jnp.tanh(x @ weight) * mask
        return x[:, ::2]

    with jax_module(after_others, X, *[W] * 8) as module:
        (layers,) = find_layers(Main(module), 8)
        assert layers.count == 8
        assert [str(each.type) for each in layers.shared] == ["tensor<4x1xf32>"]


def test_a_different_layer_in_the_middle_parts_them() -> None:
    def parted(x: Array, *weights: Array) -> Array:
        for number, weight in enumerate(weights):
            x = jnp.sin(x @ weight) if number == 4 else jnp.tanh(x @ weight)
        return x

    with jax_module(parted, X, *[W] * 9) as module:
        assert sorted(layers.count for layers in find_layers(Main(module), 2)) == [4, 4]
        assert find_layers(Main(module), 5) == []


def test_layers_that_read_of_layers_before_the_last_are_none() -> None:
    def from_two_back(x: Array, *weights: Array) -> Array:
        values = [x, x * 2]
        for weight in weights:
            values.append(jnp.tanh(values[-1] @ weight) + values[-2])
        return values[-1]

    with jax_module(from_two_back, X, *[W] * 5) as module:
        for layers in find_layers(Main(module), 2):
            assert len(layers.carried) == 2
        inputs = make_inputs(module, 1)
        (old,) = evaluate(module, inputs)
        RollLayers(mode="always", least=2).run(module, PassContext(target=CPU))
        module.operation.verify()
        (new,) = evaluate(module, inputs)
        assert abs(new - old).max() < 1e-4


def test_layers_of_two_kinds_share_no_operation() -> None:
    def two_kinds(x: Array, *weights: Array) -> Array:
        for weight in weights[:8]:
            x = jnp.tanh(x @ weight)
        for weight in weights[8:]:
            x = jnp.sin(x @ weight)
        return x

    with jax_module(two_kinds, X, *[W] * 16) as module:
        found = find_layers(Main(module), 3)
        assert len(found) == 2
        rows = [row for layers in found for op in layers.own_ops for row in op.results]
        results = [value for row in rows for value in row]
        assert len(results) == len(set(results))
        inputs = make_inputs(module, 0)
        before = evaluate(module, inputs)
        assert RollLayers(mode="always", least=3).run(module, PassContext(target=CPU))["loops"] == 2
        module.operation.verify()
        for old, new in zip(before, evaluate(module, inputs), strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-5)
