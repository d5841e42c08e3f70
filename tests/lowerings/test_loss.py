"""Losses against eager: reductions, weights, ignored targets."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

from .support import check

REDUCTIONS = ["none", "mean", "sum"]
LABELS = torch.tensor([0, 3, -100, 1, 2])
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.1])


def _input(*shape: int) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(shape)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy(reduction: str) -> None:
    check(F.cross_entropy, _input(5, 4), LABELS, WEIGHT, reduction=reduction)
    check(F.cross_entropy, _input(5, 4), LABELS, WEIGHT, reduction=reduction, label_smoothing=0.3)
    check(F.cross_entropy, _input(5, 4), LABELS.clamp(min=0), ignore_index=3, reduction=reduction)
    check(F.cross_entropy, _input(5, 4), _input(5, 4).softmax(-1), reduction=reduction)
    check(F.cross_entropy, _input(5, 4, 3), LABELS[:, None].expand(5, 3), reduction=reduction)


def test_every_target_ignored_gives_nan() -> None:
    check(F.cross_entropy, _input(2, 4), torch.tensor([-100, -100]))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_negative_log_likelihood(reduction: str) -> None:
    check(F.nll_loss, _input(5, 4), LABELS, WEIGHT, reduction=reduction)
    check(F.nll_loss, _input(2, 4, 3, 3), torch.randint(0, 4, (2, 3, 3)), WEIGHT, reduction=reduction)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy_at_the_ends(reduction: str) -> None:
    """Eager cuts the logarithm at -100."""
    x, target = torch.tensor([0.0, 1.0, 0.3, 1.0]), torch.tensor([1.0, 0.0, 0.5, 1.0])
    check(F.binary_cross_entropy, x, target, torch.rand(4), reduction=reduction)
    logits = torch.tensor([-200.0, 200.0, 0.3, -0.1])
    check(F.binary_cross_entropy_with_logits, logits, target, pos_weight=torch.rand(4), reduction=reduction)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_of_linear_layers_by_chunks(reduction: str) -> None:
    x, weight, bias = _input(5, 6), _input(4, 6), _input(4)
    options = LinearCrossEntropyOptions(chunking_method=None, batch_chunk_size=2, allow_retain_graph=True)
    check(
        lambda *args: F.linear_cross_entropy(
            *args, linear_bias=bias, weight=WEIGHT, reduction=reduction, options=options
        ),
        x,
        weight,
        LABELS,
    )


def test_margins_and_embeddings() -> None:
    x, y, sign = _input(5, 4), _input(5, 4).flip(0), torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])
    check(F.cosine_embedding_loss, x, y, sign, margin=0.2)
    check(F.margin_ranking_loss, x[:, 0], y[:, 0], sign, margin=0.2)
    check(F.hinge_embedding_loss, x[:, 0], sign)
    check(F.triplet_margin_loss, x, y, x.roll(1, 0), swap=True)
    check(F.multi_margin_loss, x, LABELS.clamp(min=0), weight=WEIGHT)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_labels_end_at_the_first_that_is_negative(reduction: str) -> None:
    labels = torch.tensor([[3, 0, -1, 1], [-1, 2, 2, 2], [0, 1, 2, 3], [2, -1, -1, 0], [1, 0, 3, -1]])
    check(F.multilabel_margin_loss, _input(5, 4), labels, reduction=reduction)
    # Of one row unreduced, eager's result has no dimension, and the exported graph says that it has one.
    if reduction != "none":
        check(F.multilabel_margin_loss, _input(4), labels[0], reduction=reduction)


def test_regressions() -> None:
    x, y = _input(5, 4), _input(5, 4).flip(0)
    for loss in (F.l1_loss, F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.soft_margin_loss, F.poisson_nll_loss):
        check(loss, x, y)
    check(F.kl_div, x.log_softmax(-1), y.softmax(-1), reduction="batchmean")
    check(F.kl_div, x.log_softmax(-1), y.log_softmax(-1), log_target=True, reduction="sum")
