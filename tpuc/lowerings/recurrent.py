"""Recurrent layers: one loop over time for each layer and direction, in place of PyTorch's unrolled steps.

What the inputs contribute to the gates is one product for all steps before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tpuc.lowerings.registry import lowering

Array = jax.Array
_WHY = "a loop; PyTorch's decomposition has a copy of the cell for each step"
#: The states of a cell, the output first: `(h,)` or `(h, c)`.
State = tuple[Array, ...]
#: From the state, the inputs' part of the gates and the hidden state's part to the next state.
Cell = Callable[[State, Array, Array], State]


class _Weights(NamedTuple):
    """One direction of one layer; the rows of the gates lie one below the other."""

    of_input: Array
    of_hidden: Array
    input_bias: Array | None = None
    hidden_bias: Array | None = None
    projection: Array | None = None


@lowering("aten.lstm.input", "tpuc.lstm.default", why=_WHY)
def lstm(
    x: Array,
    hx: Sequence[Array],
    params: Sequence[Array],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Array, Array, Array]:
    """Long short-term memory: the outputs, and the last hidden and cell states of each layer and direction."""
    directions = num_layers * (2 if bidirectional else 1)
    weights = _grouped(params, directions, has_biases)
    y, (hidden, cells) = _run(_lstm_cell, x, hx, weights, dropout, train, bidirectional, batch_first)
    return y, hidden, cells


@lowering("aten.gru.input", "tpuc.gru.default", why=_WHY)
def gru(x: Array, hx: Array, params: Sequence[Array], has_biases: bool, num_layers: int, *rest: Any) -> Any:
    """Gated recurrent units: the outputs, and the last hidden state of each layer and direction."""
    return _single_state(_gru_cell, x, hx, params, has_biases, num_layers, *rest)


@lowering("aten.rnn_tanh.input", "tpuc.rnn_tanh.default", why=_WHY)
def rnn_tanh(x: Array, hx: Array, params: Sequence[Array], has_biases: bool, num_layers: int, *rest: Any) -> Any:
    """A plain recurrent layer: the outputs, and the last hidden state of each layer and direction."""
    return _single_state(partial(_plain_cell, jnp.tanh), x, hx, params, has_biases, num_layers, *rest)


@lowering("aten.rnn_relu.input", "tpuc.rnn_relu.default", why=_WHY)
def rnn_relu(x: Array, hx: Array, params: Sequence[Array], has_biases: bool, num_layers: int, *rest: Any) -> Any:
    """A plain recurrent layer: the outputs, and the last hidden state of each layer and direction."""
    return _single_state(partial(_plain_cell, jax.nn.relu), x, hx, params, has_biases, num_layers, *rest)


def _single_state(
    cell: Cell,
    x: Array,
    hx: Array,
    params: Sequence[Array],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Array, Array]:
    weights = _grouped(params, num_layers * (2 if bidirectional else 1), has_biases)
    y, (hidden,) = _run(cell, x, (hx,), weights, dropout, train, bidirectional, batch_first)
    return y, hidden


def _grouped(params: Sequence[Array], directions: int, has_biases: bool) -> list[_Weights]:
    """Takes apart PyTorch's flat list of weights: for each direction two, two biases if any, a projection if any."""
    each = len(params) // directions
    groups = [params[start : start + each] for start in range(0, len(params), each)]
    if has_biases:
        return [_Weights(*group) for group in groups]
    return [_Weights(group[0], group[1], None, None, *group[2:]) for group in groups]


def _run(
    cell: Cell,
    x: Array,
    states: Sequence[Array],
    weights: Sequence[_Weights],
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Array, tuple[Array, ...]]:
    """Runs the layers one after the other.

    Args:
        cell: The cell.
        x: [T, B, I], or [B, T, I] with `batch_first`.
        states: Each kind of state: [layers * directions, B, H].
        weights: For each layer and direction.
        dropout: Between layers.
        train: Whether `dropout` counts.
        bidirectional: Whether each layer has a second direction, from the end.
        batch_first: See `x`.

    Returns:
        The last layer's outputs, and the last states.
    """
    directions = 2 if bidirectional else 1
    if train and dropout and len(weights) > directions:
        raise NotImplementedError("dropout between recurrent layers needs random numbers")
    y = jnp.swapaxes(x, 0, 1) if batch_first else x
    last: list[State] = []
    for layer in range(0, len(weights), directions):
        outputs = []
        for number in range(layer, layer + directions):
            start = tuple(state[number] for state in states)
            output, end = _loop(cell, y, start, weights[number], reverse=number > layer)
            outputs.append(output)
            last.append(end)
        y = jnp.concatenate(outputs, axis=-1)
    ends = tuple(jnp.stack(kind) for kind in zip(*last, strict=True))
    return jnp.swapaxes(y, 0, 1) if batch_first else y, ends


def _loop(cell: Cell, x: Array, start: State, weights: _Weights, *, reverse: bool) -> tuple[Array, State]:
    """Runs one direction of one layer: [T, B, I] to [T, B, H] and the last state. The gates are computed in f32."""
    wide = jnp.promote_types(x.dtype, jnp.float32)
    product = partial(jnp.matmul, preferred_element_type=wide)
    of_inputs = product(x, weights.of_input.T)
    if weights.input_bias is not None:
        of_inputs = of_inputs + weights.input_bias

    def step(state: State, of_input: Array) -> tuple[State, Array]:
        of_hidden = product(state[0], weights.of_hidden.T)
        if weights.hidden_bias is not None:
            of_hidden = of_hidden + weights.hidden_bias
        hidden, *others = cell(state, of_input, of_hidden)
        hidden = hidden.astype(x.dtype)
        if weights.projection is not None:
            hidden = product(hidden, weights.projection.T).astype(x.dtype)
        return (hidden, *others), hidden

    hidden, *others = start
    end, outputs = lax.scan(step, (hidden, *(other.astype(wide) for other in others)), of_inputs, reverse=reverse)
    return outputs, end


def _lstm_cell(state: State, of_input: Array, of_hidden: Array) -> State:
    i, f, g, o = jnp.split(of_input + of_hidden, 4, axis=-1)
    cell = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(cell), cell


def _gru_cell(state: State, of_input: Array, of_hidden: Array) -> State:
    input_r, input_z, input_n = jnp.split(of_input, 3, axis=-1)
    hidden_r, hidden_z, hidden_n = jnp.split(of_hidden, 3, axis=-1)
    reset, update = jax.nn.sigmoid(input_r + hidden_r), jax.nn.sigmoid(input_z + hidden_z)
    new = jnp.tanh(input_n + reset * hidden_n)
    return ((1 - update) * new + update * state[0],)


def _plain_cell(activation: Callable[[Array], Array], state: State, of_input: Array, of_hidden: Array) -> State:
    return (activation(of_input + of_hidden),)
