"""Tests of what a program keeps from call to call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tpuc.runtime.artifact import write_artifact
from tpuc.runtime.device import Device
from tpuc.runtime.errors import ArtifactError, DeviceError, InputError
from tpuc.runtime.executor import Program, load
from tpuc.runtime.manifest import Argument, Result, StateInfo

from .sample_artifacts import INPUT, WEIGHT, portable, simple_manifest, with_executable, write_counter

# A counter, and a bf16 cache in which each call writes one row; the cache is read only by the last result.
CACHE = """
func.func public @main(
    %count: tensor<i32> {tf.aliasing_output = 0 : i32}, %cache: tensor<4x2xbf16> {tf.aliasing_output = 1 : i32},
    %fixed: tensor<f32>, %row: tensor<1x2xbf16>
) -> (tensor<i32>, tensor<4x2xbf16>, tensor<f32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.dynamic_update_slice %cache, %row, %count, %zero
      : (tensor<4x2xbf16>, tensor<1x2xbf16>, tensor<i32>, tensor<i32>) -> tensor<4x2xbf16>
  %1 = stablehlo.add %count, %one : tensor<i32>
  return %1, %0, %fixed : tensor<i32>, tensor<4x2xbf16>, tensor<f32>
}
"""


@pytest.fixture
def counter(tmp_path: Path, device: Device) -> Program:
    return load(write_counter(tmp_path / "counter.bin", device), device=device)


@pytest.fixture
def cache(tmp_path: Path, device: Device) -> Program:
    manifest = simple_manifest(["row=bf16[1,2]"], ["fixed_out=f32[]"])
    (entry,) = manifest.entries
    names = ("count", "cache", "fixed")
    (program,) = entry.programs
    program = replace(
        program,
        arguments=(*(Argument(kind="state", name=name) for name in names), *program.arguments),
        results=(Result(kind="state", name="count"), Result(kind="state", name="cache"), *program.results),
    )
    state = (
        StateInfo(name="count", dtype="i32", dims=(), section="state/count"),
        StateInfo(name="cache", dtype="bf16", dims=(4, 2), section="state/cache"),
        StateInfo(name="fixed", dtype="f32", dims=(), section="state/fixed"),
    )
    manifest = replace(manifest, state=state, entries=(replace(entry, programs=(program,)),))
    sections: dict[str, Any] = {
        "program/main": portable(CACHE),
        "state/count": np.array(0, np.int32),
        "state/cache": np.zeros((4, 2), "bfloat16"),
        "state/fixed": np.array(7, np.float32),
    }
    write_artifact(tmp_path / "cache.bin", *with_executable(manifest, sections, device))
    return load(tmp_path / "cache.bin", device=device)


def test_it_changes_from_call_to_call(counter: Program) -> None:
    expected = 10.0
    for step in (1, 5, 2):
        np.testing.assert_allclose(counter(INPUT, step), INPUT @ WEIGHT + expected, rtol=1e-6)
        expected += step
        assert counter.state.read("count") == expected


def test_it_is_a_mapping(cache: Program) -> None:
    assert list(cache.state) == ["count", "cache", "fixed"]
    assert len(cache.state) == 3
    assert dict(cache.state)["fixed"] == 7


def test_several_states_of_several_types(cache: Program) -> None:
    for number in range(1, 4):
        assert cache(np.full((1, 2), number, "bfloat16")) == (7,)
    assert cache.state["count"] == 3
    np.testing.assert_array_equal(cache.state["cache"].astype(np.float32), [[1, 1], [2, 2], [3, 3], [0, 0]])


def test_what_was_read_does_not_change(counter: Program) -> None:
    counter(INPUT, 1)
    read = counter.state.read("count")
    counter(INPUT, 1)
    assert read == 11
    read[...] = 0
    assert counter.state["count"] == 12


def test_reset(cache: Program) -> None:
    cache(np.ones((1, 2), "bfloat16"))
    cache.state.reset()
    assert cache.state["count"] == 0
    assert (cache.state["cache"] == 0).all()
    cache(np.ones((1, 2), "bfloat16"))
    assert cache.state["count"] == 1


def test_save_and_load(cache: Program, tmp_path: Path) -> None:
    cache(np.ones((1, 2), "bfloat16"))
    cache.state.save(tmp_path / "state.safetensors")
    cache(np.ones((1, 2), "bfloat16"))
    cache.state.load(tmp_path / "state.safetensors")
    assert cache.state["count"] == 1
    cache(np.full((1, 2), 5, "bfloat16"))
    np.testing.assert_array_equal(cache.state["cache"].astype(np.float32), [[1, 1], [5, 5], [0, 0], [0, 0]])


def test_a_saved_state_may_be_saved_over(counter: Program, tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    counter.state.save(path)
    counter.state.load(path)
    counter(INPUT, 1)
    counter.state.save(path)
    assert load_file(path) == {"count": 11}
    assert counter.state["count"] == 11


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "count is missing"),
        ({"count": np.zeros(2, np.float32)}, r"expected count=f32\[\], got F32\[2\]"),
        ({"count": np.array(0, np.int32)}, r"expected count=f32\[\], got I32\[\]"),
        ({"count": np.array(0, np.float32), "more": np.zeros(1)}, "more is unknown"),
        ({"cuont": np.array(0, np.float32)}, "(?s)count is missing.*cuont is unknown"),
    ],
)
def test_a_file_of_another_state_changes_nothing(
    counter: Program, tmp_path: Path, content: dict[str, Any], message: str
) -> None:
    save_file(content, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match=message):
        counter.state.load(tmp_path / "other.safetensors")
    assert counter.state["count"] == 10


def test_files_that_are_none(counter: Program, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no such file"):
        counter.state.load(tmp_path / "none")
    with pytest.raises(ArtifactError, match="cannot be written"):
        counter.state.save(tmp_path / "no" / "folder")


def test_an_unknown_name(counter: Program) -> None:
    with pytest.raises(InputError, match=r"(?s)no state 'c'.*There are count"):
        counter.state.read("c")


def test_inputs_that_do_not_fit_leave_it_alone(counter: Program) -> None:
    with pytest.raises(InputError):
        counter(INPUT.astype(np.float64), 1)
    assert counter.state["count"] == 10


def test_what_a_failed_call_took_is_lost_until_it_is_reset(counter: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    # The device takes the donated state, and then fails.
    def run_and_fail(arguments: Any) -> Any:
        arguments[1].delete()
        raise DeviceError("the program failed")

    with monkeypatch.context() as patch:
        patch.setattr(counter._buckets[0].executable, "run", run_and_fail)
        with pytest.raises(DeviceError, match="the program failed"):
            counter(INPUT, 1)
    for use in (lambda: counter(INPUT, 1), lambda: counter.state["count"]):
        with pytest.raises(DeviceError, match=r"(?s)state count was lost when a call failed.*Reset the state"):
            use()
    counter.state.reset()
    counter(INPUT, 1)
    assert counter.state["count"] == 11


def test_two_programs_have_two_states(tmp_path: Path, device: Device) -> None:
    path = write_counter(tmp_path / "counter.bin", device)
    first, second = load(path, device=device), load(path, device=device)
    first(INPUT, 1)
    assert first.state["count"] == 11
    assert second.state["count"] == 10
