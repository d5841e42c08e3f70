"""The chips that tpuc compiles for: one row each.

Source of the figures: JAX's own table, `jax/_src/pallas/mosaic/tpu_info.py` (jax 0.10.2), which states them for
one TensorCore; here they are for one device, as the compiler counts devices. A chip of v2, v3, v4 and v7x shows two
devices, one a core; v5p joins its two cores into one device; v5e and v6e have one core.
`tests/test_targets.py` compares the rows with that table, and the HBM with what libtpu itself allows.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tpuc.errors import RequestError

_MIB = 1 << 20
_TERA = 10**12


@dataclass(frozen=True, kw_only=True)
class Chip:
    """What the compiler and the cost reports need to know of one device of a kind.

    Attributes:
        name: The name used everywhere: `v5e`.
        topology: The name that libtpu knows the chip by.
        accelerator_type: A TPU VM's accelerator type with this chip, which libtpu wants to be told.
        devices_per_chip: Devices that one chip shows.
        cores_per_device: TensorCores that work on one device's program.
        lanes: Elements of the minor dimension of a vector register.
        sublanes: Elements of its second minor dimension, at 32 bits.
        mxu_columns: Columns of the matrix unit.
        hbm_bytes: HBM of one device.
        hbm_bytes_per_second: Peak HBM bandwidth of one device.
        vmem_bytes: VMEM of one core.
        peak_flops_per_second: Peak rate by dtype name, for one device. A multiply-add counts as two.
        clock_hz: The TensorCore's clock, which turns estimated cycles into seconds; None where it is not published
            and does not follow from the peak rate. Source for v2 to v4: Jouppi et al., "TPU v4" (ISCA 2023), table 4;
            for v5e and v5p: peak / (4 MXUs x 128 x 128 x 2).
    """

    name: str
    topology: str
    accelerator_type: str
    devices_per_chip: int
    cores_per_device: int
    lanes: int = 128
    sublanes: int = 8
    mxu_columns: int
    hbm_bytes: int
    hbm_bytes_per_second: int
    vmem_bytes: int
    peak_flops_per_second: Mapping[str, int] = field(hash=False)
    clock_hz: int | None


CHIPS: tuple[Chip, ...] = (
    Chip(
        name="v2",
        topology="v2",
        accelerator_type="v2-8",
        devices_per_chip=2,
        cores_per_device=1,
        mxu_columns=128,
        hbm_bytes=8_000_000_000,
        hbm_bytes_per_second=358_000_000_000,
        vmem_bytes=16 * _MIB,
        peak_flops_per_second={"bf16": 23 * _TERA},
        clock_hz=700_000_000,
    ),
    Chip(
        name="v3",
        topology="v3",
        accelerator_type="v3-8",
        devices_per_chip=2,
        cores_per_device=1,
        mxu_columns=128,
        hbm_bytes=17_200_000_000,
        hbm_bytes_per_second=412_500_000_000,
        vmem_bytes=16 * _MIB,
        peak_flops_per_second={"bf16": 70 * _TERA},
        clock_hz=940_000_000,
    ),
    Chip(
        name="v4",
        topology="v4",
        accelerator_type="v4-8",
        devices_per_chip=2,
        cores_per_device=1,
        mxu_columns=128,
        hbm_bytes=17_200_000_000,
        hbm_bytes_per_second=615_000_000_000,
        vmem_bytes=16 * _MIB,
        peak_flops_per_second={"bf16": 137_500_000_000_000},
        clock_hz=1_050_000_000,
    ),
    Chip(
        name="v5e",
        topology="v5e",
        accelerator_type="v5litepod-1",
        devices_per_chip=1,
        cores_per_device=1,
        mxu_columns=128,
        hbm_bytes=17_200_000_000,
        hbm_bytes_per_second=820_000_000_000,
        vmem_bytes=128 * _MIB,
        peak_flops_per_second={"bf16": 197 * _TERA, "i8": 394 * _TERA, "i4": 788 * _TERA},
        clock_hz=1_500_000_000,
    ),
    Chip(
        name="v5p",
        topology="v5p",
        accelerator_type="v5p-8",
        devices_per_chip=1,
        cores_per_device=2,
        mxu_columns=128,
        hbm_bytes=103_000_000_000,
        hbm_bytes_per_second=2_460_000_000_000,
        vmem_bytes=64 * _MIB,
        peak_flops_per_second={"bf16": 459 * _TERA, "i8": 918 * _TERA, "i4": 1840 * _TERA},
        clock_hz=1_750_000_000,
    ),
    Chip(
        name="v6e",
        topology="v6e",
        accelerator_type="v6e-1",
        devices_per_chip=1,
        cores_per_device=1,
        mxu_columns=256,
        hbm_bytes=34_400_000_000,
        hbm_bytes_per_second=1_640_000_000_000,
        vmem_bytes=128 * _MIB,
        peak_flops_per_second={
            "bf16": 920 * _TERA,
            "f8": 920 * _TERA,
            "i8": 1840 * _TERA,
            "i4": 3680 * _TERA,
        },
        clock_hz=None,
    ),
    Chip(
        name="v7x",
        topology="tpu7x",
        accelerator_type="tpu7x-2",
        devices_per_chip=2,
        cores_per_device=1,
        mxu_columns=256,
        hbm_bytes=103_000_000_000,
        hbm_bytes_per_second=3_700_000_000_000,
        vmem_bytes=64 * _MIB,
        peak_flops_per_second={"bf16": 1155 * _TERA, "f8": 2300 * _TERA},
        clock_hz=None,
    ),
)

_CHIPS = {chip.name: chip for chip in CHIPS}
NAMES: tuple[str, ...] = ("cpu", *_CHIPS)


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a program is compiled for: the CPU, or one device of a TPU chip.

    Attributes:
        name: The text it was parsed from, in canonical form: `cpu`, `v5e`, `v5p:2x2x2`.
        chip: The chip, or None for the CPU.
        shape: Chips along each axis of the topology; (1, 1, 1) for one chip.
    """

    name: str
    chip: Chip | None = None
    shape: tuple[int, ...] = (1, 1, 1)

    @property
    def platform(self) -> Literal["cpu", "tpu"]:
        """The kind of device."""
        return "tpu" if self.chip else "cpu"

    def __str__(self) -> str:
        return self.name

    @classmethod
    def parse(cls, text: str) -> Target:
        """Reads `cpu`, `v5e` or `v5p:2x2x2`.

        Raises:
            RequestError: The chip is unknown (the nearest known name is given), or the topology is not a product
                of positive numbers, or it has several chips: programs are not partitioned yet.
        """
        name, _, topology = text.strip().lower().partition(":")
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.4)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise RequestError(f"unknown target {text!r}", hint=f"{hint}Known: {', '.join(NAMES)}.")
        if name == "cpu":
            if topology:
                raise RequestError(f"target {text!r}: cpu takes no topology")
            return CPU
        chip = _CHIPS[name]
        if not topology:
            return cls(name=name, chip=chip)
        if not re.fullmatch(r"[1-9][0-9]{0,3}(x[1-9][0-9]{0,3}){1,2}", topology):
            raise RequestError(
                f"target {text!r}: {topology!r} is not a topology",
                hint="Write chips per axis, such as v5p:2x2x2.",
            )
        shape = tuple(map(int, topology.split("x")))
        if math.prod(shape) > 1:
            raise RequestError(
                f"target {text!r} has {math.prod(shape)} chips, and programs are not partitioned over chips yet",
                hint=f"Compile for one chip: --target {name}.",
            )
        return cls(name=name, chip=chip)


CPU = Target(name="cpu")
