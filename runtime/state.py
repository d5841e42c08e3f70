"""The state of a program: what it changes from call to call, such as a cache of keys and values, or a counter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from tpuc.runtime.artifact import Artifact
from tpuc.runtime.device import Buffer, Device
from tpuc.runtime.dtypes import Array
from tpuc.runtime.errors import DeviceError, InputError
from tpuc.runtime.spec import TensorSpec
from tpuc.runtime.tensor_file import TensorFile, TensorSource, stored_as, write_tensor_file


class State(Mapping[str, Array]):
    """The state of a program, which stays on the device between calls.

    As a mapping it gives copies of the present values, by name.
    """

    def __init__(self, artifact: Artifact, device: Device) -> None:
        """Puts the first values of an artifact's state on a device."""
        self._artifact = artifact
        self._device = device
        self._specs = {state.name: state.spec for state in artifact.manifest.state}
        self._buffers: dict[str, Buffer] = {}
        artifact.verify([state.section for state in artifact.manifest.state])
        self.reset()

    def __getitem__(self, name: str) -> Array:
        return self.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    def read(self, name: str) -> Array:
        """Copies the present value of a state to the host.

        Raises:
            InputError: There is no such state.
            DeviceError: It was lost when a call failed.
        """
        if name not in self._specs:
            raise InputError(f"there is no state {name!r}", hint=f"There are {', '.join(self._specs) or 'none'}.")
        return self.buffer(name).to_numpy().copy()

    def reset(self) -> None:
        """Gives every state its first value again."""
        for name in self._specs:
            self._put(name, self._artifact.initial_state(name))

    def save(self, path: str | Path) -> None:
        """Writes the present values to a safetensors file, under their names.

        Raises:
            ArtifactError: The file cannot be written; an older one is untouched.
            DeviceError: A state was lost when a call failed.
        """
        values = {name: TensorSource.of_array(self.read(name)) for name in self._specs}
        write_tensor_file(Path(path), values)

    def load(self, path: str | Path) -> None:
        """Takes the values from a safetensors file that `save` wrote.

        Raises:
            ArtifactError: The file is not a safetensors file, or is damaged.
            InputError: It does not hold this program's state; nothing was changed.
        """
        file = TensorFile.open(Path(path))
        problems = list(_misfits(self._specs, file))
        if problems:
            raise InputError(
                "\n  ".join(["the file does not hold the state of this program:", *problems]), where=str(path)
            )
        for name, spec in self._specs.items():
            self._put(name, file.array(name, spec.type, spec.shape))

    def buffer(self, name: str) -> Buffer:
        """Returns the buffer that holds a state.

        Raises:
            DeviceError: It was lost when a call failed.
        """
        buffer = self._buffers[name]
        if buffer.is_deleted:
            raise DeviceError(
                f"the state {name} was lost when a call failed", hint="Reset the state, or load a saved one."
            )
        return buffer

    def replace(self, name: str, buffer: Buffer) -> None:
        """Takes over the new value that a call returned."""
        self._buffers[name] = buffer

    def delete(self) -> None:
        """Frees the memory on the device."""
        for buffer in self._buffers.values():
            buffer.delete()

    def _put(self, name: str, value: Array) -> None:
        self._buffers[name] = self._device.put(np.asarray(value, order="C"), donatable=True)


def _misfits(specs: Mapping[str, TensorSpec], file: TensorFile) -> Iterator[str]:
    for name, spec in specs.items():
        if name not in file.tensors:
            yield f"{name} is missing"
        elif not stored_as(file.tensors[name], spec.type, spec.shape):
            found = file.tensors[name]
            yield f"expected {spec}, got {found.dtype}{list(found.shape)}"
    yield from (f"{name} is unknown" for name in file.tensors if name not in specs)
