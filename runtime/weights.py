"""Brings a program's weights to its device: the artifact's, the caller's, and what is prepared from them."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tpuc.runtime.artifact import Artifact
from tpuc.runtime.device import Buffer, Device
from tpuc.runtime.dtypes import Array
from tpuc.runtime.errors import InputError
from tpuc.runtime.manifest import Entry, Manifest, ProgramInfo, WeightInfo
from tpuc.runtime.prepare import Preparer
from tpuc.runtime.spec import TensorSpec
from tpuc.runtime.tensor_file import ALIGNMENT, TensorFile, stored_as

_MAX_HASH_THREADS = 8


@dataclass(frozen=True, kw_only=True)
class Placed:
    """What a program holds on its device from one call to the next, by name.

    Attributes:
        weights: The weights that the program takes.
        prepared: The prepared tensors that it takes.
    """

    weights: dict[str, Buffer]
    prepared: dict[str, Buffer]

    def delete(self) -> None:
        """Frees it."""
        for buffer in (*self.weights.values(), *self.prepared.values()):
            buffer.delete()


class Verification:
    """Hashes an artifact's tensors in other threads, while the program is loaded and they are placed.

    hashlib lets other threads run, and whoever comes first reads the pages of the file for both.
    """

    def __init__(self, artifact: Artifact, device: Device, *, enabled: bool) -> None:
        self._artifact = artifact
        self._enabled = enabled
        threads = min(_MAX_HASH_THREADS, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tpuc-hash")
        self._results: dict[str, Future[None]] = {}
        for section, array in _stored(artifact) if enabled else ():
            # Weights that are copied within this machine's memory are hashed when their turn comes, so that not all
            # of their pages are in memory beside the copies.
            if not _is_copied_here(device, array):
                self._results[section] = self._pool.submit(artifact.verify, [section])

    def __enter__(self) -> Verification:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def finish(self, section: str) -> None:
        """Hashes a section, or waits until it is hashed.

        Raises:
            ArtifactError: It is damaged.
        """
        if section in self._results:
            self._results[section].result()
        elif self._enabled:
            self._artifact.verify([section])


def _stored(artifact: Artifact) -> Iterator[tuple[str, Array]]:
    """The sections of the weights and prepared tensors that the artifact holds, with their contents."""
    for weight in artifact.manifest.weights:
        if weight.section is not None:
            yield weight.section, artifact.weight(weight.name)
    for prepared in artifact.manifest.prepared:
        if prepared.section is not None:
            yield prepared.section, artifact.prepared(prepared.name)


def place_weights(
    artifact: Artifact,
    programs: Sequence[ProgramInfo],
    device: Device,
    supplied: Mapping[str, TensorFile],
    verification: Verification,
) -> Placed:
    """Puts what programs take of weights on a device, and prepares what the artifact does not hold.

    Raises:
        ArtifactError: A weight is damaged.
        DeviceMemoryError: The device has no room for them.
        DeviceError: A tensor cannot be prepared.
    """
    placing = _Placing(artifact, device, supplied, verification)
    taken = dict.fromkeys((part.kind, part.name) for program in programs for part in program.arguments)
    names = {wanted: [name for kind, name in taken if kind == wanted] for wanted in ("weight", "prepared")}
    # Prepared first, so that weights that are only sources are gone before the others come.
    prepared = placing.prepare_all(names["prepared"], keep=set(names["weight"]))
    return Placed(weights={name: placing.weight(name) for name in names["weight"]}, prepared=prepared)


class _Placing:
    """One placing: what is on the device so far."""

    def __init__(
        self, artifact: Artifact, device: Device, supplied: Mapping[str, TensorFile], verification: Verification
    ) -> None:
        self._artifact = artifact
        self._device = device
        self._supplied = supplied
        self._verification = verification
        self._infos = {weight.name: weight for weight in artifact.manifest.weights}
        self._placed: dict[str, Buffer] = {}

    def weight(self, name: str) -> Buffer:
        """Puts a weight on the device, unless it is there."""
        if name not in self._placed:
            info = self._infos[name]
            if info.section is None:
                self._placed[name] = _place_supplied(info, self._device, self._supplied[name])
            else:
                self._placed[name] = self._place(info.section, self._artifact.weight(name))
        return self._placed[name]

    def prepare_all(self, names: Sequence[str], *, keep: Set[str]) -> dict[str, Buffer]:
        """Puts prepared tensors on the device; weights that are sources only, and not to be kept, leave it again.

        The largest come first: their sources are beside them while most of the device is free.
        """
        infos = {info.name: info for info in self._artifact.manifest.prepared}
        preparer = Preparer(self._device)
        readers = Counter(source for name in names if infos[name].section is None for source in infos[name].sources)
        prepared = {}
        for name in sorted(names, key=lambda name: infos[name].spec.nbytes, reverse=True):
            info = infos[name]
            if info.section is not None:
                prepared[name] = self._place(info.section, self._artifact.prepared(name))
                continue
            sources = [self.weight(source) for source in info.sources]
            prepared[name] = preparer.prepare(bytes(self._artifact.section(info.program)), info.spec, sources)
            readers.subtract(info.sources)
            for source in info.sources:
                if not readers[source] and source not in keep and source in self._placed:
                    self._placed.pop(source).delete()
        return prepared

    def _place(self, section: str, array: Array) -> Buffer:
        buffer = self._device.put(array)
        self._verification.finish(section)
        if _has_own_copy(self._device, array):
            self._artifact.release(section)
        return buffer


def _place_supplied(weight: WeightInfo, device: Device, file: TensorFile) -> Buffer:
    array = file.array(weight.name, weight.spec.type, weight.spec.shape)
    buffer = device.put(array)
    if _has_own_copy(device, array):
        file.release(weight.name)
    return buffer


def _is_copied_here(device: Device, array: Array) -> bool:
    return device.aliases_host and array.ctypes.data % ALIGNMENT != 0


def _has_own_copy(device: Device, array: Array) -> bool:
    # Then the pages of the file need not stay in memory.
    return not device.aliases_host or _is_copied_here(device, array)


def open_supplied(manifest: Manifest, entries: Sequence[Entry], path: Path | None) -> dict[str, TensorFile]:
    """Opens the file, or the folder of files, that the caller supplies for weights that the artifact lacks.

    Args:
        manifest: The artifact's manifest.
        entries: The entries to run, whose programs need the weights.
        path: A safetensors file, a folder whose safetensors files are taken together, or None.

    Returns:
        The file of each weight that the artifact lacks, by name.

    Raises:
        InputError: Weights are missing, or have another type or other dimensions: all of them are named.
        ArtifactError: A file is not a safetensors file, or is damaged.
    """
    programs = [program for entry in entries for program in entry.programs]
    needed = {name for program in programs for name in manifest.needed_weights(program)}
    wanted = {weight.name: weight.spec for weight in manifest.weights if not weight.section and weight.name in needed}
    if path is None and wanted:
        raise InputError(
            f"the artifact lacks {len(wanted)} of its weights, such as {next(iter(wanted))}",
            hint="Give a safetensors file with them, or a folder of such files, as weights.",
        )
    if path is None:
        return {}
    if not wanted:
        raise InputError(
            "the artifact has its weights: none can be supplied",
            where=str(path),
            hint="`tpuc weights replace` puts others into it.",
        )
    return find_weights(wanted, path)


def find_weights(wanted: Mapping[str, TensorSpec], path: Path) -> dict[str, TensorFile]:
    """Finds weights in a safetensors file, or in a folder whose safetensors files are taken together.

    Returns:
        The file of each weight, by name.

    Raises:
        InputError: Weights are missing, or have another type or other dimensions: all of them are named.
        ArtifactError: A file is not a safetensors file, or is damaged.
    """
    found = {name: file for file in map(TensorFile.open, _files(path)) for name in file.tensors}
    problems = list(_misfits(wanted, found))
    if problems:
        raise InputError("\n  ".join(["the weights do not fit the program:", *problems]), where=str(path))
    return {name: found[name] for name in wanted}


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise InputError("the folder has no safetensors files", where=str(path))
    return files


def _misfits(wanted: Mapping[str, TensorSpec], found: Mapping[str, TensorFile]) -> Iterator[str]:
    for name, spec in wanted.items():
        if name not in found:
            near = difflib.get_close_matches(name, found, n=1)
            yield f"{name} is missing" + (f"; there is {near[0]}" if near else "")
            continue
        stored = found[name].tensors[name]
        if not stored_as(stored, spec.type, spec.shape):
            yield f"expected {spec}, got {stored.dtype}{list(stored.shape)}"
