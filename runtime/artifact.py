"""Artifacts: the file that holds a compiled model. FORMAT.md beside this file specifies it.

`Artifact.open` reads the header only; sections are memory-mapped, and hashed when they are read. `write_artifact`
streams, so that a model's weights are never in memory twice.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tpuc.runtime.dtypes import Array
from tpuc.runtime.errors import ArtifactError
from tpuc.runtime.manifest import Manifest, SectionInfo, WeightInfo, decode_manifest, encode_manifest
from tpuc.runtime.spec import TensorSpec
from tpuc.runtime.tensor_file import (
    UNKNOWN_HASH,
    TensorFile,
    TensorSource,
    map_file,
    parse_json,
    read_header,
    stored_as,
    write_tensor_file,
)

FORMAT = "tpuc"
#: The version that is written and read. FORMAT.md lists what each version changed.
FORMAT_VERSION = "1"

#: The contents of a section: an array, bytes (U8), or, for a weight or state, a function that gives its little-endian
#: row-major bytes piece by piece.
SectionData: TypeAlias = Array | bytes | memoryview | Callable[[], Iterator[bytes | memoryview]]

_WHAT = "a tpuc artifact"
_SEAL = re.compile(rb'"header_sha256":"([0-9a-f]{64})"')
_WEIGHTS = "weights/"


class Artifact:
    """An open artifact.

    Attributes:
        path: The file.
        manifest: What the file says about itself.
    """

    def __init__(self, path: Path, file: TensorFile, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._file = file

    @classmethod
    def open(cls, path: str | Path) -> Artifact:
        """Opens an artifact; its header is checked completely, its sections when they are read.

        Raises:
            ArtifactError: The file is not an artifact, is damaged, or is of a version that cannot be read.
        """
        path = Path(path)
        mapped = map_file(path, what=_WHAT)
        header = read_header(mapped, path, what=_WHAT)
        sealed = _check_seal(header, path)
        file = TensorFile(path, mapped, header)
        if file.metadata.get("format") != FORMAT:
            raise ArtifactError(f"a safetensors file, but not {_WHAT}", where=str(path))
        if not sealed:
            raise ArtifactError("the header is damaged: it has no hash of itself", where=str(path))
        _check_version(file.metadata, path)
        parsed = parse_json(file.metadata.get("manifest", ""), "the manifest", str(path))
        _check_byte_order(parsed, path)
        try:
            manifest = decode_manifest(parsed)
        except ArtifactError as error:
            raise ArtifactError(error.what, where=str(path)) from None
        artifact = cls(path, file, manifest)
        artifact._check_sections()
        return artifact

    def section(self, name: str) -> memoryview:
        """Returns the bytes of a program or an executable, once their hash is checked.

        Raises:
            ArtifactError: The section is damaged.
        """
        self.verify([name])
        return self._holder(name).data(self._stored_name(name))

    def weight(self, name: str) -> Array:
        """Returns a weight as a read-only array over the mapped file, without a copy and without hashing it.

        Raises:
            ArtifactError: The artifact does not hold it.
        """
        if name not in self._weights:
            raise ArtifactError(f"there is no weight {name!r}", where=str(self.path))
        return self._tensor(self._weights[name].spec, self._weights[name].section)

    def prepared(self, name: str) -> Array:
        """Returns a prepared tensor as a read-only array over the mapped file, without a copy and without hashing it.

        Raises:
            ArtifactError: The artifact does not hold it.
        """
        for info in self.manifest.prepared:
            if info.name == name:
                return self._tensor(info.spec, info.section)
        raise ArtifactError(f"there is no prepared tensor {name!r}", where=str(self.path))

    def initial_state(self, name: str) -> Array:
        """Returns the first value of a state as a read-only array over the mapped file, without hashing it.

        Raises:
            ArtifactError: There is no such state.
        """
        for state in self.manifest.state:
            if state.name == name:
                return self._tensor(state.spec, state.section)
        raise ArtifactError(f"there is no state {name!r}", where=str(self.path))

    def verify(self, names: Iterable[str] | None = None) -> None:
        """Reads sections and compares their hashes with the manifest's.

        Args:
            names: The sections; None takes all.

        Raises:
            ArtifactError: A section is damaged.
        """
        for name in self.manifest.sections if names is None else names:
            if name not in self.manifest.sections:
                raise ArtifactError(f"there is no section {name}", where=str(self.path))
            holder = self._holder(name)
            if holder.sha256(self._stored_name(name)) != self.manifest.sections[name].sha256:
                raise ArtifactError(
                    f"the section {name} is damaged", where=str(holder.path), hint="Copy or compile the artifact again."
                )

    def release(self, name: str) -> None:
        """Lets the operating system take back the memory that a section's pages hold."""
        self._holder(name).release(self._stored_name(name))

    @cached_property
    def _weights(self) -> dict[str, WeightInfo]:
        return {weight.name: weight for weight in self.manifest.weights}

    @cached_property
    def _weights_file(self) -> TensorFile:
        # decode_manifest has checked that the name is a bare one, so this cannot lead out of the folder.
        assert self.manifest.weights_file is not None
        path = self.path.parent / self.manifest.weights_file
        try:
            return TensorFile.open(path, what="the weights of an artifact")
        except ArtifactError as error:
            raise ArtifactError(
                f"the weights of {self.path.name} cannot be read: {error.what}",
                where=str(path),
                hint="The weights file must stand beside the artifact: copy both.",
            ) from None

    def _is_external(self, name: str) -> bool:
        return self.manifest.weights_mode == "external" and name.startswith(_WEIGHTS)

    def _holder(self, name: str) -> TensorFile:
        return self._weights_file if self._is_external(name) else self._file

    def _stored_name(self, name: str) -> str:
        return name.removeprefix(_WEIGHTS) if self._is_external(name) else name

    def _tensor(self, spec: TensorSpec, section: str | None) -> Array:
        if section is None:
            raise ArtifactError(f"the artifact does not hold {spec.name}", where=str(self.path))
        return self._holder(section).array(self._stored_name(section), spec.type, spec.shape)

    def _check_sections(self) -> None:
        """Compares the sections of the file with those of the manifest.

        Raises:
            ArtifactError: One is missing, unknown, or of another size or type.
        """
        manifest, stored, where = self.manifest, self._file.tensors, str(self.path)
        described = {name: info for name, info in manifest.sections.items() if not self._is_external(name)}
        for name in described:
            if name not in stored:
                raise ArtifactError(f"the section {name} is missing", where=where)
        for name, tensor in stored.items():
            if name not in described:
                raise ArtifactError(f"the manifest does not know the section {name}", where=where)
            if tensor.nbytes != described[name].size:
                raise ArtifactError(f"the section {name} has another size than the manifest says", where=where)
        for spec, section in _tensor_sections(manifest):
            if section in stored and not stored_as(stored[section], spec.type, spec.shape):
                raise ArtifactError(f"the section {section} does not hold {spec}", where=where)


def _tensor_sections(manifest: Manifest) -> Iterator[tuple[TensorSpec, str]]:
    for weight in manifest.weights:
        if weight.section is not None:
            yield weight.spec, weight.section
    for prepared in manifest.prepared:
        if prepared.section is not None:
            yield prepared.spec, prepared.section
    for state in manifest.state:
        yield state.spec, state.section


def _check_seal(header: bytes, path: Path) -> bool:
    """Compares the header with the hash of itself that it carries; returns whether it carries one."""
    found = _SEAL.findall(header)
    if len(found) != 1:
        return False
    if _seal_of(header) != found[0].decode():
        raise ArtifactError("the header is damaged", where=str(path), hint="Copy or compile the artifact again.")
    return True


def _seal_of(header: bytes) -> str:
    return hashlib.sha256(_SEAL.sub(b'"header_sha256":"%s"' % UNKNOWN_HASH.encode(), header)).hexdigest()


def _seal(header: bytes) -> bytes:
    return _SEAL.sub(b'"header_sha256":"%s"' % _seal_of(header).encode(), header)


def _check_version(metadata: Mapping[str, str], path: Path) -> None:
    version = metadata.get("format_version")
    if version == FORMAT_VERSION:
        return
    raise ArtifactError(
        f"the artifact has format version {version}, written by {_writer(metadata)}; this tpuc reads {FORMAT_VERSION}",
        where=str(path),
        hint="Upgrade tpuc, or compile the model again with this one.",
    )


def _writer(metadata: Mapping[str, str]) -> str:
    try:
        producer = json.loads(metadata["manifest"])["producer"]["tpuc"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return "another tpuc"
    return f"tpuc {producer}"


def _check_byte_order(parsed: object, path: Path) -> None:
    if isinstance(parsed, dict) and parsed.get("byte_order") == "big":
        raise ArtifactError("the artifact is in big-endian byte order, and tpuc reads little-endian", where=str(path))


def write_artifact(path: str | Path, manifest: Manifest, sections: Mapping[str, SectionData]) -> Manifest:
    """Writes an artifact in the place of `path`, which is old or new at any moment and never a part.

    With `weights_mode` external, the sections under `weights/` go to a file beside the artifact, named after its
    contents. It is written first, and an older one stays: so the artifact that stands at `path` always finds its own.

    Args:
        path: The file.
        manifest: What to say about it; `sections` and `weights_file` are filled in here.
        sections: The contents of every section that the manifest uses.

    Returns:
        The manifest that was written.

    Raises:
        ArtifactError: There is no room, the file cannot be written, or sections and manifest do not agree.
    """
    path = Path(path)
    specs = {section: spec for spec, section in _tensor_sections(manifest)}
    sources = {name: _source(name, data, specs, path) for name, data in sections.items()}
    infos = {name: SectionInfo(sha256=UNKNOWN_HASH, size=source.nbytes) for name, source in sources.items()}
    is_external = manifest.weights_mode == "external"
    manifest = replace(manifest, sections=infos, weights_file="not named yet" if is_external else None)
    _check_agreement(manifest, path)
    if is_external:
        weights = {name: sources.pop(name) for name in list(sources) if name.startswith(_WEIGHTS)}
        manifest = _write_weights(path, manifest, weights)

    def metadata(hashes: Mapping[str, str]) -> dict[str, str]:
        nonlocal manifest
        manifest = _with_hashes(manifest, hashes)
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "header_sha256": UNKNOWN_HASH,
            "manifest": json.dumps(encode_manifest(manifest), separators=(",", ":"), allow_nan=False),
        }

    write_tensor_file(path, sources, metadata=metadata, seal=_seal)
    return manifest


def _source(name: str, data: SectionData, specs: Mapping[str, TensorSpec], path: Path) -> TensorSource:
    if isinstance(data, bytes | memoryview):
        return TensorSource.of_bytes(data)
    if not isinstance(data, np.ndarray):
        if name not in specs:
            raise ArtifactError(f"the section {name} is given in pieces, and its size is not known", where=str(path))
        return TensorSource.of_chunks(specs[name].type, specs[name].shape, data)
    if name in specs and (data.shape != specs[name].shape or data.dtype.newbyteorder("=") != specs[name].type.numpy):
        raise ArtifactError(f"the section {name} should hold {specs[name]}, got {data.dtype}{list(data.shape)}")
    return TensorSource.of_array(data)


def _with_hashes(manifest: Manifest, hashes: Mapping[str, str]) -> Manifest:
    infos = {name: SectionInfo(sha256=sha256, size=manifest.sections[name].size) for name, sha256 in hashes.items()}
    return replace(manifest, sections=manifest.sections | infos)


def _write_weights(path: Path, manifest: Manifest, weights: Mapping[str, TensorSource]) -> Manifest:
    plain = {name.removeprefix(_WEIGHTS): source for name, source in weights.items()}

    def name_of(hashes: Mapping[str, str]) -> Path:
        return path.with_name(f"{path.stem}.{_digest_of(hashes)}.safetensors")

    hashes = write_tensor_file(path.with_name(f"{path.stem}.safetensors"), plain, rename=name_of)
    named = replace(manifest, weights_file=name_of(hashes).name)
    return _with_hashes(named, {f"{_WEIGHTS}{name}": sha256 for name, sha256 in hashes.items()})


def _digest_of(hashes: Mapping[str, str]) -> str:
    return hashlib.sha256("".join(f"{name} {hashes[name]}\n" for name in sorted(hashes)).encode()).hexdigest()[:16]


def _check_agreement(manifest: Manifest, path: Path) -> None:
    # What is written must be readable: the reader's own checks say so before a byte is written.
    try:
        decode_manifest(json.loads(json.dumps(encode_manifest(manifest), allow_nan=False)))
    except ArtifactError as error:
        raise ArtifactError(error.what, where=str(path)) from None
