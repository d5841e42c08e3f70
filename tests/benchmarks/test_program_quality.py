"""Comparing programs by the TPU compiler's estimate, on a tiny one."""

import jax
import jax.numpy as jnp
import pytest
import torch
from torch import nn

from benchmarks.examples import Example
from benchmarks.program_quality import (
    DOCUMENT,
    PROGRAMS,
    ByHand,
    Program,
    compare,
    count_flops,
    document,
    limits_of,
    read_measured,
    roofline_cycles,
)
from tpuc.targets import Target


class Normed(nn.Module):
    """A linear layer and a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(256, 256)
        self.norm = nn.LayerNorm(256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.fc(x))


def _example() -> Example:
    return Normed().eval(), {"x": torch.zeros(128, 256)}


def _by_hand() -> ByHand:
    def function(weight: jax.Array, bias: jax.Array, x: jax.Array) -> jax.Array:
        y = x @ weight + bias
        return (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-5) * bias + bias

    vector = jax.ShapeDtypeStruct((256,), jnp.float32)
    return function, (
        jax.ShapeDtypeStruct((256, 256), jnp.float32),
        vector,
        jax.ShapeDtypeStruct((128, 256), jnp.float32),
    )


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_every_way_is_compiled_and_held_against_the_best_of_the_others() -> None:
    program = Program(
        name="tiny",
        title="Tiny",
        target="v5e",
        example=_example,
        by_hand={"by hand": _by_hand, "again": _by_hand},
        fails={"somebody": "stops somewhere"},
        most={"total_cycles": 1, "code_bytes": 1 << 40},
    )
    *found, failed = compare(program)
    rows = {row["way"]: row for row in found}
    assert list(rows) == ["tpuc", "torch-mlir as is", "torchax as is", "by hand", "again"]
    best = min(row["total_cycles"] for way, row in rows.items() if way != "tpuc")
    for row in rows.values():
        assert row["title"] == "Tiny, v5e"
        assert row["total_cycles"] > 0
        assert row["code_bytes"] > 0
        assert row["argument_bytes"] >= 4 * (256 * 256 + 128 * 256)
        assert row["ratio"] == row["total_cycles"] / best
        assert row["roofline"] > 0
    assert rows["again"]["total_cycles"] == rows["by hand"]["total_cycles"]
    # torch-mlir computes layer norm in f64, which the chip does not have.
    assert rows["torch-mlir as is"]["total_cycles"] > rows["tpuc"]["total_cycles"]
    assert failed == {"program": "tiny", "title": "Tiny, v5e", "way": "somebody: stops somewhere"}
    assert [limit.kept for limit in limits_of(program, rows["tpuc"])] == [False, True, rows["tpuc"]["ratio"] <= 1]


def test_the_roofline_is_the_larger_of_two() -> None:
    chip = Target.parse("v5e")
    # A millisecond of products at 197 TFLOP/s, a millisecond of bytes at 820 GB/s; the clock is 1.5 GHz.
    assert roofline_cycles(197 * 10**9, 0, chip) == 1_500_000
    assert roofline_cycles(0, 820 * 10**6, chip) == 1_500_000


def test_flops_are_those_of_products() -> None:
    assert count_flops(*_example()) == 2 * 128 * 256 * 256


def test_the_names_of_the_programs_are_their_own() -> None:
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)


def test_the_document_says_what_was_measured_last() -> None:
    assert DOCUMENT.read_text() == document(read_measured()), (
        "write it with python -m benchmarks.program_quality --only-write"
    )
