"""Devices behind a PJRT plugin, such as libtpu: a client of the PJRT C API, through ctypes.

Nothing here needs jaxlib. `Plugin` calls the functions and turns errors into exceptions; `PluginDevice`,
`PluginBuffer` and `PluginExecutable` are the runtime's `Device`, `Buffer` and `LoadedExecutable`.

Who frees what: every handle that the API gives away is owned by one Python object, which frees it when it dies or when
`delete` is called. Buffers and executables hold the client, so that it goes last.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tpuc.runtime import pjrt_abi
from tpuc.runtime.device import Buffer, compiler_build
from tpuc.runtime.dtypes import DTYPES, Array, dtype_of
from tpuc.runtime.errors import DeviceError, DeviceMemoryError
from tpuc.runtime.spec import TensorSpec

#: What tpuc calls the chips, by the kind that libtpu gives their devices.
#: Source: libtpu 0.0.42.1, a topology of each chip; the second names are those in JAX's `tpu_info.py` (0.10.2).
TARGETS: Mapping[str, str] = MappingProxyType(
    {
        "TPU v2": "v2",
        "TPU v3": "v3",
        "TPU v4": "v4",
        "TPU v5 lite": "v5e",
        "TPU v5e": "v5e",
        "TPU v5": "v5p",
        "TPU v5p": "v5p",
        "TPU v6 lite": "v6e",
        "TPU v6e": "v6e",
        "TPU7x": "v7x",
    }
)

_MEMORY_STATS = (
    "peak_bytes_in_use",
    "num_allocs",
    "largest_alloc_size",
    "bytes_limit",
    "bytes_reserved",
    "peak_bytes_reserved",
    "bytes_reservable_limit",
    "largest_free_block_bytes",
    "pool_bytes",
    "peak_pool_bytes",
)


def find_libtpu() -> str:
    """Finds the libtpu.so of the libtpu package that is installed.

    Raises:
        DeviceError: There is none.
    """
    # The package is found but not imported: importing it sets environment variables.
    spec = importlib.util.find_spec("libtpu")
    if spec is None or spec.origin is None:
        raise DeviceError("libtpu is not installed", hint="Run `pip install libtpu`, or name a file: tpu:PATH.")
    return str(Path(spec.origin).with_name("libtpu.so"))


class Plugin:
    """A loaded plugin.

    Attributes:
        name: The plugin's file name, for messages.
        version: The version of the API that it speaks: major, minor.
    """

    def __init__(self, path: str) -> None:
        """Loads and initializes a plugin.

        Raises:
            DeviceError: The file is no plugin, speaks another version, or refuses to start.
        """
        self.name = Path(path).name
        if not Path(path).is_file():
            raise DeviceError("no such plugin", where=path)
        try:
            self._library = ctypes.CDLL(path)
            get_api = self._library.GetPjrtApi
        except OSError as error:
            raise DeviceError(f"the plugin cannot be loaded: {error}", where=path) from error
        except AttributeError:
            raise DeviceError("not a PJRT plugin: it has no GetPjrtApi", where=path) from None
        get_api.restype = ctypes.c_void_p
        self._api = get_api()
        # Only this much is read before the version is known to fit.
        self._api_size = ctypes.c_size_t.from_address(self._api).value
        version = pjrt_abi.ApiVersion.from_address(self._api + pjrt_abi.Api.pjrt_api_version.offset)
        self.version = (version.major_version, version.minor_version)
        if self.version[0] != pjrt_abi.MAJOR_VERSION:
            raise DeviceError(
                f"the plugin speaks version {self.version[0]}.{self.version[1]} of the PJRT C API; "
                f"version {pjrt_abi.MAJOR_VERSION} is needed",
                where=path,
            )
        self._functions: dict[str, Any] = {}
        self.call("Plugin_Initialize")

    def call(self, function: str, **arguments: Any) -> Any:
        """Calls a function of the API.

        Args:
            function: Its name, without `PJRT_`.
            arguments: Fields of its argument structure; the others are zero.

        Returns:
            The structure, with what the function filled in.

        Raises:
            DeviceMemoryError: There is too little memory.
            DeviceError: The function returned another error, or the plugin does not have it.
        """
        structure = pjrt_abi.make(pjrt_abi.arguments(function), **arguments)
        error = self._function(function)(ctypes.byref(structure))
        if error:
            raise self._take_error(error, function)
        return structure

    def await_event(self, event: int | None, doing: str) -> None:
        """Waits for an event and frees it.

        Args:
            event: The event; None, which stands for one that has happened, is fine.
            doing: What it stands for, for errors.

        Raises:
            DeviceError: What it stands for failed.
        """
        if not event:
            return
        structure = pjrt_abi.make(pjrt_abi.arguments("Event_Await"), event=event)
        error = self._function("Event_Await")(ctypes.byref(structure))
        self.call("Event_Destroy", event=event)
        if error:
            raise self._take_error(error, doing)

    def _function(self, name: str) -> Any:
        function = self._functions.get(name)
        if function is None:
            if self._api_size < pjrt_abi.function_end(name):
                raise DeviceError(f"{self.name} is too old: it has no {name}", hint="Upgrade the plugin.")
            address = ctypes.c_void_p.from_address(self._api + getattr(pjrt_abi.Api, name).offset).value
            if address is None:
                raise DeviceError(f"{self.name} has no {name}")
            function = self._functions[name] = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)
        return function

    def _take_error(self, error: int, doing: str) -> DeviceError:
        """Makes an exception of a PJRT_Error, and frees it."""
        message = pjrt_abi.make(pjrt_abi.arguments("Error_Message"), error=error)
        self._function("Error_Message")(ctypes.byref(message))
        text = _text(message.message, message.message_size)
        code = pjrt_abi.make(pjrt_abi.arguments("Error_GetCode"), error=error)
        self._function("Error_GetCode")(ctypes.byref(code))
        self._function("Error_Destroy")(ctypes.byref(pjrt_abi.make(pjrt_abi.arguments("Error_Destroy"), error=error)))
        name = pjrt_abi.ERROR_CODES[code.code] if 0 <= code.code < len(pjrt_abi.ERROR_CODES) else str(code.code)
        kind = DeviceMemoryError if name == "RESOURCE_EXHAUSTED" else DeviceError
        return kind(f"{self.name}, {doing}: {name}: {text}")


def _text(address: int | None, size: int) -> str:
    return ctypes.string_at(address, size).decode(errors="replace") if address else ""


@cache
def load_plugin(path: str) -> Plugin:
    """Loads a plugin, once in the life of the process: it cannot be initialized again, nor unloaded."""
    return Plugin(path)


class _Handle:
    """Something that the API gave to us, and that it wants back."""

    def __init__(self, plugin: Plugin, destroy: str, field: str, value: int, *keep: object) -> None:
        # `keep` is what must be freed later than this; the finalizer holds it.
        self.value = value
        self._finalizer = weakref.finalize(self, _destroy, plugin, destroy, field, value, keep)

    def delete(self) -> None:
        self._finalizer()

    @property
    def is_alive(self) -> bool:
        return self._finalizer.alive


def _destroy(plugin: Plugin, function: str, field: str, value: int, keep: tuple[object, ...]) -> None:
    plugin.call(function, **{field: value})


class PluginBuffer:
    """An array on the device; see `Buffer`."""

    def __init__(self, plugin: Plugin, client: _Handle, value: int) -> None:
        self._plugin = plugin
        self._handle = _Handle(plugin, "Buffer_Destroy", "buffer", value, client)

    @property
    def handle(self) -> int:
        """The PJRT_Buffer.

        Raises:
            DeviceError: The buffer was deleted.
        """
        if not self._handle.is_alive:
            raise DeviceError("the buffer was donated or deleted")
        return self._handle.value

    def spec(self) -> TensorSpec:
        """The element type and the dimensions, as the plugin gives them."""
        number = self._plugin.call("Buffer_ElementType", buffer=self.handle).type
        names = [row.name for row in DTYPES.values() if row.pjrt == number]
        dims = self._plugin.call("Buffer_Dimensions", buffer=self.handle)
        shape = tuple(dims.dims[: dims.num_dims])
        return TensorSpec(name="", dtype=names[0] if names else f"pjrt{number}", dims=shape)

    def to_numpy(self) -> Array:
        """Copies the array to the host; see `Buffer.to_numpy`."""
        if self.is_deleted:
            raise DeviceError("the buffer was donated or deleted")
        spec = self.spec()
        array = np.empty(spec.shape, spec.type.numpy)
        if array.nbytes == 0:
            return array
        # On the device the array has a layout of the compiler's choice, tiled on a TPU: ask for a dense row-major one.
        rank = array.ndim
        order = (ctypes.c_int64 * rank)(*reversed(range(rank)))
        layout = pjrt_abi.make(pjrt_abi.MemoryLayout, type=pjrt_abi.TILED)
        layout.tiled = pjrt_abi.make(pjrt_abi.TiledLayout, minor_to_major=order, minor_to_major_size=rank)
        copy = self._plugin.call(
            "Buffer_ToHostBuffer",
            src=self.handle,
            host_layout=ctypes.pointer(layout),
            dst=array.ctypes.data,
            dst_size=array.nbytes,
        )
        self._plugin.await_event(copy.event, "reading a result")
        return array

    def delete(self) -> None:
        """Frees the memory on the device; see `Buffer.delete`."""
        self._handle.delete()

    @property
    def is_deleted(self) -> bool:
        """Whether the buffer was donated or deleted."""
        return not self._handle.is_alive or self._plugin.call("Buffer_IsDeleted", buffer=self._handle.value).is_deleted

    def await_ready(self) -> None:
        """Waits until the array is there.

        Raises:
            DeviceError: What should have filled it failed.
        """
        event = self._plugin.call("Buffer_ReadyEvent", buffer=self.handle).event
        self._plugin.await_event(event, "filling a buffer")


class PluginExecutable:
    """A program loaded on the device; see `LoadedExecutable`."""

    def __init__(self, plugin: Plugin, client: _Handle, value: int, results: Sequence[TensorSpec]) -> None:
        self._plugin = plugin
        self._client = client
        self._results = tuple(results)
        self._loaded = _Handle(plugin, "LoadedExecutable_Destroy", "executable", value, client)
        described = plugin.call("LoadedExecutable_GetExecutable", loaded_executable=value).executable
        self._executable = _Handle(plugin, "Executable_Destroy", "executable", described, self._loaded)
        count = plugin.call("Executable_NumOutputs", executable=described).num_outputs
        if count != len(results):
            raise DeviceError(f"the program returns {count} arrays, and the artifact says {len(results)}")

    def run(self, arguments: Sequence[Buffer]) -> list[Buffer]:
        """Runs the program; see `LoadedExecutable.run`."""
        handles = [buffer.handle for buffer in arguments if isinstance(buffer, PluginBuffer)]
        if len(handles) != len(arguments):
            raise DeviceError("an argument is on another device")
        if not self._loaded.is_alive:
            raise DeviceError("the executable was deleted")
        inputs = (ctypes.c_void_p * len(handles))(*handles)
        outputs = (ctypes.c_void_p * len(self._results))()
        # The API takes a list for each device, and we have one.
        input_lists = (ctypes.c_void_p * 1)(ctypes.addressof(inputs))
        output_lists = (ctypes.c_void_p * 1)(ctypes.addressof(outputs))
        done = (ctypes.c_void_p * 1)()
        options = pjrt_abi.make(pjrt_abi.ExecuteOptions)
        self._plugin.call(
            "LoadedExecutable_Execute",
            executable=self._loaded.value,
            options=ctypes.pointer(options),
            argument_lists=ctypes.addressof(input_lists),
            num_devices=1,
            num_args=len(handles),
            output_lists=ctypes.addressof(output_lists),
            device_complete_events=ctypes.addressof(done),
        )
        # From here on the outputs are ours, and freed whatever happens.
        buffers = [PluginBuffer(self._plugin, self._client, value) for value in outputs if value]
        self._plugin.await_event(done[0], "running the program")
        for buffer, expected in zip(buffers, self._results, strict=True):
            found = buffer.spec()
            if (found.dtype, found.dims) != (expected.dtype, expected.dims):
                raise DeviceError(f"the program returns {found}, and the artifact says {expected}")
        return list(buffers)

    def serialize(self) -> bytes:
        """Returns the executable; see `LoadedExecutable.serialize`."""
        serialized = self._plugin.call("Executable_Serialize", executable=self._executable.value)
        try:
            return ctypes.string_at(serialized.serialized_bytes, serialized.serialized_bytes_size)
        finally:
            serialized.serialized_executable_deleter(serialized.serialized_executable)

    def memory(self) -> dict[str, int]:
        """Returns the bytes that the program needs; see `LoadedExecutable.memory`."""
        stats = self._plugin.call("Executable_GetCompiledMemoryStats", executable=self._executable.value)
        return {
            "argument": stats.argument_size_in_bytes,
            "output": stats.output_size_in_bytes,
            "alias": stats.alias_size_in_bytes,
            "temp": stats.temp_size_in_bytes,
            "code": stats.generated_code_size_in_bytes,
        }

    def delete(self) -> None:
        """Frees the executable; see `LoadedExecutable.delete`."""
        self._executable.delete()
        self._loaded.delete()


class PluginDevice:
    """The first device of a plugin's client; see `Device`.

    Attributes:
        platform_version: What the plugin says of itself.
    """

    aliases_host = False

    def __init__(self, path: str) -> None:
        """Opens a plugin's first device.

        Args:
            path: The plugin's file.

        Raises:
            DeviceError: The plugin cannot be loaded, or finds no device.
        """
        plugin = self._plugin = load_plugin(os.path.realpath(path))
        client = _create_client(plugin)
        self._client = _Handle(plugin, "Client_Destroy", "client", client)
        found = plugin.call("Client_PlatformName", client=client)
        self.platform = _text(found.platform_name, found.platform_name_size).lower()
        found = plugin.call("Client_PlatformVersion", client=client)
        self.platform_version = _text(found.platform_version, found.platform_version_size)
        devices = plugin.call("Client_AddressableDevices", client=client)
        if not devices.num_addressable_devices:
            raise DeviceError(f"{plugin.name} finds no device that this process can use")
        self._device = devices.addressable_devices[0]
        described = plugin.call("Device_GetDescription", device=self._device).device_description
        found = plugin.call("DeviceDescription_Kind", device_description=described)
        self.kind = _text(found.device_kind, found.device_kind_size)
        self._id = plugin.call("DeviceDescription_Id", device_description=described).id
        self.target = TARGETS.get(self.kind, self.platform)
        self.compiler: Mapping[str, str] = _compiler(plugin, self.platform, self.platform_version)
        self.host = _host(self.platform)

    def put(self, array: Array, *, donatable: bool = False) -> PluginBuffer:
        """Copies an array to the device; see `Device.put`."""
        dims = (ctypes.c_int64 * array.ndim)(*array.shape)
        sent = self._plugin.call(
            "Client_BufferFromHostBuffer",
            client=self._client.value,
            data=array.ctypes.data,
            type=dtype_of(array).pjrt,
            dims=dims,
            num_dims=array.ndim,
            host_buffer_semantics=pjrt_abi.IMMUTABLE_UNTIL_TRANSFER_COMPLETES,
            device=self._device,
        )
        buffer = PluginBuffer(self._plugin, self._client, sent.buffer)
        self._plugin.await_event(sent.done_with_host_buffer, "copying an array to the device")
        buffer.await_ready()
        return buffer

    def compile(self, program: bytes, results: Sequence[TensorSpec]) -> PluginExecutable:
        """Compiles portable StableHLO; see `Device.compile`."""
        options = compile_options(self._id)
        source = pjrt_abi.make(
            pjrt_abi.Program, code=program, code_size=len(program), format=b"mlir", format_size=len(b"mlir")
        )
        compiled = self._plugin.call(
            "Client_Compile",
            client=self._client.value,
            program=ctypes.pointer(source),
            compile_options=options,
            compile_options_size=len(options),
        )
        return PluginExecutable(self._plugin, self._client, compiled.executable, results)

    def load(self, serialized: bytes, results: Sequence[TensorSpec]) -> PluginExecutable:
        """Loads an executable; see `Device.load`. One that jaxlib serialized is taken too."""
        plain = strip_ifrt_header(serialized)
        loaded = self._plugin.call(
            "Executable_DeserializeAndLoad",
            client=self._client.value,
            serialized_executable=plain,
            serialized_executable_size=len(plain),
        )
        return PluginExecutable(self._plugin, self._client, loaded.loaded_executable, results)

    def memory_stats(self) -> dict[str, int]:
        """Returns what the plugin says of the device's memory; see `Device.memory_stats`."""
        try:
            stats = self._plugin.call("Device_MemoryStats", device=self._device)
        except DeviceError:
            # The header allows a plugin to keep no figures, and to say so with an error.
            return {}
        known = {name: getattr(stats, name) for name in _MEMORY_STATS if getattr(stats, f"{name}_is_set")}
        return {"bytes_in_use": stats.bytes_in_use, **known}


def _create_client(plugin: Plugin) -> int:
    try:
        client: int = plugin.call("Client_Create").client
    except DeviceError as error:
        hint = "Is there such a device in this machine, and does no other process use it?"
        raise DeviceError(error.what, hint=hint) from None
    return client


def _compiler(plugin: Plugin, platform: str, platform_version: str) -> dict[str, str]:
    build = compiler_build(platform_version)
    if platform == "tpu":
        return {"platform_version": build}
    # Other plugins may give no more than `cpu` for a version.
    return {"plugin": plugin.name, "pjrt": ".".join(map(str, plugin.version)), "platform_version": build}


def _host(platform: str) -> str:
    if platform != "cpu":
        return ""
    from tpuc.runtime.host import host_fingerprint

    return host_fingerprint()


def compile_options(device_id: int) -> bytes:
    """Encodes the options to compile a program for one device: one replica, one partition.

    Field numbers: openxla/xla, `xla/pjrt/proto/compile_options.proto` (CompileOptionsProto 3: executable_build_options;
    ExecutableBuildOptionsProto 1: device_ordinal, 4: num_replicas, 5: num_partitions, 9: device_assignment) and
    `xla/xla_data.proto` (DeviceAssignmentProto 1: replica_count, 2: computation_count, 3: computation_devices, whose
    field 1 is replica_device_ids).

    Args:
        device_id: The device's PJRT id.
    """
    devices = _message(3, _message(1, _varint(device_id)))
    assignment = _varint_field(1, 1) + _varint_field(2, 1) + devices
    build = _varint_field(1, -1) + _varint_field(4, 1) + _varint_field(5, 1) + _message(9, assignment)
    return _message(3, build)


def _varint(value: int) -> bytes:
    # Protocol buffers write negative numbers as if they were unsigned, of 64 bits.
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _varint_field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


_IFRT_RUNTIME_NAME = b"\x12\x09pjrt_ifrt"


def strip_ifrt_header(serialized: bytes) -> bytes:
    """Returns what the PJRT C API serialized, without the header that jaxlib puts before it.

    jaxlib writes the length of a message as a varint, the message (SerializedXlaExecutableMetadata, whose field 2
    names the runtime), and then the plugin's own bytes. Source: openxla/xla, `xla/python/pjrt_ifrt/pjrt_executable.cc`.
    """
    length, start = _read_varint(serialized)
    header = serialized[start : start + length]
    if len(header) == length and _IFRT_RUNTIME_NAME in header:
        return serialized[start + length :]
    return serialized


def _read_varint(data: bytes) -> tuple[int, int]:
    value = 0
    for position, byte in enumerate(data[:5]):
        value |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return value, position + 1
    return 0, 0
