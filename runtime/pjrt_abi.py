"""The PJRT C API as ctypes structures: what `pjrt.py` needs of it, and no more.

Source: openxla/xla, `xla/pjrt/c/pjrt_c_api.h`, version 0.81. Names are those of the header without `PJRT_` before
them and `_Args` after them.

Within major version 0 the API only grows at the ends: functions are appended to the table, and fields to the
structures (`xla/pjrt/c/CHANGELOG.md`). Each structure says its own size; a plugin leaves alone what it does not know,
and refuses one that is smaller than its own. So the structures here end with spare room: a newer plugin finds its
newer fields there, zero, which stands for "not given" throughout the API.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import c_bool, c_byte, c_char_p, c_int, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Any, TypeAlias

#: The major version of the API that is spoken; a plugin of another is refused.
MAJOR_VERSION = 0

#: PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes.
IMMUTABLE_UNTIL_TRANSFER_COMPLETES = 1
#: PJRT_Buffer_MemoryLayout_Type_Tiled.
TILED = 0

#: PJRT_Error_Code.
ERROR_CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)

Field: TypeAlias = tuple[str, Any]

_SPARE_BYTES = 128
_POINTER_BYTES = ctypes.sizeof(c_void_p)


def _struct(name: str, *fields: Field, spare: int = 0) -> type[ctypes.Structure]:
    """Makes a structure that starts with its own size, as all of the API's do."""
    room = [("spare", c_byte * spare)] if spare else []
    layout = [("struct_size", c_size_t), ("extension_start", c_void_p), *fields, *room]
    return type(name, (ctypes.Structure,), {"_fields_": layout})


def make(kind: type[ctypes.Structure], **values: Any) -> Any:
    """Makes a structure and sets its size and some fields; the others are zero."""
    return kind(struct_size=ctypes.sizeof(kind), **values)


#: PJRT_Api_Version.
ApiVersion = _struct("ApiVersion", ("major_version", c_int), ("minor_version", c_int))

#: PJRT_Program.
Program = _struct(
    "Program",
    ("code", c_char_p),
    ("code_size", c_size_t),
    ("format", c_char_p),
    ("format_size", c_size_t),
    spare=_SPARE_BYTES,
)

#: PJRT_Buffer_MemoryLayout_Tiled.
TiledLayout = _struct(
    "TiledLayout",
    ("minor_to_major", ctypes.POINTER(c_int64)),
    ("minor_to_major_size", c_size_t),
    ("tile_dims", c_void_p),
    ("tile_dim_sizes", c_void_p),
    ("num_tiles", c_size_t),
)

#: PJRT_Buffer_MemoryLayout. Where `tiled` stands, the header has a union with a smaller structure for strides.
MemoryLayout = _struct("MemoryLayout", ("tiled", TiledLayout), ("type", c_int), spare=_SPARE_BYTES)

#: PJRT_ExecuteOptions.
ExecuteOptions = _struct(
    "ExecuteOptions",
    ("send_callbacks", c_void_p),
    ("recv_callbacks", c_void_p),
    ("num_send_ops", c_size_t),
    ("num_recv_ops", c_size_t),
    ("launch_id", c_int),
    ("non_donatable_input_indices", c_void_p),
    ("num_non_donatable_input_indices", c_size_t),
    ("context", c_void_p),
    ("call_location", c_char_p),
    ("num_tasks", c_size_t),
    ("task_ids", c_void_p),
    ("incarnation_ids", c_void_p),
    spare=_SPARE_BYTES,
)

#: The fields of the arguments of each function that is used.
ARGUMENTS: Mapping[str, tuple[Field, ...]] = {
    "Error_Destroy": (("error", c_void_p),),
    "Error_Message": (("error", c_void_p), ("message", c_void_p), ("message_size", c_size_t)),
    "Error_GetCode": (("error", c_void_p), ("code", c_int)),
    "Plugin_Initialize": (),
    "Event_Destroy": (("event", c_void_p),),
    "Event_Await": (("event", c_void_p),),
    "Client_Create": (
        ("create_options", c_void_p),
        ("num_options", c_size_t),
        ("kv_get_callback", c_void_p),
        ("kv_get_user_arg", c_void_p),
        ("kv_put_callback", c_void_p),
        ("kv_put_user_arg", c_void_p),
        ("client", c_void_p),
        ("kv_try_get_callback", c_void_p),
        ("kv_try_get_user_arg", c_void_p),
    ),
    "Client_Destroy": (("client", c_void_p),),
    "Client_PlatformName": (("client", c_void_p), ("platform_name", c_void_p), ("platform_name_size", c_size_t)),
    "Client_PlatformVersion": (
        ("client", c_void_p),
        ("platform_version", c_void_p),
        ("platform_version_size", c_size_t),
    ),
    "Client_AddressableDevices": (
        ("client", c_void_p),
        ("addressable_devices", ctypes.POINTER(c_void_p)),
        ("num_addressable_devices", c_size_t),
    ),
    "Device_GetDescription": (("device", c_void_p), ("device_description", c_void_p)),
    "DeviceDescription_Id": (("device_description", c_void_p), ("id", c_int)),
    "DeviceDescription_Kind": (
        ("device_description", c_void_p),
        ("device_kind", c_void_p),
        ("device_kind_size", c_size_t),
    ),
    "Device_MemoryStats": (
        ("device", c_void_p),
        ("bytes_in_use", c_int64),
        ("peak_bytes_in_use", c_int64),
        ("peak_bytes_in_use_is_set", c_bool),
        ("num_allocs", c_int64),
        ("num_allocs_is_set", c_bool),
        ("largest_alloc_size", c_int64),
        ("largest_alloc_size_is_set", c_bool),
        ("bytes_limit", c_int64),
        ("bytes_limit_is_set", c_bool),
        ("bytes_reserved", c_int64),
        ("bytes_reserved_is_set", c_bool),
        ("peak_bytes_reserved", c_int64),
        ("peak_bytes_reserved_is_set", c_bool),
        ("bytes_reservable_limit", c_int64),
        ("bytes_reservable_limit_is_set", c_bool),
        ("largest_free_block_bytes", c_int64),
        ("largest_free_block_bytes_is_set", c_bool),
        ("pool_bytes", c_int64),
        ("pool_bytes_is_set", c_bool),
        ("peak_pool_bytes", c_int64),
        ("peak_pool_bytes_is_set", c_bool),
    ),
    "Client_Compile": (
        ("client", c_void_p),
        ("program", ctypes.POINTER(Program)),
        ("compile_options", c_char_p),
        ("compile_options_size", c_size_t),
        ("executable", c_void_p),
    ),
    "Client_BufferFromHostBuffer": (
        ("client", c_void_p),
        ("data", c_void_p),
        ("type", c_int),
        ("dims", ctypes.POINTER(c_int64)),
        ("num_dims", c_size_t),
        ("byte_strides", c_void_p),
        ("num_byte_strides", c_size_t),
        ("host_buffer_semantics", c_int),
        ("device", c_void_p),
        ("memory", c_void_p),
        ("device_layout", c_void_p),
        ("done_with_host_buffer", c_void_p),
        ("buffer", c_void_p),
    ),
    "Executable_Destroy": (("executable", c_void_p),),
    "Executable_NumOutputs": (("executable", c_void_p), ("num_outputs", c_size_t)),
    "Executable_Serialize": (
        ("executable", c_void_p),
        ("serialized_bytes", c_void_p),
        ("serialized_bytes_size", c_size_t),
        ("serialized_executable", c_void_p),
        ("serialized_executable_deleter", ctypes.CFUNCTYPE(None, c_void_p)),
    ),
    "Executable_GetCompiledMemoryStats": (
        ("executable", c_void_p),
        ("generated_code_size_in_bytes", c_int64),
        ("argument_size_in_bytes", c_int64),
        ("output_size_in_bytes", c_int64),
        ("alias_size_in_bytes", c_int64),
        ("temp_size_in_bytes", c_int64),
        ("host_generated_code_size_in_bytes", c_int64),
        ("host_argument_size_in_bytes", c_int64),
        ("host_output_size_in_bytes", c_int64),
        ("host_alias_size_in_bytes", c_int64),
        ("host_temp_size_in_bytes", c_int64),
        ("peak_memory_in_bytes", c_int64),
    ),
    "Executable_DeserializeAndLoad": (
        ("client", c_void_p),
        ("serialized_executable", c_char_p),
        ("serialized_executable_size", c_size_t),
        ("loaded_executable", c_void_p),
        ("overridden_serialized_compile_options", c_char_p),
        ("overridden_serialized_compile_options_size", c_size_t),
    ),
    "LoadedExecutable_Destroy": (("executable", c_void_p),),
    "LoadedExecutable_GetExecutable": (("loaded_executable", c_void_p), ("executable", c_void_p)),
    "LoadedExecutable_Execute": (
        ("executable", c_void_p),
        ("options", ctypes.POINTER(ExecuteOptions)),
        ("argument_lists", c_void_p),
        ("num_devices", c_size_t),
        ("num_args", c_size_t),
        ("output_lists", c_void_p),
        ("device_complete_events", c_void_p),
        ("execute_device", c_void_p),
    ),
    "Buffer_Destroy": (("buffer", c_void_p),),
    "Buffer_ElementType": (("buffer", c_void_p), ("type", c_int)),
    "Buffer_Dimensions": (("buffer", c_void_p), ("dims", ctypes.POINTER(c_int64)), ("num_dims", c_size_t)),
    "Buffer_IsDeleted": (("buffer", c_void_p), ("is_deleted", c_bool)),
    "Buffer_ToHostBuffer": (
        ("src", c_void_p),
        ("host_layout", ctypes.POINTER(MemoryLayout)),
        ("dst", c_void_p),
        ("dst_size", c_size_t),
        ("event", c_void_p),
    ),
    "Buffer_ReadyEvent": (("buffer", c_void_p), ("event", c_void_p)),
}

#: The functions in PJRT_Api, in order, up to the last one that is used. Each takes a pointer to its arguments.
FUNCTIONS = (
    "Error_Destroy",
    "Error_Message",
    "Error_GetCode",
    "Plugin_Initialize",
    "Plugin_Attributes",
    "Event_Destroy",
    "Event_IsReady",
    "Event_Error",
    "Event_Await",
    "Event_OnReady",
    "Client_Create",
    "Client_Destroy",
    "Client_PlatformName",
    "Client_ProcessIndex",
    "Client_PlatformVersion",
    "Client_Devices",
    "Client_AddressableDevices",
    "Client_LookupDevice",
    "Client_LookupAddressableDevice",
    "Client_AddressableMemories",
    "Client_Compile",
    "Client_DefaultDeviceAssignment",
    "Client_BufferFromHostBuffer",
    "DeviceDescription_Id",
    "DeviceDescription_ProcessIndex",
    "DeviceDescription_Attributes",
    "DeviceDescription_Kind",
    "DeviceDescription_DebugString",
    "DeviceDescription_ToString",
    "Device_GetDescription",
    "Device_IsAddressable",
    "Device_LocalHardwareId",
    "Device_AddressableMemories",
    "Device_DefaultMemory",
    "Device_MemoryStats",
    "Memory_Id",
    "Memory_Kind",
    "Memory_DebugString",
    "Memory_ToString",
    "Memory_AddressableByDevices",
    "Executable_Destroy",
    "Executable_Name",
    "Executable_NumReplicas",
    "Executable_NumPartitions",
    "Executable_NumOutputs",
    "Executable_SizeOfGeneratedCodeInBytes",
    "Executable_GetCostAnalysis",
    "Executable_OutputMemoryKinds",
    "Executable_OptimizedProgram",
    "Executable_Serialize",
    "LoadedExecutable_Destroy",
    "LoadedExecutable_GetExecutable",
    "LoadedExecutable_AddressableDevices",
    "LoadedExecutable_Delete",
    "LoadedExecutable_IsDeleted",
    "LoadedExecutable_Execute",
    "Executable_DeserializeAndLoad",
    "LoadedExecutable_Fingerprint",
    "Buffer_Destroy",
    "Buffer_ElementType",
    "Buffer_Dimensions",
    "Buffer_UnpaddedDimensions",
    "Buffer_DynamicDimensionIndices",
    "Buffer_GetMemoryLayout",
    "Buffer_OnDeviceSizeInBytes",
    "Buffer_Device",
    "Buffer_Memory",
    "Buffer_Delete",
    "Buffer_IsDeleted",
    "Buffer_CopyToDevice",
    "Buffer_ToHostBuffer",
    "Buffer_IsOnCpu",
    "Buffer_ReadyEvent",
    "Buffer_UnsafePointer",
    "Buffer_IncreaseExternalReferenceCount",
    "Buffer_DecreaseExternalReferenceCount",
    "Buffer_OpaqueDeviceMemoryDataPointer",
    "CopyToDeviceStream_Destroy",
    "CopyToDeviceStream_AddChunk",
    "CopyToDeviceStream_TotalBytes",
    "CopyToDeviceStream_GranuleSize",
    "CopyToDeviceStream_CurrentBytes",
    "TopologyDescription_Create",
    "TopologyDescription_Destroy",
    "TopologyDescription_PlatformName",
    "TopologyDescription_PlatformVersion",
    "TopologyDescription_GetDeviceDescriptions",
    "TopologyDescription_Serialize",
    "TopologyDescription_Attributes",
    "Compile",
    "Executable_OutputElementTypes",
    "Executable_OutputDimensions",
    "Buffer_CopyToMemory",
    "Client_CreateViewOfDeviceBuffer",
    "Executable_Fingerprint",
    "Client_TopologyDescription",
    "Executable_GetCompiledMemoryStats",
)


@cache
def arguments(function: str) -> type[ctypes.Structure]:
    """The structure that a function takes."""
    return _struct(function, *ARGUMENTS[function], spare=_SPARE_BYTES)


#: PJRT_Api: its size, the version, then a pointer to each function.
Api = _struct("Api", ("pjrt_api_version", ApiVersion), *((name, c_void_p) for name in FUNCTIONS))


def function_end(function: str) -> int:
    """The size, in bytes, of the shortest PJRT_Api that has a function."""
    return int(getattr(Api, function).offset) + _POINTER_BYTES
