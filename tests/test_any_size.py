"""Small programs at every size up to a bound, with NaN in the padding, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from any_size import check, compile_any_size
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F

pytestmark = [
    # Eager says so of the variance of one element, which is NaN.
    pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0:UserWarning"),
    # torch.export sees the weights that a recurrent layer keeps in a list beside its parameters, and says so.
    pytest.mark.filterwarnings("ignore:The tensor attributes .* were assigned during export:UserWarning"),
]

X = "f32[b,s,6]"
SIZES = ["b=1..3", "s=1..7"]
IMAGE = "f32[b,3,h,w]"
IMAGE_SIZES = ["b=1..2", "h=2..7", "w=2..8"]
KERNEL = torch.arange(72.0).reshape(4, 6, 3) / 40
KERNEL_2D = torch.arange(108.0).reshape(4, 3, 3, 3) / 40
TABLE = torch.arange(40.0).reshape(10, 4)


def over_the_length(x: torch.Tensor) -> Any:
    """Adds up the elements of a sequence, one by one."""

    def step(number: torch.Tensor, total: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return number + 1, total + x.index_select(1, number.reshape(1)).squeeze(1)

    return while_loop(
        lambda number, _: number < x.shape[1], step, (torch.zeros((), dtype=torch.int64), torch.zeros(x.shape[0], 6))
    )


def mixing(x: torch.Tensor) -> Any:
    """Carries a sequence, and mixes its elements as often as it is long."""
    return while_loop(
        lambda number, _: number < x.shape[1],
        lambda number, y: (number + 1, y.softmax(1) + x.mean(1, keepdim=True) + x.shape[1]),
        (torch.zeros((), dtype=torch.int64), x),
    )


def recurrent(kind: type[torch.nn.RNNBase], **options: Any) -> torch.nn.Module:
    """Makes a layer over a sequence."""
    torch.manual_seed(0)
    return kind(6, 4, batch_first=True, **options).eval()


def write_inside(x: torch.Tensor) -> torch.Tensor:
    """Writes a sequence into the middle of a longer one."""
    y = torch.ones(x.shape[0], x.shape[1] + 2, 6)
    y[:, 1:-1] = x
    return y


#: Name, function, inputs, sizes.
Case = tuple[str, Callable[..., Any], list[str], list[str]]

#: One of each kind of rule.
SAMPLE: list[Case] = [
    ("softmax", lambda x: x.softmax(1), [X], SIZES),
    # Its forward takes an `input`, which is also one of Python's own names.
    ("layer", torch.nn.Linear(6, 4).requires_grad_(False), [X], SIZES),
    ("attention", lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), [X], SIZES),
    ("last", lambda x: x[:, -1], [X], SIZES),
    ("merge", lambda x: x.flatten(0, 1).softmax(0).reshape(x.shape[0], x.shape[1], 3, 2), [X], SIZES),
    ("concatenate", lambda x, y: torch.cat([x, y, x], 1).cumsum(1), [X, "f32[b,t,6]"], [*SIZES, "t=1..4"]),
    ("sort", lambda x: x.sort(1), [X], SIZES),
    ("convolution", lambda x: F.conv2d(x, KERNEL_2D, stride=2, padding=1), [IMAGE], IMAGE_SIZES),
    (
        "scatter",
        lambda x, y, z: x.scatter_add(1, y, z),
        ["f32[b,s]", "i64[b,t]", "f32[b,t]"],
        ["b=1..2", "s=4..7", "t=1..5"],
    ),
    ("values", lambda x: x / x.shape[1] ** 0.5 + torch.arange(x.shape[1])[:, None], [X], SIZES),
    ("loop over the length", lambda x: over_the_length(x), [X], SIZES),
]

OTHERS: list[Case] = [
    ("loop that mixes what it carries", lambda x: mixing(x), [X], SIZES),
    ("branches", lambda x: torch.cond(x.sum() > 0, lambda x: x.cumsum(1), lambda x: x - x.shape[1], (x,)), [X], SIZES),
    (
        "scan along a size",
        lambda x: scan(lambda c, y: (c + y, c * y), torch.zeros(x.shape[0], 6), x, dim=1),
        [X],
        SIZES,
    ),
    ("map over a size", lambda x: map_over(lambda y: y.softmax(0), x), [X], SIZES),
    ("mean", lambda x: x.mean(1), [X], SIZES),
    ("var", lambda x: x.var(1), [X], SIZES),
    ("std", lambda x: x.std(1), [X], SIZES),
    ("prod", lambda x: x.prod(1), [X], SIZES),
    ("norm", lambda x: x.norm(dim=1), [X], SIZES),
    ("logsumexp", lambda x: x.logsumexp(1), [X], SIZES),
    ("any and all", lambda x: ((x > 0).any(1), (x > -2).all(1)), [X], SIZES),
    ("log_softmax", lambda x: x.log_softmax(1), [X], SIZES),
    ("layer_norm", lambda x: F.layer_norm(x.transpose(1, 2), x.shape[1:2]), [X], SIZES),
    ("group_norm", lambda x: F.group_norm(x.transpose(1, 2), 2), [X], SIZES),
    ("instance_norm", lambda x: F.instance_norm(x), [IMAGE], IMAGE_SIZES),
    ("batch_norm", lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3)), [IMAGE], IMAGE_SIZES),
    ("all but the first", lambda x: x[:, 1:], [X], SIZES),
    ("all but the last", lambda x: x[:, :-1], [X], SIZES),
    ("every second", lambda x: x[:, ::2], [X], SIZES),
    ("first half", lambda x: x[:, : x.shape[1] // 2], [X], SIZES),
    ("second half", lambda x: x[:, x.shape[1] // 2 :], [X], SIZES),
    ("flip", lambda x: x.flip(1), [X], SIZES),
    ("roll", lambda x: x.roll(1, 1), [X], SIZES),
    ("cumsum", lambda x: x.cumsum(1), [X], SIZES),
    ("cumprod", lambda x: x.cumprod(1), [X], SIZES),
    ("cummax", lambda x: x.cummax(1), [X], SIZES),
    ("topk", lambda x: x.topk(2, 1), [X], ["b=1..3", "s=2..7"]),
    ("argmax", lambda x: x.argmax(1), [X], SIZES),
    ("argmin of all", lambda x: x.argmin(), [X], SIZES),
    ("max with indices", lambda x: x.max(1), [X], SIZES),
    ("one_hot", lambda x: F.one_hot(x, 5), ["i64[b,s]"], SIZES),
    ("matmul", lambda x, y: x.transpose(1, 2) @ y, [X, X], SIZES),
    ("outer", lambda x, y: torch.outer(x, y), ["f32[b]", "f32[s]"], SIZES),
    ("bmm", lambda x: torch.bmm(x, x.transpose(1, 2)), [X], SIZES),
    ("einsum", lambda x, y: torch.einsum("bsd,btd->bst", x, y).sum(2), [X, "f32[b,t,6]"], [*SIZES, "t=1..4"]),
    ("stack", lambda x: torch.stack([x, x * 2], 1), [X], SIZES),
    ("expand", lambda x: x[:, :1].expand(-1, x.shape[1], -1).sum(1), [X], SIZES),
    ("repeat", lambda x: x.repeat(1, 2, 1), [X], SIZES),
    ("merge left", lambda x: x.reshape(-1, 6) * 2, [X], SIZES),
    ("merge right", lambda x: x.reshape(x.shape[0], -1).softmax(1).reshape(x.shape), [X], SIZES),
    ("argmax of merged", lambda x: x.flatten().argmax(), ["f32[b,s]"], SIZES),
    ("cumsum of merged", lambda x: x.flatten().cumsum(0), ["f32[b,s]"], SIZES),
    ("unfold", lambda x: x.unfold(1, 3, 2), [X], ["b=1..3", "s=3..9"]),
    ("pad", lambda x: F.pad(x, (0, 0, 2, 1), value=3.0).sum(1), [X], SIZES),
    ("pad to a length", lambda x: F.pad(x, (0, 0, 0, 12 - x.shape[1])), [X], SIZES),
    ("reflect", lambda x: F.pad(x.transpose(1, 2), (2, 1), mode="reflect"), [X], ["b=1..3", "s=3..8"]),
    ("replicate", lambda x: F.pad(x.transpose(1, 2), (2, 1), mode="replicate"), [X], SIZES),
    ("conv1d", lambda x: F.conv1d(x.transpose(1, 2), KERNEL), [X], ["b=1..3", "s=3..9"]),
    ("conv1d, strided", lambda x: F.conv1d(x.transpose(1, 2), KERNEL, stride=3, padding=2), [X], SIZES),
    ("conv1d, dilated", lambda x: F.conv1d(x.transpose(1, 2), KERNEL, dilation=2, padding=2), [X], SIZES),
    (
        "transposed convolution",
        lambda x: F.conv_transpose2d(x, KERNEL_2D.transpose(0, 1), stride=2, padding=1),
        [IMAGE],
        IMAGE_SIZES,
    ),
    ("adaptive pooling to one", lambda x: F.adaptive_avg_pool2d(x, 1), [IMAGE], IMAGE_SIZES),
    ("max pooling", lambda x: F.max_pool2d(x, 3, 2, 1), [IMAGE], IMAGE_SIZES),
    ("average pooling", lambda x: F.avg_pool2d(x, 2), [IMAGE], IMAGE_SIZES),
    ("average pooling, padded", lambda x: F.avg_pool2d(x, 3, 2, 1), [IMAGE], IMAGE_SIZES),
    (
        "average pooling without padding",
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        [IMAGE],
        IMAGE_SIZES,
    ),
    ("adaptive pooling", lambda x: F.adaptive_avg_pool2d(x, 3), [IMAGE], IMAGE_SIZES),
    ("nearest neighbours", lambda x: F.interpolate(x, scale_factor=2), [IMAGE], IMAGE_SIZES),
    ("bilinear", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [IMAGE], IMAGE_SIZES),
    ("bilinear to a size", lambda x: F.interpolate(x, size=(5, 9), mode="bilinear"), [IMAGE], IMAGE_SIZES),
    (
        "bilinear, aligned",
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
        [IMAGE],
        IMAGE_SIZES,
    ),
    ("bicubic", lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), [IMAGE], IMAGE_SIZES),
    ("median", lambda x: x.median(1), [X], SIZES),
    ("index_select", lambda x, y: x.index_select(1, y), [X, "i64[t]"], ["b=1..2", "s=4..7", "t=1..5"]),
    ("index", lambda x, y: x[:, y], [X, "i64[t]"], ["b=1..2", "s=4..7", "t=1..5"]),
    ("gather", lambda x, y: x.gather(1, y), ["f32[b,s]", "i64[b,t]"], ["b=1..2", "s=4..7", "t=1..5"]),
    ("index_add", lambda x, y, z: x.index_add(0, y, z), ["f32[s,3]", "i64[t]", "f32[t,3]"], ["s=4..7", "t=1..5"]),
    ("index_put", lambda x, y, z: x.index_put((y,), z), ["f32[s,3]", "i64[t]", "f32[3]"], ["s=4..7", "t=1..5"]),
    ("embedding", lambda x: F.embedding(x, TABLE), ["i64[b,s]"], SIZES),
    ("triu", lambda x: (x @ x.transpose(1, 2)).triu(), [X], SIZES),
    ("arange", lambda x: torch.arange(x.shape[1]) * 2 + x.shape[1], [X], SIZES),
    ("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), ["f32[b,4,h,w]"], IMAGE_SIZES),
    ("chunk", lambda x: x.chunk(2, 2)[0], [X], SIZES),
    ("tril", lambda x: (x @ x.transpose(1, 2)).tril(-1), [X], SIZES),
    ("diagonal", lambda x: (x @ x.transpose(1, 2)).diagonal(dim1=1, dim2=2), [X], SIZES),
    ("diag_embed", lambda x: x.diag_embed(), ["f32[b,s]"], SIZES),
    ("eye", lambda x: torch.eye(x.shape[1]) @ x, [X], SIZES),
    ("linspace", lambda x: torch.linspace(-1, 2, x.shape[1])[:, None] + x, [X], SIZES),
    ("linspace of integers", lambda x: torch.linspace(3, 9, x.shape[0], dtype=torch.int32), ["f32[s]"], ["s=1..9"]),
    ("kron", lambda x, y: (torch.kron(x, y), y[0].kron(x)), ["f32[s,2]", "f32[t,3]"], ["s=1..4", "t=1..3"]),
    ("one-dimensional max pooling", lambda x: F.max_pool1d(x.transpose(1, 2), 3, 2, 1), [X], SIZES),
    ("max pooling, with places", lambda x: F.max_pool2d(x, 2, return_indices=True), [IMAGE], IMAGE_SIZES),
    ("max pooling, ceil mode", lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), [IMAGE], IMAGE_SIZES),
    (
        "average pooling, ceil mode",
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        [IMAGE],
        IMAGE_SIZES,
    ),
    ("adaptive max pooling to one", lambda x: F.adaptive_max_pool2d(x, 1), [IMAGE], IMAGE_SIZES),
    ("adaptive max pooling", lambda x: F.adaptive_max_pool2d(x, 3, return_indices=True), [IMAGE], IMAGE_SIZES),
    ("convolution, dilated", lambda x: F.conv2d(x, KERNEL_2D, padding=2, dilation=2), [IMAGE], IMAGE_SIZES),
    ("unfolded images", lambda x: F.unfold(x, 2, stride=2), [IMAGE], IMAGE_SIZES),
    ("folded images", lambda x: F.fold(F.unfold(x, 2), (x.shape[2], x.shape[3]), 2), [IMAGE], IMAGE_SIZES),
    ("circular", lambda x: F.pad(x.transpose(1, 2), (2, 1), mode="circular"), [X], ["b=1..3", "s=2..7"]),
    ("write inside", write_inside, [X], SIZES),
    (
        # Eager gives one row for all where the output is one wide.
        "bilinear, antialiased",
        lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
        ["f32[b,3,h,w]"],
        ["b=1..2", "h=2..7", "w=4..9"],
    ),
    ("bags of a length", lambda x: F.embedding_bag(x, TABLE), ["i64[b,s]"], SIZES),
    ("bags, the largest", lambda x: F.embedding_bag(x, TABLE, mode="max"), ["i64[b,s]"], SIZES),
    (
        "bags by offsets",
        lambda x, y: F.embedding_bag(x, TABLE, y.cumsum(0) - y, mode="sum"),
        ["i64[s]", "i64[t]"],
        ["s=12..16", "t=1..4"],
    ),
    ("lstm", recurrent(torch.nn.LSTM), [X], SIZES),
    ("gru, both ways", recurrent(torch.nn.GRU, bidirectional=True), [X], SIZES),
    ("searchsorted", lambda x: torch.searchsorted(x.sort().values, x), ["f32[b,s]"], SIZES),
    ("quantile", lambda x: x.quantile(0.3, 1), [X], SIZES),
    ("dropout of nothing", lambda x: F.dropout(x, 0.0, True) + torch.rand_like(x) * 0, [X], SIZES),
    (
        "keys of earlier calls",
        lambda x, y: F.scaled_dot_product_attention(
            x,
            torch.cat([y, x], 1),
            torch.cat([y, x], 1),
            attn_mask=torch.ones(x.shape[1], x.shape[1] + y.shape[1], dtype=torch.bool).tril(y.shape[1]),
        ),
        [X, "f32[b,t,6]"],
        [*SIZES, "t=1..4"],
    ),
]


def _parameters(cases: list[Case]) -> list[Any]:
    return [pytest.param(*rest, id=name) for name, *rest in cases]


@pytest.mark.parametrize(("function", "inputs", "sizes"), _parameters(SAMPLE))
def test_every_size(function: Callable[..., Any], inputs: list[str], sizes: list[str]) -> None:
    check(function, inputs, sizes)


def test_random_numbers_are_the_same_in_every_bucket() -> None:
    sizes = {"s": 3}
    x = torch.zeros(3, 4)
    shorter, longer = (
        compile_any_size(lambda x: x + torch.rand_like(x), ["f32[s,4]"], [bound]).run([x], sizes)[0][:3]
        for bound in ("s=1..5", "s=1..8")
    )
    np.testing.assert_array_equal(shorter, longer)
    assert len(np.unique(shorter)) == shorter.size


@pytest.mark.slow
@pytest.mark.parametrize(("function", "inputs", "sizes"), _parameters(OTHERS))
def test_every_size_of_others(function: Callable[..., Any], inputs: list[str], sizes: list[str]) -> None:
    check(function, inputs, sizes)
