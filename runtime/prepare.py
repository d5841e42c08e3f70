"""Computes what programs take that depends on weights alone: concatenations, folded scales, other layouts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tpuc.runtime.device import Buffer, Device, LoadedExecutable
from tpuc.runtime.dtypes import Array
from tpuc.runtime.spec import TensorSpec


class Preparer:
    """Runs the programs that prepare tensors on a device.

    Models have many layers of one form, and so many tensors are prepared by one program: it is compiled once.

    Attributes:
        device: The device.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._executables: dict[bytes, LoadedExecutable] = {}

    def prepare(self, program: bytes, spec: TensorSpec, sources: Sequence[Buffer]) -> Buffer:
        """Computes one tensor.

        Args:
            program: Portable StableHLO with the sources as arguments and the tensor as its only result.
            spec: The tensor.
            sources: The weights that the program takes, in order, on the device.

        Raises:
            DeviceMemoryError: The device has no room.
            DeviceError: The device refuses the program, or it failed.
        """
        executable = self._executables.get(program)
        if executable is None:
            executable = self._executables[program] = self.device.compile(program, [spec])
        (result,) = executable.run(list(sources))
        return result

    def compute(self, program: bytes, spec: TensorSpec, sources: Iterable[Array]) -> Iterator[memoryview]:
        """Computes one tensor from weights in this machine's memory when it is asked for, and gives its bytes.

        The arguments and errors are those of `prepare`.
        """
        buffers = [self.device.put(source) for source in sources]
        result = self.prepare(program, spec, buffers)
        for buffer in buffers:
            buffer.delete()
        yield np.ascontiguousarray(result.to_numpy()).reshape(-1).view(np.uint8).data
        result.delete()
