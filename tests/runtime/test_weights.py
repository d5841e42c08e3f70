"""Tests of bringing weights to a device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tpuc.runtime.artifact import write_artifact
from tpuc.runtime.device import Device
from tpuc.runtime.errors import ArtifactError, InputError
from tpuc.runtime.executor import load
from tpuc.runtime.manifest import Argument

from .sample_artifacts import INPUT, WEIGHT, counter_manifest, counter_sections, with_executable, write_counter


def write_without_weights(path: Path, device: Device) -> Path:
    manifest, sections = counter_manifest(weights_mode="none"), counter_sections()
    manifest = replace(manifest, weights=tuple(replace(weight, section=None) for weight in manifest.weights))
    del sections["weights/linear.weight"]
    write_artifact(path, *with_executable(manifest, sections, device))
    return path


def assert_runs(program: Any) -> None:
    np.testing.assert_allclose(program(INPUT, 1), INPUT @ WEIGHT + 10, rtol=1e-6)


def test_embedded(tmp_path: Path, device: Device) -> None:
    assert_runs(load(write_counter(tmp_path / "a.bin", device), device=device))


def test_external(tmp_path: Path, device: Device) -> None:
    assert_runs(load(write_counter(tmp_path / "a.bin", device, weights_mode="external"), device=device))


@pytest.mark.parametrize("as_folder", [False, True])
def test_supplied(tmp_path: Path, device: Device, as_folder: bool) -> None:
    path = write_without_weights(tmp_path / "a.bin", device)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    save_file({"linear.weight": WEIGHT, "not.used": np.zeros(1)}, folder / "part1.safetensors")
    save_file({"other": np.zeros(1)}, folder / "part2.safetensors")
    assert_runs(load(path, device=device, weights=folder if as_folder else folder / "part1.safetensors"))


def test_supplied_ones_are_required(tmp_path: Path, cpu: Device) -> None:
    path = write_without_weights(tmp_path / "a.bin", cpu)
    with pytest.raises(InputError, match=r"(?s)lacks 1 of its weights, such as linear.weight.*Give a safetensors file"):
        load(path, device=cpu)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"linear.weigth": WEIGHT}, "linear.weight is missing; there is linear.weigth"),
        ({"linear.weight": WEIGHT.T.copy()}, r"expected linear.weight=f32\[4,3\], got F32\[3, 4\]"),
        ({"linear.weight": WEIGHT.astype(np.float16)}, r"expected linear.weight=f32\[4,3\], got F16\[4, 3\]"),
    ],
)
def test_supplied_ones_must_fit(tmp_path: Path, cpu: Device, content: dict[str, Any], message: str) -> None:
    path = write_without_weights(tmp_path / "a.bin", cpu)
    save_file(content, tmp_path / "weights.safetensors")
    with pytest.raises(InputError, match=message) as caught:
        load(path, device=cpu, weights=tmp_path / "weights.safetensors")
    assert caught.value.where == str(tmp_path / "weights.safetensors")


def test_all_that_does_not_fit_is_said_at_once(tmp_path: Path, cpu: Device) -> None:
    manifest, sections = counter_manifest(weights_mode="none"), counter_sections()
    (weight,) = manifest.weights
    names = ("linear.weight", "first", "second")
    weights = tuple(replace(weight, name=name, section=None) for name in names)
    del sections["weights/linear.weight"]
    (program,) = manifest.entries[0].programs
    taken = (*program.arguments, *(Argument(kind="weight", name=name) for name in names[1:]))
    entry = replace(manifest.entries[0], programs=(replace(program, arguments=taken),))
    write_artifact(tmp_path / "a.bin", replace(manifest, weights=weights, entries=(entry,)), sections)
    save_file({"linear.weight": WEIGHT, "second": WEIGHT[0]}, tmp_path / "weights.safetensors")
    with pytest.raises(InputError, match=r"(?s)first is missing.*expected second=") as caught:
        load(tmp_path / "a.bin", device=cpu, weights=tmp_path / "weights.safetensors")
    assert "linear.weight" not in caught.value.what


def test_a_file_that_is_none(tmp_path: Path, cpu: Device) -> None:
    path = write_without_weights(tmp_path / "a.bin", cpu)
    (tmp_path / "text").write_text("text, and no tensors")
    with pytest.raises(ArtifactError, match="not a safetensors file"):
        load(path, device=cpu, weights=tmp_path / "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="the folder has no safetensors files"):
        load(path, device=cpu, weights=tmp_path / "folder")


def test_an_artifact_with_weights_takes_no_others(tmp_path: Path, cpu: Device) -> None:
    with pytest.raises(InputError, match="the artifact has its weights"):
        load(write_counter(tmp_path / "a.bin", cpu), device=cpu, weights=tmp_path / "weights.safetensors")


@pytest.mark.parametrize("mode", ["embed", "external"])
def test_a_flipped_byte_is_found_unless_hashing_is_off(tmp_path: Path, device: Device, mode: str) -> None:
    path = write_counter(tmp_path / "a.bin", device, weights_mode=mode)
    (holder,) = [file for file in tmp_path.iterdir() if file.is_file() and WEIGHT.tobytes() in file.read_bytes()]
    content = bytearray(holder.read_bytes())
    content[content.rindex(WEIGHT.tobytes())] ^= 1
    holder.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"the section weights/linear.weight is damaged"):
        load(path, device=device)
    load(path, device=device, verify=False)
