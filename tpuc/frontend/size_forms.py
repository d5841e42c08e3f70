"""Other forms of PyTorch's functions that take sizes for numbers, and so would bind an export to the example's sizes.

Their kernels in C++ ask for a size as an integer, where torch.export has a symbol. Each form computes the same from
functions that keep the symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

Function = Callable[..., Any]


class SizeForms(TorchFunctionMode):
    """Replaces functions by their forms while a model is exported with named sizes."""

    def __torch_function__(
        self, func: Function, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Calls the form of a function, if it has one for these arguments."""
        kwargs = kwargs or {}
        form = _FORMS.get(func)
        result = NotImplemented if form is None else form(*args, **kwargs)
        return func(*args, **kwargs) if result is NotImplemented else result


def _linspace(start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    """Counts from both ends. Source: ATen/native/cpu/RangeFactoriesKernel.cpp."""
    dtype = dtype or torch.get_default_dtype()
    if not isinstance(steps, torch.SymInt) or dtype.is_complex or "out" in options:
        return NotImplemented
    wide = dtype if dtype.is_floating_point else torch.float64
    count: Any = steps  # To PyTorch's annotations a symbol is no number.
    place = torch.arange(count, dtype=wide)
    last = torch.full((), count - 1, dtype=wide)
    step = (end - start) / last.clamp(min=1)
    # One step alone is the start.
    is_near_start = place < (torch.full((), count, dtype=wide) / 2).floor().clamp(min=1)
    return torch.where(is_near_start, start + step * place, end - step * (last - place)).to(dtype)


def _kron(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Places a copy of `y`, times each element of `x`, in its place."""
    rank = max(x.dim(), y.dim())
    x, y = (each.reshape(*(1,) * (rank - each.dim()), *each.shape) for each in (x, y))
    spread = (size for pair in zip(x.shape, (1,) * rank, strict=True) for size in pair)
    repeated = (size for pair in zip((1,) * rank, y.shape, strict=True) for size in pair)
    sizes = [size * other for size, other in zip(x.shape, y.shape, strict=True)]
    return (x.reshape(*spread) * y.reshape(*repeated)).reshape(sizes)


def _max_pool1d(
    x: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Finds the places too, which nobody reads."""
    if return_indices:
        return NotImplemented
    stride = kernel_size if stride is None or stride == [] else stride
    return torch.max_pool1d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode)[0]


_RECURRENT = (
    "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
)
_CELLS: Mapping[str, Function] = {
    "gru": torch.gru,
    "lstm": torch.lstm,
    "rnn_relu": torch.rnn_relu,
    "rnn_tanh": torch.rnn_tanh,
}


def _define_recurrent(name: str, eager: Function) -> None:
    """Defines an operator for a recurrent layer: PyTorch's own would be unrolled over the example's length."""
    states, results = (
        ("Tensor[] hx", "(Tensor, Tensor, Tensor)") if name == "lstm" else ("Tensor hx", "(Tensor, Tensor)")
    )
    torch.library.define(f"tpuc::{name}", f"(Tensor x, {states}, {_RECURRENT}) -> {results}")

    def compute(*args: Any) -> Any:
        return tuple(result.clone() for result in eager(*args))

    def describe(x: torch.Tensor, hx: Any, params: Any, biases: bool, layers: int, *rest: Any) -> Any:
        states = hx if name == "lstm" else [hx]
        directions = states[0].shape[0] // layers
        outputs = x.new_empty([*x.shape[:2], directions * states[0].shape[2]])
        return (outputs, *(torch.empty_like(state) for state in states))

    torch.library.impl(f"tpuc::{name}", "CPU")(compute)
    torch.library.register_fake(f"tpuc::{name}")(describe)


def _recurrent(name: str) -> Function:
    def form(*args: Any) -> Any:
        # Packed sequences, whose sizes depend on data, have other arguments.
        is_packed = not isinstance(args[2], list | tuple)
        return NotImplemented if is_packed else getattr(torch.ops.tpuc, name).default(*args)

    return form


for _name, _eager in _CELLS.items():
    _define_recurrent(_name, _eager)

_FORMS: Mapping[Function, Function] = {
    torch.linspace: _linspace,
    torch.kron: _kron,
    torch.Tensor.kron: _kron,
    torch.max_pool1d: _max_pool1d,
    F.max_pool1d: _max_pool1d,
    **{eager: _recurrent(name) for name, eager in _CELLS.items()},
}
