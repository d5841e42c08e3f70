"""The chip table against JAX's own, and the text of targets."""

import pytest
from jax._src.pallas.mosaic.tpu_info import ChipVersion, _get_tpu_info_impl

from tpuc.errors import RequestError
from tpuc.targets import CHIPS, CPU, Chip, Target

_VERSIONS = {
    "v2": ChipVersion.TPU_V2,
    "v3": ChipVersion.TPU_V3,
    "v4": ChipVersion.TPU_V4,
    "v5e": ChipVersion.TPU_V5E,
    "v5p": ChipVersion.TPU_V5P,
    "v6e": ChipVersion.TPU_V6E,
    "v7x": ChipVersion.TPU_7X,
}


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_rows_are_jaxs(chip: Chip) -> None:
    version = _VERSIONS[chip.name]
    core = _get_tpu_info_impl(version, 1)
    cores = chip.cores_per_device
    assert chip.devices_per_chip * cores == version.num_physical_tensor_cores_per_chip
    assert chip.hbm_bytes == core.hbm_capacity_bytes * cores
    assert chip.hbm_bytes_per_second == core.mem_bw_bytes_per_second * cores
    assert chip.vmem_bytes == core.vmem_capacity_bytes
    assert (chip.lanes, chip.sublanes, chip.mxu_columns) == (core.num_lanes, core.num_sublanes, core.mxu_column_size)
    rates = {
        "bf16": core.bf16_ops_per_second,
        "i8": core.int8_ops_per_second,
        "i4": core.int4_ops_per_second,
        "f8": core.fp8_ops_per_second,
    }
    assert chip.peak_flops_per_second == {name: rate * cores for name, rate in rates.items() if rate}


@pytest.mark.parametrize("chip", [chip for chip in CHIPS if chip.name in ("v5e", "v5p")], ids=lambda chip: chip.name)
def test_the_clock_follows_from_the_peak_rate(chip: Chip) -> None:
    assert chip.clock_hz is not None
    mxus = 4 * chip.cores_per_device
    assert chip.clock_hz * mxus * chip.mxu_columns**2 * 2 == pytest.approx(chip.peak_flops_per_second["bf16"], rel=0.01)


@pytest.mark.parametrize(("text", "name"), [("cpu", "cpu"), ("V5E", "v5e"), (" v7x ", "v7x"), ("v5p:1x1x1", "v5p")])
def test_parse(text: str, name: str) -> None:
    assert str(Target.parse(text)) == name


def test_targets_are_equal_by_what_they_name() -> None:
    assert len({Target.parse("v5e"), Target.parse("v5e:1x1x1"), Target.parse("v5p"), Target.parse("cpu"), CPU}) == 3


def test_cpu_has_no_chip() -> None:
    assert Target.parse("cpu") is CPU
    assert CPU.platform == "cpu"
    assert Target.parse("v5e").platform == "tpu"


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("v5", "unknown target 'v5'", "Did you mean v5"),
        ("tpu", "unknown target 'tpu'", "Known: cpu, v2,"),
        ("v5p:2x2x2", "has 8 chips", "--target v5p"),
        ("v5p:2x", "'2x' is not a topology", "v5p:2x2x2"),
        ("v5p:0x1", "'0x1' is not a topology", "v5p:2x2x2"),
        ("cpu:1x1", "cpu takes no topology", ""),
    ],
)
def test_bad_targets(text: str, what: str, hint: str) -> None:
    with pytest.raises(RequestError) as error:
        Target.parse(text)
    assert what in error.value.what
    assert hint in (error.value.hint or "")
