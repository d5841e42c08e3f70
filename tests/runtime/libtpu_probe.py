"""Compiles a program for one v5e chip, without a TPU, through libtpu's C API or through jaxlib; run by test_pjrt.py.

usage: libtpu_probe.py (capi | jaxlib) PROGRAM OUTPUT

The C API is reached through the runtime's own structures, to which the two functions that make an executable without
a device are added: so that they meet a real libtpu as far as that is possible without a TPU.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tpuc.runtime import pjrt, pjrt_abi

TOPOLOGY = "v5e:1x1x1"
ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}

_NamedValue = pjrt_abi._struct(
    "NamedValue",
    ("name", ctypes.c_char_p),
    ("name_size", ctypes.c_size_t),
    ("type", ctypes.c_int),
    ("value", ctypes.c_void_p),
    ("value_size", ctypes.c_size_t),
)
_INT64, _INT64_LIST = 1, 2

_MORE_ARGUMENTS = {
    "TopologyDescription_Create": (
        ("topology_name", ctypes.c_char_p),
        ("topology_name_size", ctypes.c_size_t),
        ("create_options", ctypes.c_void_p),
        ("num_options", ctypes.c_size_t),
        ("topology", ctypes.c_void_p),
    ),
    "Compile": (
        ("topology", ctypes.c_void_p),
        ("program", ctypes.POINTER(pjrt_abi.Program)),
        ("compile_options", ctypes.c_char_p),
        ("compile_options_size", ctypes.c_size_t),
        ("client", ctypes.c_void_p),
        ("executable", ctypes.c_void_p),
    ),
}


def named_value(name: bytes, kind: int, value: int, size: int) -> Any:
    return pjrt_abi.make(_NamedValue, name=name, name_size=len(name), type=kind, value=value, value_size=size)


def compile_by_capi(program: bytes) -> tuple[bytes, dict[str, int]]:
    pjrt_abi.ARGUMENTS = {**pjrt_abi.ARGUMENTS, **_MORE_ARGUMENTS}
    plugin = pjrt.load_plugin(pjrt.find_libtpu())
    bounds = (ctypes.c_int64 * 3)(1, 1, 1)
    options = (_NamedValue * 2)(
        named_value(b"chips_per_host_bounds", _INT64_LIST, ctypes.addressof(bounds), 3),
        named_value(b"num_slices", _INT64, 1, 1),
    )
    topology = plugin.call(
        "TopologyDescription_Create",
        topology_name=TOPOLOGY.encode(),
        topology_name_size=len(TOPOLOGY),
        create_options=ctypes.addressof(options),
        num_options=len(options),
    ).topology
    source = pjrt_abi.make(pjrt_abi.Program, code=program, code_size=len(program), format=b"mlir", format_size=4)
    encoded = pjrt.compile_options(0)
    executable = plugin.call(
        "Compile",
        topology=topology,
        program=ctypes.pointer(source),
        compile_options=encoded,
        compile_options_size=len(encoded),
    ).executable
    outputs = plugin.call("Executable_NumOutputs", executable=executable).num_outputs
    memory = plugin.call("Executable_GetCompiledMemoryStats", executable=executable)
    found = plugin.call("Executable_Serialize", executable=executable)
    serialized = ctypes.string_at(found.serialized_bytes, found.serialized_bytes_size)
    found.serialized_executable_deleter(found.serialized_executable)
    plugin.call("Executable_Destroy", executable=executable)
    return serialized, {"outputs": outputs, "argument": memory.argument_size_in_bytes}


def compile_by_jaxlib(program: bytes) -> tuple[bytes, dict[str, int]]:
    from jaxlib import xla_client
    from jaxlib.mlir.dialects import stablehlo

    from .sample_artifacts import make_context

    xla_client.load_pjrt_plugin_dynamically("tpu", pjrt.find_libtpu())
    xla_client.initialize_pjrt_plugin("tpu")
    topology: Any = xla_client.make_tfrt_tpu_c_api_device_topology(
        TOPOLOGY, chips_per_host_bounds=(1, 1, 1), num_slices=1
    )
    (device,) = topology._make_compile_only_devices()
    options = xla_client.CompileOptions()
    options.device_assignment = xla_client.DeviceAssignment.create(np.array([[0]]))
    module = stablehlo.deserialize_portable_artifact(make_context(), program)
    executable = device.client.compile(module, xla_client.DeviceList((device,)), options)
    return executable.serialize(), {}


if __name__ == "__main__":
    os.environ.update(ENVIRONMENT)
    compiled, facts = {"capi": compile_by_capi, "jaxlib": compile_by_jaxlib}[sys.argv[1]](
        Path(sys.argv[2]).read_bytes()
    )
    Path(sys.argv[3]).write_bytes(compiled)
    print(json.dumps(facts))
