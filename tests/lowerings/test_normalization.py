"""Normalization against eager, in every mode."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from .support import check, lowered


def _input(*shape: int) -> torch.Tensor:
    torch.manual_seed(0)
    return 3 * torch.randn(shape) + 1


def _vectors(count: int, size: int) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.rand(size) + 0.5 for _ in range(count)]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 4)])
def test_batch_norm(shape: tuple[int, ...], training: bool) -> None:
    mean, variance, weight, bias = _vectors(4, 3)
    check(F.batch_norm, _input(*shape), mean, variance, weight, bias, training=training)
    check(F.batch_norm, _input(*shape), mean, variance, training=training)


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_updates_its_statistics(training: bool) -> None:
    mean, variance, weight, bias = _vectors(4, 3)
    args = (_input(4, 3, 5), weight, bias, mean, variance, training, 0.3, 1e-5)
    check(torch.ops.aten._native_batch_norm_legit_functional.default, *args)


def test_instance_norm() -> None:
    weight, bias, mean, variance = _vectors(4, 3)
    check(F.instance_norm, _input(2, 3, 4, 5), weight=weight, bias=bias)
    check(F.instance_norm, _input(2, 3, 6), mean, variance, weight, bias, use_input_stats=False)


@pytest.mark.parametrize("groups", [1, 3, 6])
def test_group_norm(groups: int) -> None:
    weight, bias = _vectors(2, 6)
    check(F.group_norm, _input(2, 6, 4, 5), groups, weight, bias)
    check(torch.ops.aten.native_group_norm.default, _input(2, 6, 4, 5), weight, bias, 2, 6, 20, groups, 1e-5)


def test_layer_norm_over_several_dimensions() -> None:
    check(F.layer_norm, _input(2, 3, 4), (3, 4), torch.rand(3, 4), torch.rand(3, 4))
    check(torch.ops.aten.native_layer_norm.default, _input(2, 3, 4), [4], *_vectors(2, 4), 1e-5)


def test_rms_norm_takes_the_dtypes_epsilon() -> None:
    check(F.rms_norm, _input(2, 4) * 1e-4, (4,), _vectors(1, 4)[0])
    check(F.rms_norm, _input(2, 4), (4,), None, 0.1)
    check(F.rms_norm, _input(2, 4).bfloat16() * 1e-3, (4,))


def test_large_means_leave_the_variance_alone() -> None:
    """A variance from the mean of squares would be noise here."""
    x = _input(2, 64) * 1e-2 + 1e3
    (result,) = lowered(F.layer_norm, x, (64,), eps=0.0)
    np.testing.assert_allclose(result, F.layer_norm(x.double(), (64,), eps=0.0).numpy(), atol=1e-2)


def test_bf16_statistics_are_in_f32() -> None:
    check(F.layer_norm, _input(2, 256).bfloat16(), (256,))
    check(F.group_norm, _input(2, 6, 16).bfloat16(), 2)


def test_nothing_to_normalize() -> None:
    check(F.layer_norm, torch.zeros(0, 4), (4,))
    check(F.group_norm, torch.zeros(0, 4, 3), 2)
    check(F.batch_norm, torch.zeros(0, 3, 4), torch.zeros(3), torch.ones(3))


def test_local_response() -> None:
    check(F.local_response_norm, _input(2, 6, 4, 5), 3)
