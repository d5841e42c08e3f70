"""The process that compiles with XLA: `python -m tpuc.backend.xla_worker`, for libtpu or for the CPU.

libtpu may abort, and keeps what it allocates, so it compiles where neither matters. Several of these may run side
by side: `tpuc.backend.compile` sets the variables that libtpu wants before it is loaded.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jaxlib.version
import numpy as np
from jaxlib import _jax, xla_client
from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.errors import BackendError
from tpuc.runtime.cpu import register_custom_calls
from tpuc.runtime.host import host_fingerprint
from tpuc.worker import Blobs, Fields, serve

#: Has libtpu keep the code of equal operations once, and call it. Off unless asked for; TorchTPU asks for it too. No
#: estimate changes, and SDXL's UNet takes 71 MiB of code in place of 197.
_SHARE_CODE = "xla_tpu_enable_deduplicated_calls"
#: What a libtpu says that is too old to have an option.
_NO_OPTION = "No such compile option"
#: What libtpu says where a pass of its own left a program that its verifier refuses.
_OWN_FAULT = "INTERNAL: during context ["
#: The pass that does so, on a softmax between convolutions of one image; what it does is good for speed alone.
_FAULTY_PASS = "space-to-batch-converter"

# jaxlib's types do not tell of the methods used here.
_client: Any = xla_client


def compile_tpu(fields: Fields, blobs: Blobs) -> tuple[Fields, Blobs]:
    """Compiles for a TPU topology, with no TPU: through libtpu's compile-only client."""
    _load_libtpu(fields["libtpu"])
    topology = _client.make_tfrt_tpu_c_api_device_topology(
        f"{fields['topology']}:1x1x1", chips_per_host_bounds=(1, 1, 1), num_slices=1
    )
    device = topology._make_compile_only_devices()[0]
    options: dict[str, str] = {_SHARE_CODE: "ENABLED"} if fields["share_code"] else {}
    disabled = ""
    while True:
        try:
            executable = _compile(device.client.compile, device, blobs["program"], **options)
        except BackendError as error:
            if _NO_OPTION in str(error) and _SHARE_CODE in options:
                del options[_SHARE_CODE]
            elif _OWN_FAULT in str(error) and not disabled:
                options["xla_disable_hlo_passes"] = disabled = _FAULTY_PASS
            else:
                raise
        else:
            return _answer(executable, topology.platform_version, host="", disabled=disabled)


@cache
def _load_libtpu(path: str) -> None:
    # A process can load one, once.
    _client.load_pjrt_plugin_dynamically("tpu", path)
    _client.initialize_pjrt_plugin("tpu")


def compile_cpu(fields: Fields, blobs: Blobs) -> tuple[Fields, Blobs]:
    """Compiles for the CPU of this machine."""
    register_custom_calls(blobs["program"])
    client = _client.make_cpu_client()
    executable = _compile(client.compile_and_load, client.devices()[0], blobs["program"])
    return _answer(executable, client.platform_version, host=host_fingerprint())


def _compile(compile_function: Any, device: Any, program: bytes, **options_by_name: str) -> Any:
    options = xla_client.CompileOptions()
    options.env_option_overrides = list(options_by_name.items())
    options.device_assignment = xla_client.DeviceAssignment.create(np.array([[0]]))
    with mlir.make_context() as context:
        try:
            module = mlir.parse(program, context)
            return compile_function(module, xla_client.DeviceList((device,)), options)
        except (_jax.JaxRuntimeError, ir.MLIRError) as error:
            raise BackendError(str(error)) from error


def _answer(executable: Any, platform_version: str, *, host: str, disabled: str = "") -> tuple[Fields, Blobs]:
    stats = executable.get_compiled_memory_stats()
    memory = {
        kind: getattr(stats, f"{name}_size_in_bytes")
        for kind, name in {
            "argument": "argument",
            "output": "output",
            "alias": "alias",
            "temp": "temp",
            "code": "generated_code",
        }.items()
    }
    return (
        {
            "memory": memory,
            "platform_version": platform_version,
            "jaxlib": jaxlib.version.__version__,
            "host": host,
            "disabled_pass": disabled,
        },
        {"executable": executable.serialize(), "hlo": executable.hlo_modules()[0].to_string().encode()},
    )


if __name__ == "__main__":
    serve({"compile_tpu": compile_tpu, "compile_cpu": compile_cpu})
