"""Brings a program's weights to its device: those of the artifact, and those that the caller supplies."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tpuc.runtime.artifact import Artifact
from tpuc.runtime.device import Buffer, Device
from tpuc.runtime.dtypes import Array
from tpuc.runtime.errors import InputError
from tpuc.runtime.manifest import WeightInfo
from tpuc.runtime.spec import TensorSpec
from tpuc.runtime.tensor_file import ALIGNMENT, TensorFile, stored_as

_MAX_HASH_THREADS = 8


class Verification:
    """Hashes an artifact's weights in other threads, while the program is loaded and the weights are placed.

    hashlib lets other threads run, and whoever comes first reads the pages of the file for both.
    """

    def __init__(self, artifact: Artifact, device: Device, *, enabled: bool) -> None:
        self._artifact = artifact
        self._enabled = enabled
        threads = min(_MAX_HASH_THREADS, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tpuc-hash")
        self._results: dict[str, Future[None]] = {}
        for weight in artifact.manifest.weights if enabled else ():
            # Weights that are copied within this machine's memory are hashed when their turn comes, so that not all
            # of their pages are in memory beside the copies.
            if weight.section is not None and not _is_copied_here(device, artifact.weight(weight.name)):
                self._results[weight.section] = self._pool.submit(artifact.verify, [weight.section])

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


def place_weights(
    artifact: Artifact, device: Device, supplied: Mapping[str, TensorFile], verification: Verification
) -> dict[str, Buffer]:
    """Puts every weight on a device.

    Returns:
        The buffers, by the names of the weights.

    Raises:
        ArtifactError: A weight is damaged.
        DeviceMemoryError: The device has no room for them.
    """
    placed = {}
    for weight in artifact.manifest.weights:
        if weight.section is None:
            placed[weight.name] = _place_supplied(weight, device, supplied[weight.name])
        else:
            placed[weight.name] = _place(weight.name, weight.section, artifact, device, verification)
    return placed


def _place(name: str, section: str, artifact: Artifact, device: Device, verification: Verification) -> Buffer:
    array = artifact.weight(name)
    buffer = device.put(array)
    verification.finish(section)
    if _has_own_copy(device, array):
        artifact.release(section)
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


def open_supplied(weights: Sequence[WeightInfo], path: Path | None) -> dict[str, TensorFile]:
    """Opens the file, or the folder of files, that the caller supplies for weights that the artifact lacks.

    Args:
        weights: The artifact's weights.
        path: A safetensors file, a folder whose safetensors files are taken together, or None.

    Returns:
        The file of each weight that the artifact lacks, by name.

    Raises:
        InputError: Weights are missing, or have another type or other dimensions: all of them are named.
        ArtifactError: A file is not a safetensors file, or is damaged.
    """
    wanted = {weight.name: weight.spec for weight in weights if weight.section is None}
    if path is None and wanted:
        raise InputError(
            f"the artifact lacks {len(wanted)} of its weights, such as {next(iter(wanted))}",
            hint="Give a safetensors file with them, or a folder of such files, as weights.",
        )
    if path is None:
        return {}
    if not wanted:
        raise InputError("the artifact has its weights: none can be supplied", where=str(path))
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
