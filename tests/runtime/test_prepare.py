"""Tensors that are prepared from weights: stored in the artifact, or computed when it is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tpuc.runtime.artifact import Artifact, SectionData, write_artifact
from tpuc.runtime.device import Buffer, Device
from tpuc.runtime.errors import ArtifactError, DeviceError, InputError
from tpuc.runtime.executor import load
from tpuc.runtime.manifest import Argument, Manifest, PreparedInfo
from tpuc.runtime.prepare import Preparer
from tpuc.runtime.spec import TensorSpec
from tpuc.runtime.weights import Verification, place_weights

from .sample_artifacts import INPUT, WEIGHT, counter_manifest, counter_sections, portable

#: COUNTER's weight is prepared from its own transpose.
TRANSPOSE = """
module {
  func.func public @main(%w: tensor<3x4xf32>) -> tensor<4x3xf32> {
    %0 = stablehlo.transpose %w, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
    return %0 : tensor<4x3xf32>
  }
}
"""


def transposed(section: str | None, **changes: Any) -> Manifest:
    """COUNTER, whose program takes the transpose of the weight; the weight itself is not stored if that one is."""
    manifest = counter_manifest(**changes)
    (weight,), (entry,) = manifest.weights, manifest.entries
    (program,) = entry.programs
    arguments = (Argument(kind="prepared", name="turned"), *program.arguments[1:])
    prepared = PreparedInfo(
        name="turned", dtype="f32", dims=(4, 3), program="prepare/turned", sources=(weight.name,), section=section
    )
    stored = None if section or manifest.weights_mode == "none" else weight.section
    return replace(
        manifest,
        weights=(replace(weight, dims=(3, 4), section=stored),),
        prepared=(prepared,),
        entries=(replace(entry, programs=(replace(program, arguments=arguments),)),),
    )


def sections(**tensors: SectionData) -> dict[str, SectionData]:
    parts = counter_sections()
    del parts["weights/linear.weight"]
    return {**parts, "prepare/turned": portable(TRANSPOSE), **tensors}


def assert_runs(program: Any) -> None:
    np.testing.assert_allclose(program(INPUT, 1), INPUT @ WEIGHT + 10, rtol=1e-6)


def test_a_stored_one_needs_no_weight(tmp_path: Path, device: Device) -> None:
    write_artifact(tmp_path / "a.bin", transposed("prepared/turned"), sections(**{"prepared/turned": WEIGHT}))
    assert_runs(load(tmp_path / "a.bin", device=device, notify=lambda line: None))
    with pytest.raises(InputError, match="the artifact has its weights"):
        load(tmp_path / "a.bin", device=device, weights=tmp_path)


def test_the_largest_are_computed_first(tmp_path: Path, cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = transposed(None)
    (turned,), (entry,) = manifest.prepared, manifest.entries
    (program,) = entry.programs
    joined = replace(turned, name="joined", dims=(8, 3), program="prepare/joined")
    arguments = (program.arguments[0], Argument(kind="prepared", name="joined"), *program.arguments[1:])
    manifest = replace(
        manifest,
        prepared=(turned, joined),
        entries=(replace(entry, programs=(replace(program, arguments=arguments),)),),
    )
    tensors = {"weights/linear.weight": WEIGHT.T.copy(), "prepare/joined": portable(TRANSPOSE)}
    write_artifact(tmp_path / "a.bin", manifest, sections(**tensors))
    order: list[str] = []

    def prepare(_preparer: Preparer, _program: bytes, spec: TensorSpec, sources: Sequence[Buffer]) -> Buffer:
        order.append(spec.name)
        return sources[0]

    monkeypatch.setattr(Preparer, "prepare", prepare)
    artifact = Artifact.open(tmp_path / "a.bin")
    with Verification(artifact, cpu, enabled=False) as verification:
        place_weights(artifact, manifest.entries[0].programs, cpu, {}, verification)
    assert order == ["joined", "turned"]


@pytest.mark.parametrize("mode", ["embed", "external"])
def test_one_that_is_not_stored_is_computed(tmp_path: Path, device: Device, mode: str) -> None:
    parts = sections(**{"weights/linear.weight": WEIGHT.T.copy()})
    write_artifact(tmp_path / "a.bin", transposed(None, weights_mode=mode), parts)
    assert_runs(load(tmp_path / "a.bin", device=device, notify=lambda line: None))


def test_it_is_computed_from_supplied_weights(tmp_path: Path, device: Device) -> None:
    write_artifact(tmp_path / "a.bin", transposed(None, weights_mode="none"), sections())
    save_file({"linear.weight": WEIGHT.T.copy()}, tmp_path / "weights.safetensors")
    assert_runs(
        load(tmp_path / "a.bin", device=device, weights=tmp_path / "weights.safetensors", notify=lambda _: None)
    )
    with pytest.raises(InputError, match=r"lacks 1 of its weights, such as linear\.weight"):
        load(tmp_path / "a.bin", device=device)


def test_a_weight_may_be_a_source_and_an_argument(tmp_path: Path, device: Device) -> None:
    manifest = transposed(None)
    (entry,) = manifest.entries
    (program,) = entry.programs
    arguments = (*program.arguments, Argument(kind="weight", name="linear.weight"))
    manifest = replace(manifest, entries=(replace(entry, programs=(replace(program, arguments=arguments),)),))
    text = """
        module {
          func.func public @main(
              %t: tensor<4x3xf32>, %count: tensor<f32>, %x: tensor<2x4xf32>, %step: tensor<i32>, %w: tensor<3x4xf32>
          ) -> (tensor<f32>, tensor<2x3xf32>) {
            %0 = stablehlo.transpose %w, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
            %1 = stablehlo.add %0, %t : tensor<4x3xf32>
            %2 = stablehlo.dot_general %x, %1, contracting_dims = [1] x [0]
                : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
            return %count, %2 : tensor<f32>, tensor<2x3xf32>
          }
        }
        """
    parts = sections(**{"weights/linear.weight": WEIGHT.T.copy(), "program/main": portable(text)})
    write_artifact(tmp_path / "a.bin", manifest, parts)
    program_ = load(tmp_path / "a.bin", device=device, notify=lambda line: None)
    np.testing.assert_allclose(program_(INPUT, 1), 2 * INPUT @ WEIGHT, rtol=1e-6)


def test_a_flipped_byte_is_found(tmp_path: Path, device: Device) -> None:
    path = tmp_path / "a.bin"
    write_artifact(path, transposed("prepared/turned"), sections(**{"prepared/turned": WEIGHT}))
    content = bytearray(path.read_bytes())
    content[content.rindex(WEIGHT.tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"the section prepared/turned is damaged"):
        load(path, device=device, notify=lambda line: None)


def test_programs_are_compiled_once(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    compile_ = cpu.compile

    def count(program: bytes, results: Any) -> Any:
        compiled.append(program)
        return compile_(program, results)

    monkeypatch.setattr(cpu, "compile", count)
    preparer, spec = Preparer(cpu), TensorSpec(name="turned", dtype="f32", dims=(4, 3))
    source = np.ascontiguousarray(WEIGHT.T)
    for factor in (1, 2):
        result = preparer.prepare(portable(TRANSPOSE), spec, [cpu.put(factor * source)])
        np.testing.assert_array_equal(result.to_numpy(), factor * WEIGHT)
    assert len(compiled) == 1


def test_a_program_that_does_not_compile_is_a_device_error(cpu: Device) -> None:
    spec = TensorSpec(name="turned", dtype="f32", dims=(4, 3))
    with pytest.raises(DeviceError, match="failed to compile the program"):
        Preparer(cpu).prepare(b"no program", spec, [])
