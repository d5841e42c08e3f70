"""The golden artifact of each format version stays readable, and runs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from tpuc.runtime.artifact import Artifact
from tpuc.runtime.device import Device
from tpuc.runtime.executor import load

V1 = Path(__file__).parent / "golden" / "v1.bin"


def test_version_1_is_the_file_that_was_written() -> None:
    assert (
        hashlib.sha256(V1.read_bytes()).hexdigest()
        == "2933a1712936f8b730e4263823cdcfbe63e12dbbffa8d83868345e7ab8185d36"
    )


def test_version_1_is_read() -> None:
    artifact = Artifact.open(V1)
    artifact.verify()
    manifest = artifact.manifest
    assert manifest.producer == {"tpuc": "0.1.0", "jaxlib": "0.10.2"}
    assert manifest.options == {"shapes": "ids=i32[2] batch.mask=bool[2]"}
    assert [weight.origin for weight in manifest.weights] == ["parameter", "constant"]
    np.testing.assert_array_equal(
        artifact.weight("embed.weight").astype(np.float32), np.arange(15, dtype=np.float32).reshape(5, 3)
    )
    np.testing.assert_array_equal(artifact.prepared("doubled"), 2 * artifact.weight("scale"))
    assert artifact.initial_state("seen") == 0


def test_version_1_runs(device: Device) -> None:
    with load(V1, device=device, notify=lambda line: None) as program:
        ids = np.array([1, 4], np.int32)
        for seen in (1, 2):
            output = program(ids, {"mask": np.array([True, False]), "labels": None}, False, temperature=1.5)
            np.testing.assert_array_equal(output.logits, [[3, 40, 500], [12, 130, 1400]])
            assert output.counts.tokens == 1
            assert output.loss is None
            assert program.state["seen"] == seen
