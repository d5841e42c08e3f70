"""Tests of the PJRT C API client: errors, what jaxlib serialized, and libtpu. test_device.py has the rest."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path

import numpy as np
import pytest
from jaxlib import xla_client

from tpuc.runtime import pjrt
from tpuc.runtime.device import Device, open_device
from tpuc.runtime.errors import DeviceError, DeviceMemoryError
from tpuc.runtime.pjrt import PluginDevice, compile_options, load_plugin, strip_ifrt_header
from tpuc.runtime.spec import TensorSpec

from .sample_artifacts import plugin_device_name, portable

NEGATE = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.negate %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
RESULT = (TensorSpec.parse("f32[4]"),)


def plugin_path() -> str:
    return plugin_device_name().removeprefix("plugin:")


def test_it_says_which_build_it_is(plugin: Device) -> None:
    assert plugin.compiler == {"plugin": "xla_cpu_pjrt.so", "pjrt": "0.81", "platform_version": "cpu"}


@pytest.mark.parametrize("device_id", [0, 3, 1000])
def test_compile_options_are_what_xla_reads(device_id: int) -> None:
    encoded = compile_options(device_id)
    read = xla_client.CompileOptions.ParseFromString(encoded)
    assert (read.num_replicas, read.num_partitions) == (1, 1)
    expected = xla_client.DeviceAssignment.create(np.array([[device_id]]))
    assert read.device_assignment.serialize() == expected.serialize()
    # XLA keeps the fields that it knows, so every field here is one of them.
    assert read.SerializeAsString() == encoded


class TestJaxlibsSerialization:
    def test_the_header_is_cut_off(self, cpu: Device) -> None:
        serialized = cpu.compile(portable(NEGATE), RESULT).serialize()
        plain = strip_ifrt_header(serialized)
        assert serialized.endswith(plain)
        assert 0 < len(plain) < len(serialized)
        assert strip_ifrt_header(plain) == plain

    @pytest.mark.parametrize("data", [b"", b"\xff" * 20, b"\x05abc", b"plain bytes"])
    def test_other_bytes_are_left_alone(self, data: bytes) -> None:
        assert strip_ifrt_header(data) == data

    def test_what_jaxlib_serialized_through_a_plugin_is_loaded(self, plugin: Device, tmp_path: Path) -> None:
        # This is how an executable for a TPU comes about: jaxlib compiles and serializes it, and the C API loads it.
        (tmp_path / "program").write_bytes(portable(NEGATE))
        program = textwrap.dedent(
            f"""
            from pathlib import Path
            from jaxlib import xla_client
            xla_client.load_pjrt_plugin_dynamically("other", {plugin_path()!r})
            xla_client.initialize_pjrt_plugin("other")
            client = xla_client.make_c_api_client("other")
            devices = xla_client.DeviceList(tuple(client.devices()[:1]))
            program = Path({str(tmp_path / "program")!r}).read_bytes()
            executable = client.compile_and_load(program, devices, xla_client.CompileOptions())
            Path({str(tmp_path / "executable")!r}).write_bytes(executable.serialize())
            """
        )
        subprocess.run([sys.executable, "-c", program], check=True)
        serialized = (tmp_path / "executable").read_bytes()
        assert strip_ifrt_header(serialized) != serialized
        (result,) = plugin.load(serialized, RESULT).run([plugin.put(np.arange(4, dtype=np.float32))])
        np.testing.assert_array_equal(result.to_numpy(), [0, -1, -2, -3])


class TestErrors:
    def test_they_carry_the_plugins_code_and_message(self, plugin: Device) -> None:
        with pytest.raises(
            DeviceError, match=r"xla_cpu_pjrt.so, LoadedExecutable_Execute: INVALID_ARGUMENT: .*size 12"
        ):
            plugin.compile(portable(NEGATE), RESULT).run([plugin.put(np.zeros(3, np.float32))])

    def test_too_little_memory_is_its_own(self, plugin: Device) -> None:
        # A program whose temporaries and result take more than any machine has.
        text = """
        func.func @main(%x: tensor<f32>) -> tensor<1099511627776x4xf32> {
          %0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<1099511627776x4xf32>
          return %0 : tensor<1099511627776x4xf32>
        }
        """

        def compile_and_run() -> None:
            program = plugin.compile(portable(text), [TensorSpec.parse("f32[1099511627776,4]")])
            program.run([plugin.put(np.zeros((), np.float32))])

        with pytest.raises(DeviceMemoryError, match="RESOURCE_EXHAUSTED"):
            compile_and_run()

    def test_a_function_that_the_plugin_does_not_have(self, monkeypatch: pytest.MonkeyPatch) -> None:
        old = load_plugin(plugin_path())
        monkeypatch.setattr(old, "_functions", {})
        monkeypatch.setattr(old, "_api_size", 64)
        with pytest.raises(DeviceError, match=r"xla_cpu_pjrt.so is too old: it has no Client_Create"):
            old.call("Client_Create")

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("", "it has no GetPjrtApi"),
            (
                "#include <stddef.h>\n"
                "static struct { size_t size; void *extension; size_t version_size; void *version_extension;"
                " int major, minor; } api = { 1000, 0, 24, 0, 7, 3 };\n"
                "void *GetPjrtApi(void) { return &api; }\n",
                "speaks version 7.3 of the PJRT C API; version 0 is needed",
            ),
        ],
    )
    def test_libraries_that_are_no_plugin(self, tmp_path: Path, source: str, message: str) -> None:
        (tmp_path / "library.c").write_text(source)
        path = tmp_path / "library.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", path, tmp_path / "library.c"], check=True)
        with pytest.raises(DeviceError, match=message) as caught:
            open_device(f"plugin:{path}")
        assert caught.value.where == str(path)

    def test_a_file_that_is_no_library(self, tmp_path: Path) -> None:
        (tmp_path / "text.so").write_text("text")
        with pytest.raises(DeviceError, match="the plugin cannot be loaded"):
            open_device(f"plugin:{tmp_path / 'text.so'}")

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(DeviceError, match="no such plugin"):
            open_device(f"plugin:{tmp_path / 'none.so'}")


class TestLifetime:
    def test_a_client_lives_as_long_as_its_buffers(self) -> None:
        device = PluginDevice(plugin_path())
        buffer = device.put(np.arange(4, dtype=np.float32))
        client = weakref.ref(device._client)
        del device
        gc.collect()
        assert client() is not None
        np.testing.assert_array_equal(buffer.to_numpy(), np.arange(4))
        buffer.delete()
        gc.collect()
        assert client() is None

    def test_every_handle_is_given_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plugin = load_plugin(plugin_path())
        balance: dict[str, int] = {}
        call = plugin.call

        def counting(function: str, **arguments: object) -> object:
            result = call(function, **arguments)
            for kind, made, freed in (
                ("client", "Client_Create", "Client_Destroy"),
                ("executable", "LoadedExecutable_GetExecutable", "Executable_Destroy"),
                ("loaded", "Client_Compile", "LoadedExecutable_Destroy"),
                ("event", "Buffer_ReadyEvent", ""),
            ):
                balance[kind] = balance.get(kind, 0) + (function == made) - (function == freed)
            balance["buffer"] = balance.get("buffer", 0) + (function == "Client_BufferFromHostBuffer")
            balance["buffer"] += function == "LoadedExecutable_Execute"
            balance["buffer"] -= function == "Buffer_Destroy"
            balance["event"] += function in (
                "Client_BufferFromHostBuffer",
                "Buffer_ToHostBuffer",
                "LoadedExecutable_Execute",
            )
            balance["event"] -= function == "Event_Destroy"
            return result

        monkeypatch.setattr(plugin, "call", counting)
        device = PluginDevice(plugin_path())
        program = device.compile(portable(NEGATE), RESULT)
        for _ in range(3):
            program.run([device.put(np.zeros(4, np.float32))])[0].to_numpy()
            with pytest.raises(DeviceError):
                program.run([device.put(np.zeros(3, np.float32))])
        del device, program
        gc.collect()
        assert balance == dict.fromkeys(("client", "executable", "loaded", "event", "buffer"), 0)


class TestLibtpu:
    def test_the_installed_one_is_found(self) -> None:
        assert Path(pjrt.find_libtpu()).name == "libtpu.so"
        assert Path(pjrt.find_libtpu()).is_file()

    def test_without_the_package_the_error_says_what_to_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(DeviceError, match=r"(?s)libtpu is not installed.*pip install libtpu"):
            open_device("tpu")

    @pytest.mark.skipif(
        bool(list(Path("/dev").glob("accel*"))) or Path("/dev/vfio").exists(), reason="this machine may have a TPU"
    )
    def test_without_a_tpu_the_error_says_so(self) -> None:
        # In a process of its own: libtpu stays loaded, and writes to stderr.
        program = textwrap.dedent(
            """
            from tpuc.runtime.device import open_device
            from tpuc.runtime.errors import DeviceError
            try:
                open_device("tpu")
            except DeviceError as error:
                print(error)
            """
        )
        environment = os.environ | {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "libtpu.so, Client_Create: NOT_FOUND: TPU initialization failed" in done.stdout
        assert "Is there such a device in this machine" in done.stdout

    def test_executables_for_a_tpu_are_what_its_c_api_makes(self, tmp_path: Path) -> None:
        """What jaxlib serializes for a TPU is, without jaxlib's header, what libtpu itself serializes.

        No TPU can load it here, so this is as far as the way of an executable to a TPU can be followed.
        """
        (tmp_path / "program").write_bytes(portable(NEGATE))
        serialized, facts = {}, {}
        for way in ("capi", "jaxlib"):
            command = [sys.executable, "-m", "runtime.libtpu_probe", way, "program", way]
            environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
            )
            assert done.returncode == 0, done.stderr
            serialized[way] = (tmp_path / way).read_bytes()
            facts[way] = json.loads(done.stdout)
        assert facts["capi"] == {"outputs": 1, "argument": 512}
        assert strip_ifrt_header(serialized["capi"]) == serialized["capi"]
        plain = strip_ifrt_header(serialized["jaxlib"])
        assert plain != serialized["jaxlib"]
        # They start with the same description of the compiler; the bytes of the program differ from run to run.
        assert plain[:64] == serialized["capi"][:64]

    def test_every_chip_has_a_name(self) -> None:
        assert set(pjrt.TARGETS.values()) == {"v2", "v3", "v4", "v5e", "v5p", "v6e", "v7x"}
