"""LLaMA-7B: its size, and two layers of it as eager computes them."""

import pytest

from tpuc.zoo_build import read_settings

from .conftest import MODELS, Models


def test_it_has_the_size_of_llama_7b(models: Models) -> None:
    # The paper says 6.7 B; Hugging Face counts this many in the checkpoint.
    assert models.count_parameters("llama_7b") == 6_738_415_616


def test_a_tpu_gets_all_of_it_and_the_cpu_two_layers() -> None:
    tpu, cpu = (read_settings(MODELS / "llama_7b.py", platform) for platform in ("tpu", "cpu"))
    assert (tpu.symbol, tpu.weights) == ("model", "none")
    assert "v5e" in tpu.chips
    assert (cpu.symbol, cpu.weights) == ("two_layers", "embed")


@pytest.mark.slow  # 667 M random numbers, and three times their memory.
def test_the_logits_of_two_layers_are_eagers(models: Models) -> None:
    record = models.build_for_cpu("llama_7b")
    assert record.outcome == "built", record.reason
    assert record.agreement is not None
    assert record.agreement.error <= 1e-4
