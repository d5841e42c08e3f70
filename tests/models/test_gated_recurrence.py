"""The gated recurrence: both lowerings of its operator, and the model, as eager computes them."""

from pathlib import Path

import numpy as np
import pytest
import torch

import tpuc
from tpuc.user_code import run_file

from .conftest import MODELS, Models


def test_the_logits_are_eagers(models: Models) -> None:
    record = models.build_for_cpu("gated_recurrence")
    assert record.outcome == "built", record.reason
    assert record.agreement is not None
    assert record.agreement.error <= 1e-4


@pytest.mark.parametrize("shape", [(2, 256, 128), (1, 24, 8), (1, 7, 128)])
def test_the_kernel_computes_the_recurrence(shape: tuple[int, int, int]) -> None:
    file = run_file(MODELS / "gated_recurrence.py", "model")
    generator = torch.Generator().manual_seed(0)
    decay, x = torch.rand(shape, generator=generator), torch.randn(shape, generator=generator)
    result = file.scan_kernel(decay.numpy(), x.numpy(), interpret=True)
    np.testing.assert_allclose(result, file.linear_recurrence(decay, x).numpy(), rtol=1e-5, atol=1e-5)


def test_a_tpu_gets_the_kernel_and_the_cpu_the_scan(tmp_path: Path) -> None:
    tpuc.compile(
        MODELS / "gated_recurrence.py", targets=["cpu", "v5e"], output=tmp_path / "model.bin", dump=tmp_path / "ir"
    )
    kernels = {
        target: (tmp_path / "ir" / f"{target}.hlo.txt").read_text().count("tpu_custom_call")
        for target in ("cpu", "v5e")
    }
    assert kernels == {"cpu": 0, "v5e": 4}
