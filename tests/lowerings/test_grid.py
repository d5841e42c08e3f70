"""Grid sampling against eager: every mode, padding and convention for corners, with points far outside."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from .support import check

PADDINGS = ("zeros", "border", "reflection")


@pytest.mark.parametrize(
    ("rank", "mode"), [(2, "bilinear"), (2, "nearest"), (2, "bicubic"), (3, "bilinear"), (3, "nearest")]
)
def test_modes(rank: int, mode: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, *[5, 6, 4][:rank])
    grid = 3 * torch.randn(2, *[7, 2, 3][:rank], rank)
    for padding, aligned in itertools.product(PADDINGS, [False, True]):
        check(F.grid_sample, x, grid, mode=mode, padding_mode=padding, align_corners=aligned)


@pytest.mark.parametrize("padding", PADDINGS)
def test_points_on_the_borders(padding: str) -> None:
    x = torch.arange(12.0).reshape(1, 1, 3, 4)
    points = torch.tensor([-1.0, -0.5, 0.0, 1.0, 1.5])
    grid = torch.stack(torch.meshgrid(points, points, indexing="xy"), -1)[None]
    for mode, aligned in itertools.product(["bilinear", "nearest"], [False, True]):
        check(F.grid_sample, x, grid, mode=mode, padding_mode=padding, align_corners=aligned)


def test_a_single_element() -> None:
    for padding in PADDINGS:
        check(F.grid_sample, torch.ones(1, 2, 1, 1), torch.randn(1, 3, 3, 2), padding_mode=padding, align_corners=True)


def test_bf16_positions_are_computed_in_f32() -> None:
    x, grid = torch.randn(1, 2, 4, 4).bfloat16(), torch.randn(1, 3, 3, 2).bfloat16()
    check(lambda x, g: F.grid_sample(x.float(), g.float(), align_corners=False).bfloat16(), x, grid)
