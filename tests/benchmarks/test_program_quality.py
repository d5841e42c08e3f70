"""Comparing programs by the TPU compiler's estimate, on a tiny one."""

import jax
import jax.numpy as jnp
import pytest
import torch
from torch import nn

from benchmarks.examples import Example
from benchmarks.program_quality import PROGRAMS, ByHand, Program, compare


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
def test_every_way_is_compiled_and_held_against_the_first_by_hand() -> None:
    program = Program(name="tiny", target="v5e", example=_example, by_hand={"by hand": _by_hand, "again": _by_hand})
    rows = {row["way"]: row for row in compare(program)}
    assert list(rows) == ["tpuc", "torch-mlir as is", "by hand", "again"]
    for row in rows.values():
        assert row["program"] == "tiny, v5e"
        assert row["cycles"] > 0
        assert row["code_bytes"] > 0
        assert row["ratio"] == row["cycles"] / rows["by hand"]["cycles"]
    assert rows["again"]["cycles"] == rows["by hand"]["cycles"]
    # torch-mlir computes layer norm in f64, which the chip does not have.
    assert rows["torch-mlir as is"]["cycles"] > rows["tpuc"]["cycles"]


def test_the_names_of_the_programs_are_their_own() -> None:
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)
