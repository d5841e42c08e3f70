"""The cpu: XLA inside jaxlib, used without JAX.

jaxlib imports JAX behind the scenes where it builds a `jax.Array` from nothing but a device array: in `execute`, in
its DLPack import, in the pointer of an input. So arrays go in with `batched_device_put` and come out of
`execute_sharded` with `array_result_handler`, which take the type and the sharding from us instead.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import numpy as np

from tpuc.runtime.device import Buffer
from tpuc.runtime.dtypes import Array, dtype_of
from tpuc.runtime.errors import DeviceError, DeviceMemoryError
from tpuc.runtime.host import host_fingerprint
from tpuc.runtime.spec import TensorSpec

# XLA logs every client that is made, unless it is told before it is loaded. JAX sets the same default.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

from jaxlib import _jax, version, xla_client


def _collect_garbage(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop":
        _jax.collect_garbage()


# XLA keeps arrays that it has done with until it is told to let go of them. JAX does the same.
gc.callbacks.append(_collect_garbage)


class _Aval:
    """What jaxlib wants to know of an array; JAX's own class for this is `ShapedArray`."""

    weak_type = False

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype


class _OnDevice(xla_client.SingleDeviceSharding):  # type: ignore[misc]
    """Says that an array is whole on one device; JAX adds these attributes in Python."""

    memory_kind = None

    def _to_xla_hlo_sharding(self, rank: int) -> Any:
        return xla_client.HloSharding.replicate()

    # jaxlib 0.9 asks for these two as well.
    def shard_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    @property
    def device_set(self) -> set[Any]:
        return {self._device}


@contextmanager
def _xla_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except (xla_client.XlaRuntimeError, ValueError) as error:
        kind = DeviceMemoryError if "RESOURCE_EXHAUSTED" in str(error) else DeviceError
        raise kind(f"XLA:CPU failed to {doing}: {error}") from None


def register_custom_calls(program: bytes) -> None:
    """Tells XLA:CPU of the functions that a program or an executable calls, before it is compiled or loaded.

    Raises:
        DeviceError: It needs LAPACK, and SciPy, which has it, is missing.
    """
    # Names of custom calls stand in programs and executables as they are. Linear algebra on the cpu is LAPACK's.
    if b"lapack_" in program:
        _register_lapack()


@cache
def _register_lapack() -> None:
    from jaxlib.cpu import _lapack

    try:
        _lapack.initialize()
    except ImportError as error:
        raise DeviceError(
            "the program needs LAPACK, which comes with SciPy", hint="Run `pip install scipy`."
        ) from error
    for name, function in _lapack.registrations().items():
        # Version 1 is XLA's FFI; the others have the older interface.
        version_of_call = int(name.endswith("_ffi"))
        xla_client.register_custom_call_target(name, function, platform="cpu", api_version=version_of_call)


class CpuBuffer:
    """An array that XLA:CPU can read; see `Buffer`."""

    def __init__(self, array: Any, spec: TensorSpec, source: Array | None = None) -> None:
        self.array = array
        self._spec = spec
        self._source = source

    def to_numpy(self) -> Array:
        """Reads the array; see `Buffer.to_numpy`."""
        if self.is_deleted:
            raise DeviceError("the buffer was donated or deleted")
        if self._source is not None:
            return self._source.copy()
        dtype, shape = self._spec.type.numpy, self._spec.shape
        if self._spec.nbytes == 0:
            return np.empty(shape, dtype)
        with _xla_errors("read a result"):
            address = self.array.unsafe_buffer_pointer()
        memory: Any = (ctypes.c_char * self._spec.nbytes).from_address(address)
        # The NumPy array keeps `memory` alive, and `memory` the XLA array that owns the bytes.
        memory.owner = self.array
        return np.ndarray(shape, dtype, memory)

    @property
    def is_deleted(self) -> bool:
        """Whether the buffer was donated or deleted."""
        return bool(self.array.is_deleted())

    def delete(self) -> None:
        """Frees the memory; see `Buffer.delete`."""
        self.array.delete()
        self._source = None


class CpuExecutable:
    """A program compiled for this machine; see `LoadedExecutable`."""

    def __init__(self, executable: Any, results: Sequence[TensorSpec], sharding: _OnDevice) -> None:
        self._executable = executable
        self._results = tuple(results)
        self._handlers = [
            xla_client.array_result_handler(_Aval(spec.shape, spec.type.numpy), sharding, True, True)
            for spec in results
        ]

    def run(self, arguments: Sequence[Buffer]) -> list[Buffer]:
        """Runs the program; see `LoadedExecutable.run`."""
        inputs = [buffer.array for buffer in arguments if isinstance(buffer, CpuBuffer)]
        if len(inputs) != len(arguments):
            raise DeviceError("an argument is on another device")
        if self._executable is None:
            raise DeviceError("the executable was deleted")
        with _xla_errors("run the program"):
            results = self._executable.execute_sharded(inputs)
            arrays = results.consume_with_handlers(self._handlers)
            xla_client.batched_block_until_ready(arrays)
        for array, spec in zip(arrays, self._results, strict=True):
            # What the manifest says of a result is not taken on trust: it decides how much memory is read.
            if array.on_device_size_in_bytes() != spec.nbytes:
                raise DeviceError(f"the program does not return {spec}")
        return [CpuBuffer(array, spec) for array, spec in zip(arrays, self._results, strict=True)]

    def serialize(self) -> bytes:
        """Returns the executable; see `LoadedExecutable.serialize`."""
        with _xla_errors("serialize the executable"):
            return bytes(self._executable.serialize())

    def memory(self) -> dict[str, int]:
        """Returns the bytes that the program needs; see `LoadedExecutable.memory`."""
        stats = self._executable.get_compiled_memory_stats()
        return {
            "argument": stats.argument_size_in_bytes,
            "output": stats.output_size_in_bytes,
            "alias": stats.alias_size_in_bytes,
            "temp": stats.temp_size_in_bytes,
            "code": stats.generated_code_size_in_bytes,
        }

    def delete(self) -> None:
        """Lets go of the executable; see `LoadedExecutable.delete`."""
        self._executable = None


class CpuDevice:
    """This machine's processor; see `Device`."""

    platform = "cpu"
    target = "cpu"
    kind = "cpu"
    aliases_host = True

    def __init__(self) -> None:
        self.compiler: Mapping[str, str] = {"jaxlib": version.__version__}
        self.host = host_fingerprint()
        # Programs run in the thread that starts them: the runtime waits for each anyway.
        self._client = cast(Any, xla_client.make_cpu_client(asynchronous=False))
        self._device = self._client.devices()[0]
        self._devices = xla_client.DeviceList((self._device,))
        self._sharding = _OnDevice(self._device)

    def put(self, array: Array, *, donatable: bool = False) -> CpuBuffer:
        """Makes an array known to XLA, which uses its memory if it is aligned; see `Device.put`."""
        with _xla_errors("take an array"):
            on_device = xla_client.batched_device_put(
                _Aval(array.shape, array.dtype),
                self._sharding,
                [array],
                [self._device],
                True,
                donatable,  # a copy, which XLA owns and may write to
                xla_client.HostBufferSemantics.ZERO_COPY,
                True,
            )
            # If it is copied, that is over when this returns, and the caller may let go of the array's memory.
            on_device.block_until_ready()
        return CpuBuffer(on_device, _spec_of(array), array)

    def compile(self, program: bytes, results: Sequence[TensorSpec]) -> CpuExecutable:
        """Compiles portable StableHLO; see `Device.compile`."""
        register_custom_calls(program)
        with _xla_errors("compile the program"):
            executable = self._client.compile_and_load(program, self._devices, xla_client.CompileOptions())
        return CpuExecutable(executable, results, self._sharding)

    def load(self, serialized: bytes, results: Sequence[TensorSpec]) -> CpuExecutable:
        """Loads an executable that this jaxlib made; see `Device.load`."""
        register_custom_calls(serialized)
        with _xla_errors("load the executable"):
            executable = self._client.deserialize_executable(serialized, self._devices, None)
        return CpuExecutable(executable, results, self._sharding)

    def memory_stats(self) -> dict[str, int]:
        """Returns nothing: XLA:CPU keeps no figures."""
        return {}


def _spec_of(array: Array) -> TensorSpec:
    return TensorSpec(name="", dtype=dtype_of(array).name, dims=array.shape)
