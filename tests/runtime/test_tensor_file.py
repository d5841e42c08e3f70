"""Tests of reading and writing safetensors files."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from tpuc.runtime.dtypes import DTYPES
from tpuc.runtime.errors import ArtifactError
from tpuc.runtime.tensor_file import ALIGNMENT, MAX_HEADER, TensorFile, TensorSource, write_tensor_file

from .sample_artifacts import sample_array


def write_raw(path: Path, header: Any, data: bytes = b"", *, length: int | None = None) -> Path:
    """Writes a file with any header, JSON or bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype: str, shape: list[Any], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(3, 5), (), (0, 4), (1,)])
def test_every_type_comes_back(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    array = sample_array(DTYPES[name].numpy, shape)
    path = tmp_path / "file"
    write_tensor_file(path, {"x": TensorSource.of_array(array)})
    read = TensorFile.open(path).array("x", DTYPES[name], shape)
    assert read.dtype == array.dtype
    assert not read.flags.writeable
    np.testing.assert_array_equal(read, array)


def test_the_safetensors_package_reads_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    arrays = {name: sample_array(row.numpy, (2, 3)) for name, row in DTYPES.items()}
    write_tensor_file(
        path, {name: TensorSource.of_array(array) for name, array in arrays.items()}, metadata=lambda _: {"a": "b"}
    )
    with safe_open(path, "np") as file:
        assert file.metadata() == {"a": "b"}
        assert set(file.keys()) == set(DTYPES)
        for name, row in DTYPES.items():
            assert file.get_slice(name).get_dtype() == row.safetensors
        np.testing.assert_array_equal(file.get_tensor("i16"), arrays["i16"])
        np.testing.assert_array_equal(file.get_tensor("c128").view(np.complex128)[..., 0], arrays["c128"])


def test_what_the_safetensors_package_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    arrays: dict[str, Any] = {"a": np.arange(5, dtype=np.float32), "b": np.ones((2, 2), np.int64)}
    save_file(arrays, path, metadata={"k": "v"})
    file = TensorFile.open(path)
    assert file.metadata == {"k": "v"}
    for name, dtype in (("a", "f32"), ("b", "i64")):
        np.testing.assert_array_equal(file.array(name, DTYPES[dtype], arrays[name].shape), arrays[name])


def test_arrays_of_any_layout_are_written_row_major_and_little_endian(tmp_path: Path) -> None:
    path = tmp_path / "file"
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    sources = {"t": array.T, "s": array[:, ::2], "b": array.astype(">i4"), "f": np.asfortranarray(array)}
    write_tensor_file(path, {name: TensorSource.of_array(source) for name, source in sources.items()})
    file = TensorFile.open(path)
    for name, source in sources.items():
        np.testing.assert_array_equal(file.array(name, DTYPES["i32"], source.shape), source)


def test_tensors_are_aligned_where_their_sizes_allow(tmp_path: Path) -> None:
    path = tmp_path / "file"
    arrays = {"odd": np.zeros(3, np.uint8), "even": np.zeros(64, np.uint8), "big": np.zeros(640, np.uint8)}
    write_tensor_file(path, {name: TensorSource.of_array(array) for name, array in arrays.items()})
    file = TensorFile.open(path)
    for name in ("even", "big"):
        assert file.tensors[name].start % ALIGNMENT == 0
        assert file.array(name, DTYPES["u8"], arrays[name].shape).ctypes.data % ALIGNMENT == 0


def test_pieces_are_never_all_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    alive = 0

    def pieces() -> Iterator[bytes]:
        nonlocal alive
        for number in range(4):
            alive += 1
            yield bytes([number]) * 16

    write_tensor_file(path, {"x": TensorSource.of_chunks(DTYPES["u8"], (64,), pieces)})
    assert alive == 4
    assert TensorFile.open(path).data("x").tobytes() == b"".join(bytes([number]) * 16 for number in range(4))


@pytest.mark.parametrize("given", [[b"123"], [b"12345"], []])
def test_pieces_of_another_size_are_refused(tmp_path: Path, given: list[bytes]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ArtifactError, match="x should have 4 bytes"):
        write_tensor_file(path, {"x": TensorSource.of_chunks(DTYPES["u8"], (4,), lambda: iter(given))})
    assert path.read_bytes() == b"old"


def test_hashes_go_into_the_metadata(tmp_path: Path) -> None:
    path = tmp_path / "file"
    hashes = write_tensor_file(path, {"x": TensorSource.of_bytes(b"abc")}, metadata=lambda hashes: dict(hashes))
    file = TensorFile.open(path)
    assert file.metadata == hashes == {"x": file.sha256("x")}


def test_released_pages_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    array = np.arange(1 << 16, dtype=np.int32)
    write_tensor_file(path, {"x": TensorSource.of_array(array)})
    file = TensorFile.open(path)
    file.release("x")
    np.testing.assert_array_equal(file.array("x", DTYPES["i32"], array.shape), array)


@pytest.mark.parametrize(("dtype", "dims"), [("f32", (3,)), ("i32", (2,)), ("f32", (2, 1))])
def test_another_type_or_shape_is_refused(tmp_path: Path, dtype: str, dims: tuple[int, ...]) -> None:
    path = tmp_path / "file"
    write_tensor_file(path, {"x": TensorSource.of_array(np.zeros(2, np.float32))})
    with pytest.raises(ArtifactError, match=r"x is F32\[2\], expected"):
        TensorFile.open(path).array("x", DTYPES[dtype], dims)


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        (b"[1]", b"", "not a JSON object"),
        (b"{", b"", "not valid JSON"),
        (b'{"a"', b"", "not valid JSON"),
        (b'{"a": NaN}', b"", "NaN is not a JSON number"),
        (b'{"\xff": 1}', b"", "not valid JSON"),
        (b'{"a": %s%s}' % (b"[" * 100000, b"]" * 100000), b"", "nests too deeply"),
        (b'{"a": %s}' % (b"9" * 5000), b"", "not valid JSON"),
        (b'{"x": {}, "x": {}}', b"", "a key stands there twice"),
        ({"__metadata__": []}, b"", "__metadata__ is not a JSON object"),
        ({"__metadata__": {"a": 1}}, b"", "__metadata__.a is not a text"),
        ({"x": 1}, b"", "the entry x of the header"),
        ({"x": {"dtype": "U8", "shape": [1]}}, b"1", "the entry x of the header"),
        ({"x": entry("U8", [1], 0, 1) | {"more": 1}}, b"1", "the entry x of the header"),
        ({"x": entry("F4", [1], 0, 1)}, b"1", "x has the unknown type F4"),
        ({"x": entry("U8", [1.0], 0, 1)}, b"1", "not a whole number"),
        ({"x": entry("U8", [True], 0, 1)}, b"1", "not a whole number"),
        ({"x": entry("U8", [-1], 0, 1)}, b"1", "not a whole number"),
        ({"x": entry("U8", [1], -1, 0)}, b"1", "not a whole number"),
        ({"x": entry("U8", [2], 0, 1)}, b"1", "does not fit its 1 bytes"),
        ({"x": entry("F32", [1], 0, 1)}, b"1", "does not fit its 1 bytes"),
        ({"x": entry("U8", [1 << 70, 1 << 70], 0, 1)}, b"1", "does not fit its 1 bytes"),
        ({"x": entry("U8", [1], 1, 2)}, b"12", "leaves a gap"),
        ({"x": entry("U8", [1], 0, 1), "y": entry("U8", [1], 0, 1)}, b"1", "overlaps"),
        ({"x": entry("U8", [1], 0, 1), "y": entry("U8", [1], 2, 3)}, b"123", "leaves a gap"),
        ({"x": entry("U8", [3], 0, 3)}, b"12", r"cut short"),
        ({"x": entry("U8", [1], 0, 1)}, b"123", "2 bytes too many"),
    ],
)
def test_headers_that_do_not_fit(tmp_path: Path, header: Any, data: bytes, message: str) -> None:
    path = write_raw(tmp_path / "file", header, data)
    with pytest.raises(ArtifactError, match=message) as caught:
        TensorFile.open(path)
    assert caught.value.where == str(path)


def test_a_header_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "file", {}, length=MAX_HEADER + 1)
    with pytest.raises(ArtifactError, match="at most 16,777,216 are read"):
        TensorFile.open(path)


def test_an_empty_file_of_tensors_is_one(tmp_path: Path) -> None:
    assert TensorFile.open(write_raw(tmp_path / "file", {})).tensors == {}
