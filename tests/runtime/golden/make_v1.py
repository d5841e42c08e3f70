"""Made v1.bin, the golden artifact of format version 1: `cd tests && python -m runtime.golden.make_v1 FILE`.

It is kept to show how the file came about, not to be run again: what was written once must stay readable. A new
version of the format gets a script and a file of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tpuc.runtime.artifact import write_artifact
from tpuc.runtime.manifest import (
    Argument,
    Entry,
    Manifest,
    ModelInfo,
    PreparedInfo,
    ProgramInfo,
    Result,
    StateInfo,
    WeightInfo,
)
from tpuc.runtime.spec import TensorSpec
from tpuc.runtime.structure import InputStructure, node_from_json

from ..sample_artifacts import portable

# doubled = scale + scale, logits = (ids one-hot) @ embedding * doubled, and how many tokens were seen in all calls.
TEXT = """
module @golden {
  func.func public @main(
      %embedding: tensor<5x3xbf16>, %doubled: tensor<3xf32>, %seen: tensor<i64> {tf.aliasing_output = 0 : i32},
      %ids: tensor<2xi32>, %mask: tensor<2xi1>
  ) -> (tensor<i64>, tensor<2x3xf32>, tensor<i64>) {
    %iota = stablehlo.iota dim = 1 : tensor<2x5xi32>
    %wide = stablehlo.broadcast_in_dim %ids, dims = [0] : (tensor<2xi32>) -> tensor<2x5xi32>
    %equal = stablehlo.compare EQ, %wide, %iota : (tensor<2x5xi32>, tensor<2x5xi32>) -> tensor<2x5xi1>
    %onehot = stablehlo.convert %equal : (tensor<2x5xi1>) -> tensor<2x5xf32>
    %table = stablehlo.convert %embedding : (tensor<5x3xbf16>) -> tensor<5x3xf32>
    %rows = stablehlo.dot_general %onehot, %table, contracting_dims = [1] x [0]
        : (tensor<2x5xf32>, tensor<5x3xf32>) -> tensor<2x3xf32>
    %scales = stablehlo.broadcast_in_dim %doubled, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %logits = stablehlo.multiply %rows, %scales : tensor<2x3xf32>
    %counts = stablehlo.convert %mask : (tensor<2xi1>) -> tensor<2xi64>
    %zero = stablehlo.constant dense<0> : tensor<i64>
    %tokens = stablehlo.reduce(%counts init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<2xi64>, tensor<i64>) -> tensor<i64>
    %total = stablehlo.add %seen, %tokens : tensor<i64>
    return %total, %logits, %tokens : tensor<i64>, tensor<2x3xf32>, tensor<i64>
  }
}
"""
DOUBLE = """
module @double {
  func.func public @main(%scale: tensor<3xf32>) -> tensor<3xf32> {
    %0 = stablehlo.add %scale, %scale : tensor<3xf32>
    return %0 : tensor<3xf32>
  }
}
"""


def manifest() -> Manifest:
    """Describes the program."""
    arguments = [
        ("weight", "embed.weight"),
        ("prepared", "doubled"),
        ("state", "seen"),
        ("input", "ids"),
        ("input", "batch.mask"),
    ]
    results = [("state", "seen"), ("output", "logits"), ("output", "tokens")]
    program = ProgramInfo(
        section="program/main",
        serves=("any",),
        arguments=tuple(Argument(kind=kind, name=name) for kind, name in arguments),  # type: ignore[arg-type]
        results=tuple(Result(kind=kind, name=name) for kind, name in results),  # type: ignore[arg-type]
    )
    entry = Entry(name="main", programs=(program,))
    return Manifest(
        model=ModelInfo(name="golden", source="golden.py:Golden", parameters=18),
        producer={"tpuc": "0.1.0", "jaxlib": "0.10.2"},
        fingerprint="0123456789abcdef",
        options={"shapes": "ids=i32[2] batch.mask=bool[2]"},
        weights_mode="embed",
        weights=(
            WeightInfo(
                name="embed.weight", dtype="bf16", dims=(5, 3), section="weights/embed.weight", origin="parameter"
            ),
            WeightInfo(name="scale", dtype="f32", dims=(3,), section="weights/scale", origin="constant"),
        ),
        prepared=(
            PreparedInfo(
                name="doubled",
                dtype="f32",
                dims=(3,),
                program="prepare/doubled",
                sources=("scale",),
                section="prepared/doubled",
            ),
        ),
        state=(StateInfo(name="seen", dtype="i64", dims=(), section="state/seen"),),
        inputs=(TensorSpec.parse("ids=i32[2]"), TensorSpec.parse("batch.mask=bool[2]")),
        outputs=(TensorSpec.parse("logits=f32[2,3]"), TensorSpec.parse("tokens=i64[]")),
        input_structure=InputStructure.from_json(
            {
                "args": {"tuple": [0, {"dict": [["mask", 1], ["labels", None]]}, {"value": False}]},
                "kwargs": {"dict": [["temperature", {"value": 1.5}]]},
                "names": ["ids", "batch", "train"],
            }
        ),
        output_structure=node_from_json(
            {
                "record": {
                    "type": "golden.Output",
                    "fields": [
                        ["logits", 0],
                        ["counts", {"namedtuple": {"name": "Counts", "fields": [["tokens", 1]]}}],
                        ["loss", None],
                    ],
                }
            }
        ),
        entries=(entry,),
    )


def main(path: Path) -> None:
    """Writes the artifact."""
    sections: dict[str, Any] = {
        "program/main": portable(TEXT),
        "weights/embed.weight": np.arange(15).reshape(5, 3).astype(ml_dtypes.bfloat16),
        "weights/scale": np.array([0.5, 5, 50], np.float32),
        "prepare/doubled": portable(DOUBLE),
        "prepared/doubled": np.array([1, 10, 100], np.float32),
        "state/seen": np.array(0, np.int64),
    }
    write_artifact(path, manifest(), sections)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
