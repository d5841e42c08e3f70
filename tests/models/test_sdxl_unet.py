"""The UNet of SDXL: its size, and a narrow one as eager computes it."""

from tpuc.zoo_build import read_settings

from .conftest import MODELS, Models


def test_it_has_the_size_of_sdxl(models: Models) -> None:
    # The paper says 2.6 B, and the checkpoint has this many.
    assert models.count_parameters("sdxl_unet") == 2_567_463_684


def test_a_tpu_gets_all_of_it_and_the_cpu_a_narrow_one() -> None:
    tpu, cpu = (read_settings(MODELS / "sdxl_unet.py", platform) for platform in ("tpu", "cpu"))
    assert (tpu.symbol, tpu.weights) == ("model", "none")
    assert (cpu.symbol, cpu.weights) == ("narrow", "embed")


def test_the_noise_is_eagers(models: Models) -> None:
    record = models.build_for_cpu("sdxl_unet")
    assert record.outcome == "built", record.reason
    assert record.agreement is not None
    assert record.agreement.error <= 1e-4
