"""Reads and writes safetensors files: a length, a JSON header, and the tensors' bytes one after another.

The reader trusts nothing: every number is checked before a byte is read on its word, and the tensors are
memory-mapped, so that opening a file costs its header. The writer streams, and hashes what it writes.

Source of the format: https://github.com/huggingface/safetensors, README, "Format".
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tpuc.runtime.dtypes import STORED_ITEMSIZE, Array, DType, dtype_of
from tpuc.runtime.errors import ArtifactError
from tpuc.runtime.files import is_no_room, replacing

#: The longest header that is read, bytes.
MAX_HEADER = 16 << 20
#: Tensors start at multiples of this where they can, so that XLA takes them from the mapping without a copy.
ALIGNMENT = 64
#: What stands in the place of a hash until it is known.
UNKNOWN_HASH = "0" * 64

_LENGTH = 8
_CHUNK = 8 << 20


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """One tensor of a file, as its header describes it.

    Attributes:
        dtype: The element type's safetensors name.
        shape: The dimensions.
        start: Where its bytes start, counted from the start of the file.
        stop: Where they end.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return self.stop - self.start


def map_file(path: Path, *, what: str) -> mmap.mmap:
    """Maps a file into memory, for reading.

    Args:
        path: The file.
        what: What it should be, for errors: `a tpuc artifact`.

    Raises:
        ArtifactError: The file is not there, is empty or no file, or may not be read.
    """
    where = str(path)
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise ArtifactError(f"{'a folder' if stat.S_ISDIR(mode) else 'a special file'}, not {what}", where=where)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise ArtifactError("the file is empty", where=where)
            return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ArtifactError("no such file", where=where) from None
    except PermissionError:
        raise ArtifactError("no permission to read the file", where=where) from None
    except OSError as error:
        raise ArtifactError(f"the file cannot be read: {error.strerror}", where=where) from error


def read_header(mapped: mmap.mmap, path: Path, *, what: str) -> bytes:
    """Returns the JSON bytes of the header of a safetensors file.

    Args:
        mapped: The file.
        path: Its path, for errors.
        what: What it should be, for errors.

    Raises:
        ArtifactError: The file does not start like a safetensors file.
    """
    length = _header_length(mapped[: _LENGTH + 1], len(mapped), str(path), what)
    return mapped[_LENGTH : _LENGTH + length]


def _header_length(prefix: bytes, size: int, where: str, what: str) -> int:
    if len(prefix) <= _LENGTH:
        raise ArtifactError(f"not {what}: the file has {size} bytes", where=where)
    length = int.from_bytes(prefix[:_LENGTH], "little")
    if length <= size - _LENGTH and length <= MAX_HEADER:
        return length
    if prefix[_LENGTH:] != b"{":
        raise ArtifactError(f"not {what}", where=where)
    if int.from_bytes(prefix[:_LENGTH], "big") <= min(size - _LENGTH, MAX_HEADER):
        raise ArtifactError("the file was written in big-endian byte order, and tpuc reads little-endian", where=where)
    if length > MAX_HEADER:
        raise ArtifactError(
            f"the header says that it is {length:,} bytes long; at most {MAX_HEADER:,} are read", where=where
        )
    raise ArtifactError(
        f"the file is cut short: its header takes {length:,} bytes, and there are {size - _LENGTH:,}", where=where
    )


def parse_json(data: str | bytes, what: str, where: str) -> Any:
    """Parses JSON strictly: no key twice, no NaN.

    Raises:
        ArtifactError: It is no JSON, or nests too deeply.
    """

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        read = dict(pairs)
        if len(read) != len(pairs):
            raise ValueError("a key stands there twice")
        return read

    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is not a JSON number")

    try:
        text = data if isinstance(data, str) else data.decode()
        return json.loads(text, object_pairs_hook=no_duplicates, parse_constant=no_constant)
    except RecursionError:
        raise ArtifactError(f"{what} nests too deeply", where=where) from None
    except ValueError as error:
        raise ArtifactError(f"{what} is not valid JSON: {error}", where=where) from None


class TensorFile:
    """An open safetensors file, memory-mapped.

    Attributes:
        path: The file.
        metadata: The texts under `__metadata__`.
        tensors: The tensors by name.
    """

    def __init__(self, path: Path, mapped: mmap.mmap, header: bytes) -> None:
        """Reads a header.

        Args:
            path: The file.
            mapped: What `map_file` gave.
            header: What `read_header` gave.

        Raises:
            ArtifactError: The header contradicts itself or the size of the file.
        """
        self.path = path
        self._map = mapped
        where = str(path)
        parsed = parse_json(header, "the header", where)
        if not isinstance(parsed, dict):
            raise ArtifactError("the header is not a JSON object", where=where)
        self.metadata = _parse_metadata(parsed.pop("__metadata__", {}), where)
        data_start = _LENGTH + len(header)
        self.tensors = {name: _parse_tensor(name, entry, data_start, where) for name, entry in parsed.items()}
        _check_layout(self.tensors, data_start, len(mapped), where)

    @classmethod
    def open(cls, path: Path, *, what: str = "a safetensors file") -> TensorFile:
        """Opens a file.

        Raises:
            ArtifactError: It is not a safetensors file, or is damaged.
        """
        mapped = map_file(path, what=what)
        return cls(path, mapped, read_header(mapped, path, what=what))

    def data(self, name: str) -> memoryview:
        """Returns the bytes of a tensor, without a copy.

        Raises:
            ArtifactError: There is no such tensor.
        """
        tensor = self._find(name)
        return memoryview(self._map)[tensor.start : tensor.stop]

    def array(self, name: str, dtype: DType, dims: tuple[int, ...]) -> Array:
        """Returns a tensor as a read-only array over the mapping, without a copy.

        Args:
            name: The tensor.
            dtype: The element type to read it as.
            dims: Its dimensions.

        Raises:
            ArtifactError: There is no such tensor, or it has another type or other dimensions.
        """
        tensor = self._find(name)
        if not stored_as(tensor, dtype, dims):
            raise ArtifactError(
                f"{name} is {tensor.dtype}{list(tensor.shape)}, expected {dtype.name}{list(dims)}", where=str(self.path)
            )
        return np.frombuffer(self.data(name), dtype=dtype.numpy.newbyteorder("<")).reshape(dims)

    def sha256(self, name: str) -> str:
        """Hashes the bytes of a tensor, reading them from the file."""
        return hashlib.sha256(self.data(name)).hexdigest()

    def release(self, name: str) -> None:
        """Lets the operating system take back the memory that holds a tensor's pages; they can be read again."""
        tensor = self._find(name)
        start = -(-tensor.start // mmap.PAGESIZE) * mmap.PAGESIZE
        stop = tensor.stop // mmap.PAGESIZE * mmap.PAGESIZE
        if start < stop:
            self._map.madvise(mmap.MADV_DONTNEED, start, stop - start)

    def _find(self, name: str) -> StoredTensor:
        if name not in self.tensors:
            raise ArtifactError(f"there is no tensor {name}", where=str(self.path))
        return self.tensors[name]


def stored_as(tensor: StoredTensor, dtype: DType, dims: tuple[int, ...]) -> bool:
    """Whether a stored tensor has an element type and dimensions."""
    return tensor.dtype == dtype.safetensors and tensor.shape == stored_shape(dtype, dims)


def stored_shape(dtype: DType, dims: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions under which a tensor is stored; see `DType.stored_lanes`."""
    return dims if dtype.stored_lanes == 1 else (*dims, dtype.stored_lanes)


def _parse_metadata(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ArtifactError("__metadata__ is not a JSON object", where=where)
    for name, text in value.items():
        if not isinstance(text, str):
            raise ArtifactError(f"__metadata__.{name} is not a text", where=where)
    return value


def _parse_tensor(name: str, entry: object, data_start: int, where: str) -> StoredTensor:
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [start, stop], **rest} if not rest:
            pass
        case _:
            raise ArtifactError(f"the entry {name} of the header is not that of a tensor", where=where)
    if dtype not in STORED_ITEMSIZE:
        raise ArtifactError(f"{name} has the unknown type {dtype}", where=where)
    if not all(type(number) is int and number >= 0 for number in (*shape, start, stop)):
        raise ArtifactError(f"{name} has a size or an offset that is not a whole number", where=where)
    if stop - start != math.prod(shape) * STORED_ITEMSIZE[dtype]:
        raise ArtifactError(f"{name} is {dtype}{shape}, which does not fit its {stop - start} bytes", where=where)
    return StoredTensor(dtype=dtype, shape=tuple(shape), start=data_start + start, stop=data_start + stop)


def _check_layout(tensors: Mapping[str, StoredTensor], data_start: int, size: int, where: str) -> None:
    end = data_start
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].stop)):
        if tensor.start != end:
            raise ArtifactError(f"{name} leaves a gap before it, or overlaps another tensor", where=where)
        end = tensor.stop
    if size < end:
        raise ArtifactError(f"the file is cut short: {size:,} of {end:,} bytes are there", where=where)
    if size > end:
        raise ArtifactError(f"the file has {size - end:,} bytes too many at its end", where=where)


@dataclass(frozen=True, kw_only=True)
class TensorSource:
    """A tensor to write.

    Attributes:
        dtype: The element type's safetensors name.
        shape: The dimensions under which it is stored.
        chunks: Gives its bytes, piece by piece, in order.
    """

    dtype: str
    shape: tuple[int, ...]
    chunks: Callable[[], Iterator[bytes | memoryview]]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * STORED_ITEMSIZE[self.dtype]

    @classmethod
    def of_array(cls, array: Array) -> TensorSource:
        """Writes an array; one that is not dense or not little-endian is converted when its turn comes.

        Raises:
            InputError: It has an element type that programs cannot use.
        """
        kind = dtype_of(array)

        def chunks() -> Iterator[memoryview]:
            dense = np.asarray(array, dtype=kind.numpy.newbyteorder("<"), order="C")
            return _pieces(dense.reshape(-1).view(np.uint8).data)

        return cls(dtype=kind.safetensors, shape=stored_shape(kind, array.shape), chunks=chunks)

    @classmethod
    def of_bytes(cls, data: bytes | memoryview) -> TensorSource:
        """Writes bytes, as a vector of U8."""
        return cls(dtype="U8", shape=(len(data),), chunks=lambda: _pieces(memoryview(data)))

    @classmethod
    def of_chunks(
        cls, dtype: DType, dims: tuple[int, ...], chunks: Callable[[], Iterator[bytes | memoryview]]
    ) -> TensorSource:
        """Writes a tensor that is never in memory whole.

        Args:
            dtype: The element type.
            dims: The dimensions.
            chunks: Gives the little-endian, row-major bytes piece by piece.
        """
        return cls(dtype=dtype.safetensors, shape=stored_shape(dtype, dims), chunks=chunks)


def _pieces(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(data), _CHUNK):
        yield data[start : start + _CHUNK]


def write_tensor_file(
    path: Path,
    tensors: Mapping[str, TensorSource],
    *,
    metadata: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda hashes: {},
    seal: Callable[[bytes], bytes] = lambda header: header,
    rename: Callable[[Mapping[str, str]], Path] | None = None,
) -> dict[str, str]:
    """Writes a safetensors file in the place of `path`, which is old or new at any moment and never a part.

    Args:
        path: The file.
        tensors: The tensors by name.
        metadata: Makes the `__metadata__` texts from the SHA-256 of every tensor. It is called twice: with
            `UNKNOWN_HASH` for each before the tensors are written, and with the hashes after. Both results must have
            the same length as JSON.
        seal: Gets the final header and returns it with what depends on all of it filled in, at the same length.
        rename: Gives the file another name, in the same folder, that depends on the hashes.

    Returns:
        The SHA-256 of every tensor.

    Raises:
        ArtifactError: There is no room, the file cannot be written, or a tensor gives more or fewer bytes than it says.
    """
    ordered = dict(sorted(tensors.items(), key=lambda item: _order(item[1])))
    draft = _make_header(ordered, metadata(dict.fromkeys(ordered, UNKNOWN_HASH)))
    needed = _LENGTH + len(draft) + sum(source.nbytes for source in ordered.values())
    try:
        with replacing(path) as replacement:
            file = replacement.file
            file.write(len(draft).to_bytes(_LENGTH, "little"))
            file.write(draft)
            hashes = {name: _write_tensor(file, name, source, path) for name, source in ordered.items()}
            header = seal(_make_header(ordered, metadata(hashes)))
            if len(header) != len(draft):
                raise AssertionError("the final header and its draft differ in length")
            file.seek(_LENGTH)
            file.write(header)
            if rename is not None:
                replacement.path = rename(hashes)
    except OSError as error:
        raise _write_error(error, path, needed) from error
    return hashes


def _order(source: TensorSource) -> bool:
    # Tensors whose size is a multiple of the alignment come first: as the first starts aligned, so do all of these.
    return source.nbytes % ALIGNMENT != 0


def _make_header(tensors: Mapping[str, TensorSource], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, source in tensors.items():
        end = offset + source.nbytes
        header[name] = {"dtype": source.dtype, "shape": list(source.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    return text + b" " * (-(_LENGTH + len(text)) % ALIGNMENT)


def _write_tensor(file: BinaryIO, name: str, source: TensorSource, path: Path) -> str:
    digest = hashlib.sha256()
    written = 0
    for chunk in source.chunks():
        digest.update(chunk)
        written += file.write(chunk)
    if written != source.nbytes:
        raise ArtifactError(f"{name} should have {source.nbytes} bytes, and {written} were given", where=str(path))
    return digest.hexdigest()


def _write_error(error: OSError, path: Path, needed: int) -> ArtifactError:
    if is_no_room(error):
        return ArtifactError(
            f"no room to write the file: {needed:,} bytes are needed",
            where=str(path),
            hint="Free some, or write elsewhere.",
        )
    return ArtifactError(f"the file cannot be written: {error.strerror}", where=str(path))
