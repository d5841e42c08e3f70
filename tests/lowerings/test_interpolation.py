"""Interpolation against eager: every mode, both conventions for corners, sizes and scales."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from .support import check

MODES = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
SIZES = [(10, 12, 9), (3, 4, 2), (1, 1, 1), (5, 6, 4)]


def _input(rank: int) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(2, 3, *[5, 6, 4][:rank])


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_weighted(mode: str, aligned: bool) -> None:
    rank = MODES[mode]
    x = _input(rank)
    for size in SIZES:
        check(F.interpolate, x, size=size[:rank], mode=mode, align_corners=aligned)
    check(F.interpolate, x, scale_factor=1.7, mode=mode, align_corners=aligned)
    check(F.interpolate, x, scale_factor=0.6, mode=mode, align_corners=aligned, recompute_scale_factor=True)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "area"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_unweighted(rank: int, mode: str) -> None:
    x = _input(rank)
    for size in SIZES:
        check(F.interpolate, x, size=size[:rank], mode=mode)
    for scale in (2.0, 1.7, 0.6):
        check(F.interpolate, x, scale_factor=scale, mode=mode)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiased(mode: str, aligned: bool) -> None:
    for size in ((3, 2), (10, 13), (5, 2)):
        check(F.interpolate, _input(2), size=size, mode=mode, align_corners=aligned, antialias=True)


def test_nearest_keeps_what_is_not_finite_in_its_place() -> None:
    x = torch.tensor([[[1.0, float("nan"), -float("inf"), 2.0]]])
    check(F.interpolate, x, size=7, mode="nearest")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.uint8])
def test_dtypes(dtype: torch.dtype) -> None:
    x = (_input(2) * 20 + 100).to(dtype)
    check(F.interpolate, x, size=(9, 8), mode="nearest")
    if dtype != torch.uint8:  # Eager works with 16-bit weights there.
        check(F.interpolate, x, size=(9, 8), mode="bilinear")


def test_large_dimensions_are_gathered() -> None:
    check(F.interpolate, torch.randn(1, 1, 300), size=500, mode="linear")


def test_scales_by_position_and_by_name() -> None:
    """As the operators stand in graphs that others have decomposed."""
    x = _input(2)
    for scales in ((2.0, 1.5), (None, None)):
        check(torch.ops.aten.upsample_bilinear2d.default, x, [10, 9], False, *scales)
        check(torch.ops.aten.upsample_nearest2d.default, x, [10, 9], scales_h=scales[0], scales_w=scales[1])


def test_grids_of_transforms() -> None:
    for aligned, rank in itertools.product([False, True], [2, 3]):
        check(F.affine_grid, torch.randn(2, rank, rank + 1), [2, 3, *[4, 5, 6][:rank]], align_corners=aligned)


def test_gradients() -> None:
    gradient = torch.randn(2, 3, 9, 4)
    sizes = [9, 4], [2, 3, 5, 6]
    check(torch.ops.aten.upsample_nearest2d_backward, gradient, *sizes, 1.7, 0.7)
    check(torch.ops.aten._upsample_nearest_exact2d_backward, gradient, *sizes)
    check(torch.ops.aten.upsample_bilinear2d_backward, gradient, *sizes, True)
    check(torch.ops.aten.upsample_bicubic2d_backward, gradient, *sizes, False)
    check(torch.ops.aten._upsample_bilinear2d_aa_backward, gradient, *sizes, False)
    check(torch.ops.aten.upsample_linear1d_backward, gradient[:, :, 0], [4], [2, 3, 6], False)
