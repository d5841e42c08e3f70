"""Products of float8 with scales, and of groups, against eager."""

from importlib import import_module

import pytest
import torch

from .support import check, lowered

F8 = torch.float8_e4m3fn


@pytest.mark.parametrize("rowwise", [False, True])
def test_scaled(rowwise: bool) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(16, 32).to(F8), torch.randn(48, 32).to(F8).t()
    scales = (torch.rand(16, 1), torch.rand(1, 48)) if rowwise else (torch.tensor(0.5), torch.tensor(3.0))
    check(torch._scaled_mm, x, y, *scales, out_dtype=torch.bfloat16)


def test_float8_results_saturate() -> None:
    x, y = torch.ones(16, 16).to(F8), torch.ones(16, 16).to(F8).t()
    (result,) = lowered(torch._scaled_mm, x, y, torch.tensor(100.0), torch.tensor(1.0))
    assert (result.astype("float32") == 448).all()


OFFSETS = torch.tensor([8, 8, 24], dtype=torch.int32)


@pytest.mark.parametrize(
    ("x", "y", "offs"),
    [
        ((24, 8), (3, 8, 16), OFFSETS),
        ((3, 5, 8), (8, 24), OFFSETS),
        ((5, 24), (24, 16), OFFSETS),
        ((3, 5, 8), (3, 8, 16), None),
    ],
    ids=["rows", "columns", "inside", "none"],
)
def test_grouped(x: tuple[int, ...], y: tuple[int, ...], offs: torch.Tensor | None) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(x, dtype=torch.bfloat16), torch.randn(y, dtype=torch.bfloat16)
    (result,) = lowered(torch._grouped_mm, a, b, offs)
    torch.testing.assert_close(
        torch.from_numpy(result.astype("float32")), _one_by_one(a, b, offs).float(), rtol=2e-2, atol=2e-2
    )


def test_grouped_as_transformers_calls_it() -> None:
    import_module("transformers.integrations.moe")  # Defines the operator.
    check(torch.ops.transformers.grouped_mm_fallback, torch.randn(24, 8), torch.randn(3, 8, 16), OFFSETS)


def _one_by_one(x: torch.Tensor, y: torch.Tensor, offs: torch.Tensor | None) -> torch.Tensor:
    if offs is None:
        return x @ y
    ends = offs.tolist()
    ranges = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    if x.dim() == 3:
        return torch.cat([x[i] @ y[:, part] for i, part in enumerate(ranges)], dim=1)
    if y.dim() == 3:
        return torch.cat([x[part] @ y[i] for i, part in enumerate(ranges)])
    return torch.stack([x[:, part] @ y[part] for part in ranges])
