"""What the runtime asks of a device, and how one is opened.

There are two kinds behind these protocols: XLA:CPU inside jaxlib (`cpu.py`), and whatever a PJRT plugin drives, which
is how a TPU is reached (`pjrt.py`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tpuc.runtime.dtypes import Array
from tpuc.runtime.errors import DeviceError
from tpuc.runtime.spec import TensorSpec


class Buffer(Protocol):
    """An array on a device."""

    def to_numpy(self) -> Array:
        """Reads the array, in row-major order.

        The result may share its memory with the buffer; whoever writes to it must not use the buffer again.

        Raises:
            DeviceError: The buffer was donated or deleted, or what should have filled it failed.
        """
        ...

    @property
    def is_deleted(self) -> bool:
        """Whether the buffer was donated or deleted."""
        ...

    def delete(self) -> None:
        """Frees the memory on the device; nothing happens if it was freed before."""
        ...


class LoadedExecutable(Protocol):
    """A program that is ready to run."""

    def run(self, arguments: Sequence[Buffer]) -> list[Buffer]:
        """Runs the program and waits until it is done.

        Args:
            arguments: One buffer for each argument, on the executable's device. Those that the program donates are
                deleted, unless this raises before the program starts.

        Returns:
            One buffer for each result.

        Raises:
            DeviceError: The device refused the program, or the program failed.
        """
        ...

    def serialize(self) -> bytes:
        """Returns the executable in the form that `Device.load` of the same compiler build takes."""
        ...

    def memory(self) -> dict[str, int]:
        """Returns the bytes that the program needs, by kind: argument, output, alias, temp, code."""
        ...

    def delete(self) -> None:
        """Frees what the executable holds on the device."""
        ...


class Device(Protocol):
    """One device that programs run on.

    Attributes:
        platform: `cpu`, `tpu`, or another that a plugin names.
        target: What programs are compiled for: `cpu`, `v5e`.
        kind: The device's own name of its kind: `TPU v5 lite`.
        compiler: What names the exact build of the device's compiler. An executable fits only if its own compiler has
            the same value for each of these keys; see `is_same_compiler`.
        host: For the cpu, the instructions that executables may use; "" for others.
        aliases_host: Whether `put` can take an array over without a copy.
    """

    platform: str
    target: str
    kind: str
    compiler: Mapping[str, str]
    host: str
    aliases_host: bool

    def put(self, array: Array, *, donatable: bool = False) -> Buffer:
        """Brings an array to the device.

        Args:
            array: A dense, row-major array in the machine's byte order, of a type in `DTYPES`. It must not change
                while the buffer lives: the device may use its memory.
            donatable: Whether the buffer will be donated to a program. It then has memory of its own.

        Raises:
            DeviceMemoryError: The device has no room for it.
            DeviceError: The device refused it.
        """
        ...

    def compile(self, program: bytes, results: Sequence[TensorSpec]) -> LoadedExecutable:
        """Compiles portable StableHLO.

        Args:
            program: The bytecode.
            results: What the program returns, in order.

        Raises:
            DeviceMemoryError: The program needs more memory than the device has.
            DeviceError: The compiler refused it.
        """
        ...

    def load(self, serialized: bytes, results: Sequence[TensorSpec]) -> LoadedExecutable:
        """Loads what `LoadedExecutable.serialize` gave, or the compiler for this kind of device.

        Args:
            serialized: The executable.
            results: What the program returns, in order.

        Raises:
            DeviceError: It was made by another build, or is no executable.
        """
        ...

    def memory_stats(self) -> dict[str, int]:
        """Returns what is known of the device's memory, in bytes: bytes_in_use, peak_bytes_in_use, bytes_limit, ..."""
        ...


# By the text they were opened with. A plugin such as libtpu gives a process one client only, so programs share it;
# it is closed when the last of them lets go of it.
_open_devices: weakref.WeakValueDictionary[str, Device] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def open_device(name: str) -> Device:
    """Opens a device, or returns the one that is open under this name.

    Args:
        name: `cpu`; `tpu`, by the libtpu package that is installed; `tpu:PATH`, by the libtpu.so at that path;
            or `plugin:PATH`, by any PJRT plugin.

    Raises:
        DeviceError: There is no such device, or it cannot be opened.
    """
    with _opening:
        device = _open_devices.get(name)
        if device is None:
            device = _open_devices[name] = _opener(name)()
        return device


def _opener(name: str) -> Callable[[], Device]:
    # Imported here, because each brings in a large library that the other does not need.
    kind, _, path = name.partition(":")
    if name == "cpu":
        from tpuc.runtime.cpu import CpuDevice

        return CpuDevice
    if kind in ("tpu", "plugin"):
        from tpuc.runtime import pjrt

        if name == "tpu":
            return lambda: pjrt.PluginDevice(pjrt.find_libtpu())
        if path:
            return lambda: pjrt.PluginDevice(path)
    raise DeviceError(f"unknown device {name!r}", hint="Known are cpu, tpu, tpu:PATH and plugin:PATH.")


def compiler_build(platform_version: str) -> str:
    """Takes the compiler's build out of a PJRT platform version.

    libtpu's has lines for the API and the chip before it, of which one differs between clients of the same build:
    `PJRT C API`, `TFRT TPU v5 lite`, `Built on Jun 17 2026 11:08:48 (1781719728) cl/933746096`.
    """
    for line in platform_version.splitlines():
        if line.startswith("Built on"):
            return line
    return platform_version.removeprefix("PJRT C API\n")


def is_same_compiler(device: Mapping[str, str], made_by: Mapping[str, str]) -> bool:
    """Whether an executable was made by the compiler of a device.

    Args:
        device: `Device.compiler`.
        made_by: `ExecutableInfo.compiler`; it may say more than the device does.
    """
    return all(compiler_build(made_by.get(key, "")) == compiler_build(value) for key, value in device.items())
