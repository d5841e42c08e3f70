"""Other weights for an artifact that is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tpuc.runtime.artifact import Artifact, write_artifact
from tpuc.runtime.device import Device
from tpuc.runtime.errors import ArtifactError, InputError
from tpuc.runtime.executor import load
from tpuc.runtime.manifest import Manifest
from tpuc.runtime.replacement import replace_weights

from .sample_artifacts import INPUT, WEIGHT, counter_sections, portable, write_counter
from .test_prepare import TRANSPOSE, transposed

OTHER = WEIGHT[::-1] * 2


def write_transposed(path: Path, section: str | None = "prepared/turned", **changes: object) -> Path:
    """COUNTER with a weight that is prepared from its transpose; stored in the artifact, or computed on load."""
    manifest = transposed(section, **changes)
    sections = counter_sections() | {"prepare/turned": portable(TRANSPOSE)}
    stored = sections.pop("weights/linear.weight")
    assert isinstance(stored, np.ndarray)
    if section is None:
        sections["weights/linear.weight"] = np.ascontiguousarray(stored.T)
    else:
        sections[section] = stored
    write_artifact(path, manifest, sections)
    return path


def save(path: Path, **tensors: np.ndarray) -> Path:
    save_file({name.replace("__", "."): np.ascontiguousarray(array) for name, array in tensors.items()}, path)
    return path


def assert_has(path: Path, weight: np.ndarray, device: Device) -> None:
    Artifact.open(path).verify()
    with load(path, device=device) as program:
        np.testing.assert_allclose(program(INPUT, 1), INPUT @ weight + 10, rtol=1e-6)


@pytest.mark.parametrize("mode", ["embed", "external"])
def test_weights_are_replaced(tmp_path: Path, cpu: Device, mode: str) -> None:
    path = write_counter(tmp_path / "a.bin", cpu, weights_mode=mode)
    before = Artifact.open(path)
    old_files = {each.name for each in tmp_path.iterdir()}
    after = replace_weights(path, save(tmp_path / "new.safetensors", linear__weight=OTHER, extra=INPUT))
    assert_has(path, OTHER, cpu)
    assert after == Artifact.open(path).manifest
    assert after.fingerprint != before.manifest.fingerprint
    for entry in before.manifest.entries:
        for executable in entry.executables:
            assert Artifact.open(path).section(executable.section) == before.section(executable.section)
    assert old_files <= {each.name for each in tmp_path.iterdir()}


@pytest.mark.parametrize(("section", "mode"), [("prepared/turned", "embed"), (None, "external"), (None, "embed")])
def test_what_is_prepared_is_prepared_again(tmp_path: Path, cpu: Device, section: str | None, mode: str) -> None:
    path = write_transposed(tmp_path / "a.bin", section, weights_mode=mode)
    assert_has(path, WEIGHT, cpu)
    replace_weights(path, save(tmp_path / "new.safetensors", linear__weight=OTHER.T))
    assert_has(path, OTHER, cpu)


def test_the_old_artifact_may_stay(tmp_path: Path, cpu: Device) -> None:
    path = write_transposed(tmp_path / "a.bin")
    new = save(tmp_path / "new.safetensors", linear__weight=OTHER.T)
    replace_weights(path, new, tmp_path / "b.bin")
    assert_has(path, WEIGHT, cpu)
    assert_has(tmp_path / "b.bin", OTHER, cpu)
    # Equal weights over equal weights are an equal artifact.
    replace_weights(path, new, tmp_path / "c.bin")
    assert (tmp_path / "b.bin").read_bytes() == (tmp_path / "c.bin").read_bytes()


def test_what_no_checkpoint_holds_stays(tmp_path: Path, cpu: Device) -> None:
    path = write_counter(tmp_path / "a.bin", cpu)
    manifest = Artifact.open(path).manifest
    kept = replace(manifest, weights=tuple(replace(weight, persistent=False) for weight in manifest.weights))
    sections = counter_sections()
    write_artifact(path, _without_executables(kept), sections)
    replace_weights(path, save(tmp_path / "new.safetensors", other=INPUT))
    assert_has(path, WEIGHT, cpu)


def _without_executables(manifest: Manifest) -> Manifest:
    return replace(manifest, entries=tuple(replace(entry, executables=()) for entry in manifest.entries))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"linear__weights": OTHER}, "linear.weight is missing; there is linear.weights"),
        ({"linear__weight": OTHER.T}, r"expected linear.weight=f32\[4,3\], got F32\[3, 4\]"),
        ({"linear__weight": OTHER.astype(np.float16)}, r"expected linear.weight=f32\[4,3\], got F16\[4, 3\]"),
    ],
)
def test_weights_that_do_not_fit_change_nothing(
    tmp_path: Path, cpu: Device, tensors: dict[str, np.ndarray], message: str
) -> None:
    path = write_counter(tmp_path / "a.bin", cpu)
    before = path.read_bytes()
    with pytest.raises(InputError, match=message):
        replace_weights(path, save(tmp_path / "new.safetensors", **tensors))
    assert path.read_bytes() == before


def test_a_failure_while_writing_keeps_the_old_artifact(tmp_path: Path) -> None:
    path = write_transposed(tmp_path / "a.bin")
    before = path.read_bytes()
    with pytest.raises(ArtifactError):
        replace_weights(path, save(tmp_path / "new.safetensors", linear__weight=OTHER.T), tmp_path / "none" / "b.bin")
    assert path.read_bytes() == before


def test_an_artifact_without_weights_has_none_to_replace(tmp_path: Path) -> None:
    manifest = transposed(None, weights_mode="none")
    sections = counter_sections() | {"prepare/turned": portable(TRANSPOSE)}
    del sections["weights/linear.weight"]
    write_artifact(tmp_path / "a.bin", manifest, sections)
    with pytest.raises(InputError, match="no weights that could be replaced"):
        replace_weights(tmp_path / "a.bin", save(tmp_path / "new.safetensors", linear__weight=OTHER))
