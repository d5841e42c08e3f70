"""Gradients of core operators against eager."""

import pytest
import torch

from .support import check

aten = torch.ops.aten


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("mask", [[True, True, True], [False, True, False]])
def test_convolution(transposed: bool, mask: list[bool]) -> None:
    x, weight = torch.randn(2, 4, 9, 7), torch.randn(4, 2, 3, 2)
    groups, output_padding = 2, [1, 0] if transposed else [0, 0]
    settings = ([2, 1], [1, 0], [1, 2], transposed, output_padding, groups)
    gradient = torch.randn_like(aten.convolution(x, weight, None, *settings))
    bias = [gradient.shape[1]]

    def backward(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
        results = aten.convolution_backward(gradient, x, weight, bias, *settings, mask)
        return [result for result, wanted in zip(results, mask, strict=True) if wanted]

    check(backward, gradient, x, weight)


def test_average_pooling() -> None:
    x = torch.randn(2, 3, 8, 9)
    settings = ([3, 2], [2, 2], [1, 0], True, False, None)
    gradient = torch.randn_like(aten.avg_pool2d(x, *settings))
    check(aten.avg_pool2d_backward, gradient, x, *settings)
    check(
        aten.avg_pool3d_backward, torch.randn(2, 3, 1, 2, 2), torch.randn(2, 3, 3, 5, 5), [2], [2], [0], False, True, 5
    )


@pytest.mark.parametrize("size", [(4, 3), (5, 5)])
def test_adaptive_average_pooling(size: tuple[int, int]) -> None:
    check(aten._adaptive_avg_pool2d_backward, torch.randn(2, 3, *size), torch.randn(2, 3, 8, 9))
    check(aten._adaptive_avg_pool2d_backward, torch.randn(3, *size), torch.randn(3, 8, 9))
    check(aten._adaptive_avg_pool3d_backward, torch.randn(3, 2, *size), torch.randn(3, 4, 8, 9))
