from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tpuc.runtime.artifact import write_artifact
from tpuc.runtime.buckets import cut, fill_up, smallest, true_sizes
from tpuc.runtime.device import Device
from tpuc.runtime.errors import ArtifactError, InputError
from tpuc.runtime.executor import Program, load
from tpuc.runtime.manifest import Argument, Manifest, decode_manifest, encode_manifest
from tpuc.runtime.sizes import SizeRange
from tpuc.runtime.spec import TensorSpec

from .sample_artifacts import portable, simple_manifest

RANGES = (SizeRange(name="b", minimum=1, maximum=8), SizeRange(name="s", minimum=2, maximum=16))
SPECS = tuple(map(TensorSpec.parse, ("x=f32[b,s]", "y=f32[2*s+1]")))

#: The sums of rows of the true length, and the rows without their last element.
PROGRAM = """
func.func public @main(%x: tensor<2x{bound}xf32>, %s: tensor<i32>)
    -> (tensor<2xf32>, tensor<2x{shorter}xf32>) {{
  %0 = stablehlo.iota dim = 1 : tensor<2x{bound}xi32>
  %1 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<i32>) -> tensor<2x{bound}xi32>
  %2 = stablehlo.compare LT, %0, %1 : (tensor<2x{bound}xi32>, tensor<2x{bound}xi32>) -> tensor<2x{bound}xi1>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<2x{bound}xf32>
  %4 = stablehlo.select %2, %x, %3 : tensor<2x{bound}xi1>, tensor<2x{bound}xf32>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<2x{bound}xf32>, tensor<f32>) -> tensor<2xf32>
  %6 = stablehlo.slice %x [0:2, 0:{shorter}] : (tensor<2x{bound}xf32>) -> tensor<2x{shorter}xf32>
  return %5, %6 : tensor<2xf32>, tensor<2x{shorter}xf32>
}}
"""


def manifest() -> Manifest:
    """Describes a program with two buckets of one size."""
    simple = simple_manifest(["x=f32[2,s]"], ["sums=f32[2]", "rest=f32[2,s-1]"])
    (entry,) = simple.entries
    (program,) = entry.programs
    program = replace(program, arguments=(*program.arguments, Argument(kind="size", name="s")))
    return replace(
        simple,
        sizes=(SizeRange(name="s", minimum=1, maximum=9),),
        entries=tuple(
            replace(entry, sizes={"s": bound}, programs=(replace(program, section=f"program/main.{bound}"),))
            for bound in (4, 9)
        ),
    )


@pytest.fixture
def program(tmp_path: Path, device: Device) -> Program:
    sections = {f"program/main.{n}": portable(PROGRAM.format(bound=n, shorter=n - 1)) for n in (4, 9)}
    write_artifact(tmp_path / "a.bin", manifest(), sections)
    return load(tmp_path / "a.bin", device=device, cache_dir=tmp_path, notify=lambda _: None)


@pytest.mark.parametrize("size", range(1, 10))
def test_a_call_of_any_size(program: Program, size: int) -> None:
    x = np.arange(2 * size, dtype=np.float32).reshape(2, size)
    sums, rest = program(x)
    np.testing.assert_array_equal(sums, x.sum(1))
    np.testing.assert_array_equal(rest, x[:, :-1])
    assert [bucket.calls for bucket in program.stats().buckets] == ([1, 0] if size <= 4 else [0, 1])


def test_padding_is_counted(program: Program) -> None:
    for size in (4, 3, 5):
        program(np.zeros((2, size), np.float32))
    small, large = program.stats().buckets
    assert (small.sizes, small.calls, large.calls) == ({"s": 4}, 2, 1)
    assert small.padding == pytest.approx(1 / 8)
    assert large.padding == pytest.approx(4 / 9)


@pytest.mark.parametrize(("size", "message"), [(0, "must be at least 1"), (10, "must be at most 9")])
def test_a_size_out_of_bounds(program: Program, size: int, message: str) -> None:
    with pytest.raises(InputError, match=rf"s is {size} by x \(dimension 1 is {size}\), and {message}"):
        program(np.zeros((2, size), np.float32))


def test_a_dimension_that_does_not_vary(program: Program) -> None:
    with pytest.raises(InputError, match=r"x: expected f32\[2,s\], got f32\[3,4\]"):
        program(np.zeros((3, 4), np.float32))


def test_sizes_are_solved_for() -> None:
    assert true_sizes(SPECS, {"x": (3, 7), "y": (15,)}, RANGES) == {"b": 3, "s": 7}


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ((3, 7), (17,), r"s is 7 by x \(dimension 1 is 7\), and 8 by y \(dimension 0 is 17\)"),
        ((3, 7), (16,), r"y: dimension 0 is 16, which 2\*s\+1 is for no s"),
        ((9, 7), (15,), r"b is 9 by x \(dimension 0 is 9\), and must be at most 8"),
        ((3, 1), (3,), "must be at least 2"),
    ],
)
def test_sizes_that_do_not_fit(x: tuple[int, ...], y: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        true_sizes(SPECS, {"x": x, "y": y}, RANGES)


def test_all_problems_are_said_at_once() -> None:
    with pytest.raises(InputError, match=r"(?s)b is 9 .*s is 7 .*x=f32\[b,s\]"):
        true_sizes(SPECS, {"x": (9, 7), "y": (17,)}, RANGES)


def test_the_bucket_with_the_least_room_left() -> None:
    buckets = [{"b": 8, "s": 16}, {"b": 1, "s": 16}, {"b": 8, "s": 4}]
    assert [smallest(buckets, {"b": b, "s": s}) for b, s in ((1, 5), (1, 4), (2, 4), (2, 5))] == [1, 1, 2, 0]
    with pytest.raises(InputError, match="no program for b=9, s=1"):
        smallest(buckets, {"b": 9, "s": 1})


def test_filling_up_and_cutting_undo_each_other() -> None:
    x = np.arange(6).reshape(2, 3)
    full = fill_up(x, [4, 3])
    assert full.shape == (4, 3)
    assert not full[2:].any()
    np.testing.assert_array_equal(cut(full, [2, 3]), x)
    assert fill_up(x, [2, 3]) is x
    assert cut(x, [2, 3]) is x


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": ()}, "has the dimension s, of sizes that there are not"),
        ({"sizes": (RANGES[1], RANGES[1])}, "two sizes have the same name"),
        ({"sizes": (RANGES[1], replace(RANGES[0], name="t"))}, "no input tells the size t"),
        ({"inputs": (TensorSpec(name="x", dtype="f32", dims=(2, "s*s")),)}, "does not tell a size"),
        ({"inputs": (TensorSpec(name="x", dtype="f32", dims=(2, "f(s)")),)}, r"dimension 'f\(s\)', which is no size"),
        (
            {"entries": tuple(replace(each, sizes={}) for each in manifest().entries[:1])},
            "has other sizes than the inputs",
        ),
    ],
)
def test_manifests_that_contradict_themselves(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        decode_manifest(encode_manifest(replace(manifest(), **changes)))


def test_an_entry_takes_sizes_that_there_are() -> None:
    data = encode_manifest(manifest())
    data["entries"][0]["programs"][0]["arguments"].append({"kind": "size", "name": "t"})
    with pytest.raises(ArtifactError, match="the entry main takes the size 't', which there is not"):
        decode_manifest(data)
