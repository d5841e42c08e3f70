"""Every layer of torch.nn in its documented use, as a suite of the coverage benchmark.

The example in a layer's documentation is run, and what it calls the layer with becomes a case. `EXAMPLES` has those
that the documentation lacks, or that need more than it shows.
"""

from __future__ import annotations

import copy
import doctest
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from benchmarks.against_eager import Runner, Verdict
from benchmarks.modules import run_module

#: Have no forward of their own, or no use on one device.
_NO_LAYERS = frozenset(
    {
        "Container",
        "DataParallel",
        "Module",
        "ModuleDict",
        "ModuleList",
        "ParameterDict",
        "ParameterList",
        "RNNBase",
        "RNNCellBase",
    }
)
#: Draw random numbers in any mode.
_ALWAYS_RANDOM = frozenset({"FractionalMaxPool2d", "FractionalMaxPool3d"})
#: Draw random numbers in training mode, which they are in when they are made.
_RANDOM = frozenset(
    {
        "AlphaDropout",
        "Dropout",
        "Dropout1d",
        "Dropout2d",
        "Dropout3d",
        "FeatureAlphaDropout",
        "RReLU",
        "Transformer",
        "TransformerDecoder",
        "TransformerDecoderLayer",
        "TransformerEncoder",
        "TransformerEncoderLayer",
    }
)


def _adaptive_log_softmax() -> None:
    layer = nn.AdaptiveLogSoftmaxWithLoss(16, 40, [10, 20])
    layer(torch.randn(8, 16), torch.tensor([0, 9, 10, 15, 19, 20, 30, 39]))


def _embedding_bag() -> None:
    bags, offsets = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]), torch.tensor([0, 4])
    nn.EmbeddingBag(10, 3, mode="sum")(bags, offsets)
    nn.EmbeddingBag(10, 3, mode="sum", include_last_offset=True)(bags, torch.tensor([0, 4, 8]))
    nn.EmbeddingBag(10, 3, mode="mean", padding_idx=2)(bags.reshape(2, 4))
    nn.EmbeddingBag(10, 3, mode="max")(bags, offsets)


def _max_unpool() -> None:
    values, indices = nn.MaxPool2d(2, stride=2, return_indices=True)(torch.randn(1, 2, 6, 6))
    nn.MaxUnpool2d(2, stride=2)(values, indices)
    nn.MaxUnpool2d(2, stride=2)(values, indices, output_size=(1, 2, 7, 7))


def _multihead_attention() -> None:
    x, mask = torch.randn(5, 2, 16), torch.ones(5, 5, dtype=torch.bool).triu(1)
    nn.MultiheadAttention(16, 4)(x, x, x)
    nn.MultiheadAttention(16, 4)(x, x, x, attn_mask=mask, average_attn_weights=False)
    every = nn.MultiheadAttention(16, 4, batch_first=True, kdim=8, vdim=6, add_bias_kv=True, add_zero_attn=True)
    every(torch.randn(2, 5, 16), torch.randn(2, 7, 8), torch.randn(2, 7, 6), need_weights=False)


def _triplet_margin() -> None:
    def largest(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x - y).abs().max(dim=1).values

    triplet = torch.randn(4, 8), torch.randn(4, 8), torch.randn(4, 8)
    nn.TripletMarginWithDistanceLoss(distance_function=nn.PairwiseDistance())(*triplet)
    nn.TripletMarginWithDistanceLoss(distance_function=largest, margin=1.5, swap=True)(*triplet)


EXAMPLES: Mapping[str, Callable[[], object]] = {
    "AdaptiveLogSoftmaxWithLoss": _adaptive_log_softmax,
    "CrossMapLRN2d": lambda: nn.CrossMapLRN2d(3)(torch.randn(2, 8, 5, 5)),
    "EmbeddingBag": _embedding_bag,
    "LazyBatchNorm1d": lambda: nn.LazyBatchNorm1d()(torch.randn(4, 3, 6)),
    "LazyBatchNorm2d": lambda: nn.LazyBatchNorm2d()(torch.randn(4, 3, 6, 6)),
    "LazyBatchNorm3d": lambda: nn.LazyBatchNorm3d()(torch.randn(4, 3, 6, 6, 6)),
    "LazyConv1d": lambda: nn.LazyConv1d(5, 3)(torch.randn(4, 3, 6)),
    "LazyConv2d": lambda: nn.LazyConv2d(5, 3)(torch.randn(4, 3, 6, 6)),
    "LazyConv3d": lambda: nn.LazyConv3d(5, 3)(torch.randn(4, 3, 6, 6, 6)),
    "LazyConvTranspose1d": lambda: nn.LazyConvTranspose1d(5, 3)(torch.randn(4, 3, 6)),
    "LazyConvTranspose2d": lambda: nn.LazyConvTranspose2d(5, 3)(torch.randn(4, 3, 6, 6)),
    "LazyConvTranspose3d": lambda: nn.LazyConvTranspose3d(5, 3)(torch.randn(4, 3, 6, 6, 6)),
    "LazyInstanceNorm1d": lambda: nn.LazyInstanceNorm1d()(torch.randn(4, 3, 6)),
    "LazyInstanceNorm2d": lambda: nn.LazyInstanceNorm2d()(torch.randn(4, 3, 6, 6)),
    "LazyInstanceNorm3d": lambda: nn.LazyInstanceNorm3d()(torch.randn(4, 3, 6, 6, 6)),
    "LazyLinear": lambda: nn.LazyLinear(4)(torch.randn(2, 3)),
    "MaxUnpool2d": _max_unpool,
    "MultiheadAttention": _multihead_attention,
    "NLLLoss2d": lambda: nn.NLLLoss2d()(torch.randn(2, 3, 4, 4).log_softmax(1), torch.randint(3, (2, 4, 4))),
    "Sequential": lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())(torch.randn(2, 1, 6, 6)),
    "SyncBatchNorm": lambda: nn.SyncBatchNorm(3).eval()(torch.randn(4, 3, 6, 6)),
    "TripletMarginWithDistanceLoss": _triplet_margin,
    "Unflatten": lambda: nn.Unflatten(1, (2, 5, 5))(torch.randn(2, 50)),
}


@dataclass(frozen=True)
class _Call:
    """A layer and what it was called with."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def names() -> list[str]:
    """Every class of torch.nn that is a layer."""
    return sorted(
        name
        for name, value in vars(nn).items()
        if inspect.isclass(value) and issubclass(value, nn.Module) and name not in _NO_LAYERS
    )


def cases(name: str) -> list[str]:
    """The calls of the layer that its example makes, by number; those that draw random numbers in eval mode too."""
    return [
        case
        for number in range(len(_calls(name)))
        for case in ([f"{number}", f"{number} eval"] if name in _RANDOM else [f"{number}"])
    ]


def run(runner: Runner, name: str, case: str) -> Verdict:
    """Runs one of them."""
    number, _, mode = case.partition(" ")
    call = _calls(name)[int(number)]
    if mode:
        module = copy.deepcopy(call.module).eval()
        return run_module(runner, module, call.args, call.kwargs)
    return run_module(runner, call.module, call.args, call.kwargs, random=name in _RANDOM | _ALWAYS_RANDOM)


@lru_cache(maxsize=8)
def _calls(name: str) -> list[_Call]:
    """Runs a layer's example, and collects the calls of the layer.

    Raises:
        ValueError: There are none.
    """
    layer = getattr(nn, name)
    calls: list[_Call] = []

    def collect(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], _result: Any) -> None:
        # A lazy layer is the plain one after its first call.
        if isinstance(module, layer) or name.startswith("Lazy"):
            calls.append(_Call(module, args, kwargs))

    torch.manual_seed(0)
    hook = nn.modules.module.register_module_forward_hook(collect, with_kwargs=True)
    try:
        if example := EXAMPLES.get(name):
            example()
        else:
            _run_documentation(layer)
    finally:
        hook.remove()
    if not calls:
        raise ValueError(f"the example of torch.nn.{name} does not call it")
    return calls


def _run_documentation(layer: type[nn.Module]) -> None:
    """Runs the examples of a docstring as doctest does; a line that fails, as some do, is passed over."""
    scope = {"torch": torch, "nn": nn, "F": nn.functional}
    test = doctest.DocTestParser().get_doctest(layer.__doc__ or "", scope, layer.__name__, None, None)
    doctest.DocTestRunner(verbose=False).run(test, out=lambda text: None)
