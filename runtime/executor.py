"""Loads an artifact and runs it: `load(path)` gives a `Program`, which is called the way the model was."""

from __future__ import annotations

import difflib
import logging
import operator
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpuc.runtime.arrays import as_input
from tpuc.runtime.artifact import Artifact
from tpuc.runtime.buckets import cut, fill_up, smallest, true_sizes
from tpuc.runtime.cache import ExecutableCache, default_folder
from tpuc.runtime.device import Buffer, Device, open_device
from tpuc.runtime.dtypes import Array
from tpuc.runtime.errors import ArtifactError, DeviceError, InputError
from tpuc.runtime.executables import Obtained, Origin, obtain
from tpuc.runtime.manifest import Entry, Manifest
from tpuc.runtime.spec import TensorSpec
from tpuc.runtime.state import State
from tpuc.runtime.structure import unflatten
from tpuc.runtime.weights import Placed, Verification, open_supplied, place_weights

#: Where executables come from, those first that cost most.
_ORIGINS: tuple[Origin, ...] = ("compiled", "cache", "artifact")
_logger = logging.getLogger("tpuc.runtime")


@dataclass(frozen=True, kw_only=True)
class Stats:
    """What a program did so far.

    Attributes:
        calls: How often it ran.
        seconds: How long that took in all: inputs to the device, the program, and outputs back.
        executable: Where its executables came from; `compiled` if one of them was, else `cache` if one was.
        buckets: The same for each bucket; one without sizes if the program has no named sizes.
    """

    calls: int
    seconds: float
    executable: Origin
    buckets: tuple[BucketStats, ...]


@dataclass(frozen=True, kw_only=True)
class BucketStats:
    """What one bucket of a program did so far.

    Attributes:
        sizes: The greatest that each size may be in it.
        calls: How often it ran.
        padding: The share of its input elements that were padding, over all calls.
    """

    sizes: Mapping[str, int]
    calls: int
    padding: float


class _Bucket:
    """The executable for one set of sizes, and what it did so far."""

    def __init__(self, sizes: Mapping[str, int], obtained: Obtained) -> None:
        self.sizes = sizes
        self.executable = obtained.executable
        self.program = obtained.program
        self.origin = obtained.origin
        self._calls = 0
        self._given = 0
        self._padded = 0

    def count(self, given: int, padded: int) -> None:
        """Counts a call, whose inputs have so many elements, and so many with the padding."""
        self._calls += 1
        self._given += given
        self._padded += padded

    def stats(self) -> BucketStats:
        padding = 1 - self._given / self._padded if self._padded else 0.0
        return BucketStats(sizes=self.sizes, calls=self._calls, padding=padding)


def load(
    path: str | Path,
    *,
    device: str | Device = "cpu",
    weights: str | Path | None = None,
    recompile: bool = True,
    verify: bool = True,
    cache_dir: str | Path | None = None,
    notify: Callable[[str], None] = _logger.warning,
) -> Program:
    """Loads an artifact on a device.

    Args:
        path: The artifact.
        device: What `open_device` takes, or an open device.
        weights: For an artifact without weights, a safetensors file with them, or a folder of such files.
        recompile: Whether the program may be compiled here, if the artifact has no executable that this device's
            compiler made.
        verify: Whether the weights are hashed. Programs and executables always are.
        cache_dir: Where to keep what is compiled here; the user's cache folder if None.
        notify: Is told, in one line, that and why the program is compiled here. By default this is a warning of
            the logger `tpuc.runtime`, which Python prints to stderr unless it is told otherwise.

    Raises:
        ArtifactError: The file is not an artifact, is damaged, or needs a newer runtime.
        VersionSkewError: The executable was made by another compiler, and `recompile` is false.
        InputError: The weights do not fit.
        DeviceMemoryError: The device has no room for the program and its weights.
        DeviceError: The device cannot be opened, or refuses the program.
    """
    artifact = Artifact.open(path)
    entries = _entries(artifact)
    supplied = open_supplied(artifact.manifest, entries, None if weights is None else Path(weights))
    opened = open_device(device) if isinstance(device, str) else device
    cache = ExecutableCache(default_folder() if cache_dir is None else Path(cache_dir))
    with Verification(artifact, opened, enabled=verify) as verification:
        obtained = [
            obtain(artifact, entry, opened, recompile=recompile, cache=cache, notify=notify) for entry in entries
        ]
        placed = place_weights(artifact, [each.program for each in obtained], opened, supplied, verification)
    buckets = [_Bucket(entry.sizes, each) for entry, each in zip(entries, obtained, strict=True)]
    return Program(artifact, opened, buckets, placed)


def _entries(artifact: Artifact) -> tuple[Entry, ...]:
    """Returns the entries to run, if this version can run them: one, or one a bucket.

    Raises:
        ArtifactError: The artifact uses what this version does not implement.
    """
    entries = artifact.manifest.entries_of()
    if len(artifact.manifest.entries) > len(entries):
        raise ArtifactError(
            "the artifact has entries of several names, and this tpuc runs one",
            where=str(artifact.path),
            hint="Upgrade tpuc to run it.",
        )
    return entries


class Program:
    """A model on a device.

    Calling it takes and returns what the model did, with NumPy arrays for tensors; `run` takes and returns arrays by
    name. It may be called from several threads, one at a time. Closing it, or leaving it as a context manager, frees
    what it holds on the device.

    Attributes:
        manifest: What the artifact says about itself.
        inputs: What a call takes.
        outputs: What a call returns.
        state: What the program keeps from call to call.
        is_random: Whether the program draws random numbers, and so takes a seed: equal seeds, equal results.
        device: The device.
    """

    def __init__(self, artifact: Artifact, device: Device, buckets: Sequence[_Bucket], placed: Placed) -> None:
        """Takes the parts that `load` made."""
        self.manifest: Manifest = artifact.manifest
        self.inputs: tuple[TensorSpec, ...] = artifact.manifest.inputs
        self.outputs: tuple[TensorSpec, ...] = artifact.manifest.outputs
        self.device = device
        self.state = State(artifact, device)
        self.is_random = any(argument.kind == "seed" for argument in buckets[0].program.arguments)
        self._buckets = tuple(buckets)
        self._placed = placed
        self._lock = threading.Lock()
        self._closed = False
        self._calls = 0
        self._seconds = 0.0

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the model as it was called when it was compiled.

        Args:
            args: Positional arguments. Tensors are NumPy arrays, anything with `__dlpack__`, or Python numbers.
            kwargs: Keyword arguments; of a program that draws random numbers, `seed` is that of `run`. (A model's own
                input of that name is then given by position.)

        Returns:
            What the model returns, in its own structure, with arrays for tensors.

        Raises:
            InputError: The arguments do not fit; the place is named.
            DeviceError: The program failed.
        """
        seed = kwargs.pop("seed", None) if self.is_random else None
        places = self.manifest.input_structure.bind(args, kwargs)
        return unflatten(self.manifest.output_structure, self._run(places, seed))

    def run(self, inputs: Mapping[str, Any], *, seed: int | None = None) -> dict[str, Array]:
        """Calls the model with its tensors by name.

        Args:
            inputs: One value for each of `self.inputs`, by name.
            seed: That of the random numbers, a number of 64 bits; 0 if None.

        Returns:
            One array for each of `self.outputs`, by name.

        Raises:
            InputError: Inputs are missing, unknown, or of another type or other dimensions: all of them are named. Or
                a seed is given that is no such number, or to a program that draws no random numbers.
            DeviceError: The program failed.
        """
        names = [spec.name for spec in self.inputs]
        problems = list(_name_problems(names, list(inputs)))
        if problems:
            raise InputError("\n".join(problems), hint=f"Inputs are {', '.join(map(str, self.inputs)) or 'none'}.")
        outputs = self._run({number: (name, inputs[name]) for number, name in enumerate(names)}, seed)
        return {spec.name: output for spec, output in zip(self.outputs, outputs, strict=True)}

    def stats(self) -> Stats:
        """Returns what the program did so far."""
        origins = {bucket.origin for bucket in self._buckets}
        origin = next(origin for origin in _ORIGINS if origin in origins)
        buckets = tuple(bucket.stats() for bucket in self._buckets)
        return Stats(calls=self._calls, seconds=self._seconds, executable=origin, buckets=buckets)

    def close(self) -> None:
        """Frees what the program holds on the device; it cannot be called any more."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for bucket in self._buckets:
                bucket.executable.delete()
            self.state.delete()
            self._placed.delete()

    def _run(self, places: Mapping[int, tuple[str, Any]], seed: int | None) -> list[Array]:
        """Runs the program on values by the number of the input, and returns the outputs in order."""
        if seed is not None and not self.is_random:
            raise InputError("a seed is given, and the program draws no random numbers")
        arrays = self._arrays(places)
        seed_array = _seed_array(0 if seed is None else seed)
        with self._lock:
            if self._closed:
                raise DeviceError("the program is closed")
            start = time.perf_counter()
            outputs = self._execute(arrays, seed_array)
            self._calls += 1
            self._seconds += time.perf_counter() - start
        return outputs

    def _arrays(self, places: Mapping[int, tuple[str, Any]]) -> dict[str, Array]:
        arrays, errors = {}, []
        for number, spec in enumerate(self.inputs):
            place, value = places[number]
            try:
                arrays[spec.name] = as_input(value, spec, place)
            except InputError as error:
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise InputError("\n".join(str(error) for error in errors))
        return arrays

    def _execute(self, arrays: Mapping[str, Array], seed: Array) -> list[Array]:
        shapes = {name: array.shape for name, array in arrays.items()}
        sizes = true_sizes(self.inputs, shapes, self.manifest.sizes)
        bucket = self._buckets[smallest([each.sizes for each in self._buckets], sizes)]
        padded = {spec.name: fill_up(arrays[spec.name], spec.at(bucket.sizes).shape) for spec in self.inputs}
        bucket.count(sum(each.size for each in arrays.values()), sum(each.size for each in padded.values()))
        inputs = {name: self.device.put(array) for name, array in padded.items()}
        holders: Mapping[str, Callable[[str], Buffer]] = {
            "weight": self._placed.weights.__getitem__,
            "prepared": self._placed.prepared.__getitem__,
            "state": self.state.buffer,
            "input": inputs.__getitem__,
            "seed": lambda _name: self.device.put(seed),
            "size": lambda name: self.device.put(np.array(sizes[name], np.int32)),
        }
        arguments = [holders[argument.kind](argument.name) for argument in bucket.program.arguments]
        results = bucket.executable.run(arguments)
        outputs: dict[str, Array] = {}
        for result, buffer in zip(bucket.program.results, results, strict=True):
            if result.kind == "state":
                self.state.replace(result.name, buffer)
            else:
                outputs[result.name] = buffer.to_numpy()
        return [cut(outputs[spec.name], spec.at(sizes).shape) for spec in self.outputs]


def _seed_array(seed: int) -> Array:
    """Returns a seed as a program takes it, i64 of no dimension."""
    try:
        return np.array(operator.index(seed), np.int64)
    except (TypeError, OverflowError):
        raise InputError(f"seed: expected an integer of 64 bits, got {seed!r}") from None


def _name_problems(expected: Sequence[str], given: Sequence[str]) -> Iterator[str]:
    for name in expected:
        if name not in given:
            yield f"the input {name} is missing"
    for name in given:
        if name not in expected:
            near = difflib.get_close_matches(name, expected, n=1)
            yield f"the input {name} is unknown" + (f"; did you mean {near[0]}?" if near else "")
