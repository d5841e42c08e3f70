"""Control flow: PyTorch's higher-order operators, as the branches and loops of StableHLO.

A branch or a body is a graph; what it closes over, weights included, is among the operator's operands. It is evaluated
by `evaluate_graph` while JAX traces the branch or the loop, so that whatever can be lowered can stand in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from torch.fx import GraphModule

from tpuc.lowerings.dtypes import is_array
from tpuc.lowerings.evaluate import draws, evaluate_graph
from tpuc.lowerings.registry import lowering
from tpuc.lowerings.subgraphs import subgraphs_of

Array = jax.Array
Key = jax.Array
_WHY = "torch-mlir has no control flow on tensors"


def _draws_within(node: torch.fx.Node) -> bool:
    """Whether a branch or a body draws random numbers."""
    return any(draws(inner) for graph in subgraphs_of(node) for inner in graph.nodes if inner.op == "call_function")


@lowering("higher_order.cond", why=_WHY, random=_draws_within)
def cond(
    key: Key | None, predicate: Any, on_true: GraphModule, on_false: GraphModule, operands: Sequence[Any] = ()
) -> Any:
    """One of two branches, which take the same operands: `stablehlo.case`."""

    def branch(module: GraphModule) -> Callable[..., list[Array]]:
        return lambda *values: _evaluate(module, values, key)

    return lax.cond(_truth(predicate), branch(on_true), branch(on_false), *map(_array, operands))


@lowering("higher_order.while_loop", why=_WHY, random=_draws_within)
def while_loop(
    key: Key | None, condition: GraphModule, body: GraphModule, carried: Sequence[Any], additional: Sequence[Any]
) -> Any:
    """Runs a body on what it carries, and on operands that stay, for as long as the condition holds."""

    def holds(state: tuple[Array, list[Array]]) -> Array:
        step, values = state
        return _truth(_evaluate(condition, (*values, *additional), _key_of(key, step))[0])

    def turn(state: tuple[Array, list[Array]]) -> tuple[Array, list[Array]]:
        step, values = state
        return step + 1, _evaluate(body, (*values, *additional), _key_of(key, step))

    return lax.while_loop(holds, turn, (jnp.int32(0), list(map(_array, carried))))[1]


@lowering("higher_order.scan", why=_WHY, random=_draws_within)
def scan(
    key: Key | None, body: GraphModule, initial: Sequence[Any], xs: Sequence[Array], additional: Sequence[Any] = ()
) -> Any:
    """Carries values along dimension 0 of `xs`: the last of what is carried, then the stacked results of all steps."""

    def turn(carried: list[Array], slices: tuple[Array, list[Array]]) -> tuple[list[Array], list[Array]]:
        step, values = slices
        results = _evaluate(body, (*carried, *values, *additional), _key_of(key, step))
        return results[: len(carried)], results[len(carried) :]

    carried, stacked = lax.scan(turn, list(map(_array, initial)), (_steps(xs), list(xs)))
    return [*carried, *stacked]


@lowering("higher_order.map_impl", why=_WHY, random=_draws_within)
def map_impl(key: Key | None, body: GraphModule, xs: Sequence[Array], additional: Sequence[Any]) -> Any:
    """A body on each slice of dimension 0, one after the other; the results are stacked."""

    def turn(slices: tuple[Array, list[Array]]) -> list[Array]:
        step, values = slices
        return _evaluate(body, (*values, *additional), _key_of(key, step))

    return lax.map(turn, (_steps(xs), list(xs)))


@lowering("higher_order.associative_scan", why=_WHY)
def associative_scan(combine: GraphModule, xs: Sequence[Array], additional: Sequence[Any] = ()) -> Any:
    """All prefixes of an associative operation along dimension 0, in a logarithmic number of steps."""

    def pairwise(left: list[Array], right: list[Array]) -> list[Array]:
        return _evaluate(combine, (*left, *right, *additional), None)

    return lax.associative_scan(jax.vmap(pairwise), list(xs))


def _evaluate(module: GraphModule, values: Sequence[Any], key: Key | None) -> list[Array]:
    """Evaluates a branch or a body; its results are arrays, whether they are given as one or as several."""
    results = evaluate_graph(module.graph, values, key)
    return [_array(result) for result in (results if isinstance(results, list | tuple) else [results])]


def _key_of(key: Key | None, step: Array) -> Key | None:
    return None if key is None else jax.random.fold_in(key, step)


def _steps(xs: Sequence[Array]) -> Array:
    return jnp.arange(xs[0].shape[0], dtype=jnp.int32)


def _truth(predicate: Any) -> Array:
    return _array(predicate).reshape(()).astype(jnp.bool_)


def _array(value: Any) -> Array:
    """An array; a Python number with the dtype that it has in a program: i64, f64 or bool."""
    return jnp.asarray(value) if is_array(value) else jnp.asarray(np.asarray(value))
