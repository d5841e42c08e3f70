"""Tests of what every kind of device must do, and of opening them.

The `device` fixture is the cpu inside jaxlib and a real PJRT plugin in turn.
"""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tpuc.runtime.device import Device, LoadedExecutable, compiler_build, is_same_compiler, open_device
from tpuc.runtime.dtypes import DTYPES
from tpuc.runtime.errors import DeviceError
from tpuc.runtime.spec import TensorSpec

from .sample_artifacts import portable, sample_array

MLIR_TYPES = {"u8": "ui8", "u16": "ui16", "u32": "ui32", "u64": "ui64", "bool": "i1"} | {
    "c64": "complex<f32>",
    "c128": "complex<f64>",
    "f8e4m3fn": "f8E4M3FN",
    "f8e5m2": "f8E5M2",
}

# The first result goes into the memory of the first argument; the others are the argument itself, and itself again.
ADD = """
func.func @main(%s: tensor<8xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<8xf32>)
    -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %0 = stablehlo.add %s, %x : tensor<8xf32>
  return %0, %x, %x : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}
"""
ADD_RESULTS = tuple(TensorSpec.parse("f32[8]") for _ in range(3))


def reverse(device: Device, dtype: str, shape: tuple[int, ...]) -> LoadedExecutable:
    """Compiles a program that reverses the last dimension."""
    kind = f"tensor<{''.join(f'{dim}x' for dim in shape)}{MLIR_TYPES.get(dtype, dtype)}>"
    dims = f"[{len(shape) - 1}]" if shape else "[]"
    body = f"%0 = stablehlo.reverse %x, dims = {dims} : {kind}\n return %0 : {kind}"
    text = f"func.func @main(%x: {kind}) -> {kind} {{ {body} }}"
    return device.compile(portable(text), [TensorSpec(name="y", dtype=dtype, dims=shape)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_goes_there_and_back(device: Device, dtype: str) -> None:
    array = sample_array(DTYPES[dtype].numpy, (2, 7))
    (result,) = reverse(device, dtype, (2, 7)).run([device.put(array)])
    read = result.to_numpy()
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array[:, ::-1])


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (3, 1, 2, 5)])
def test_every_rank_goes_there_and_back(device: Device, shape: tuple[int, ...]) -> None:
    array = sample_array(np.dtype(np.float32), shape)
    (result,) = reverse(device, "f32", shape).run([device.put(array)])
    np.testing.assert_array_equal(result.to_numpy(), array[..., ::-1] if shape else array)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f8e5m2", "bool"])
def test_what_was_put_can_be_read(device: Device, dtype: str) -> None:
    array = sample_array(DTYPES[dtype].numpy, (3, 5))
    np.testing.assert_array_equal(device.put(array).to_numpy(), array)


def test_arrays_at_any_address_are_taken(device: Device) -> None:
    raw = np.zeros(4 * 8 + 64, np.uint8)
    program = reverse(device, "f32", (8,))
    for offset in (0, 4, 8, 16, 32, 60):
        array = raw[offset : offset + 32].view(np.float32)
        array[:] = np.arange(8)
        np.testing.assert_array_equal(program.run([device.put(array)])[0].to_numpy(), np.arange(8)[::-1])


def test_a_read_only_array_is_taken(device: Device) -> None:
    array = np.arange(8, dtype=np.float32)
    array.flags.writeable = False
    np.testing.assert_array_equal(reverse(device, "f32", (8,)).run([device.put(array)])[0].to_numpy(), array[::-1])


def test_a_buffer_keeps_its_array_alive(device: Device) -> None:
    program = reverse(device, "f32", (1 << 16,))
    buffer = device.put(np.full(1 << 16, 3, np.float32))
    gc.collect()
    np.full(1 << 16, 4, np.float32)
    assert (program.run([buffer])[0].to_numpy() == 3).all()


def test_results_are_the_callers_own(device: Device) -> None:
    program = device.compile(portable(ADD), ADD_RESULTS)
    x = np.arange(8, dtype=np.float32)
    argument = device.put(x)
    arrays = [
        result.to_numpy() for result in program.run([device.put(np.ones(8, np.float32), donatable=True), argument])
    ]
    for array in arrays:
        assert array.flags.writeable
        array[:] = -1
    np.testing.assert_array_equal(x, np.arange(8))
    np.testing.assert_array_equal(argument.to_numpy(), np.arange(8))
    gc.collect()
    assert all((array == -1).all() for array in arrays)


def test_results_outlive_everything_else() -> None:
    opened = open_device("cpu")
    array = reverse(opened, "f32", (1 << 16,)).run([opened.put(np.ones(1 << 16, np.float32))])[0].to_numpy()
    del opened
    gc.collect()
    assert (array == 1).all()


def test_donated_buffers_are_taken_over(device: Device) -> None:
    program = device.compile(portable(ADD), ADD_RESULTS)
    start = np.ones(8, np.float32)
    x = device.put(np.arange(8, dtype=np.float32))
    state = device.put(start, donatable=True)
    for step in range(1, 4):
        given, (state, *_) = state, program.run([state, x])
        assert given.is_deleted
        assert not state.is_deleted
        np.testing.assert_array_equal(state.to_numpy().copy(), 1 + step * np.arange(8))
        with pytest.raises(DeviceError, match="donated or deleted"):
            given.to_numpy()
    np.testing.assert_array_equal(start, 1)
    assert not x.is_deleted


def test_a_buffer_is_not_used_after_its_end(device: Device) -> None:
    program = reverse(device, "f32", (8,))
    buffer = device.put(np.zeros(8, np.float32))
    buffer.delete()
    buffer.delete()
    assert buffer.is_deleted
    with pytest.raises(DeviceError, match="donated or deleted"):
        buffer.to_numpy()
    with pytest.raises(DeviceError):
        program.run([buffer])


def test_serialized_executables_run(device: Device) -> None:
    program = reverse(device, "f32", (8,))
    loaded = device.load(program.serialize(), [TensorSpec.parse("f32[8]")])
    np.testing.assert_array_equal(
        loaded.run([device.put(np.arange(8, dtype=np.float32))])[0].to_numpy(), np.arange(8)[::-1]
    )


def test_a_deleted_executable_does_not_run(device: Device) -> None:
    program = reverse(device, "f32", (8,))
    program.delete()
    program.delete()
    with pytest.raises(DeviceError, match="the executable was deleted"):
        program.run([device.put(np.zeros(8, np.float32))])


def test_memory_of_a_program(device: Device) -> None:
    memory = device.compile(portable(ADD), ADD_RESULTS).memory()
    assert memory["argument"] == 64
    assert memory["output"] >= 96
    assert memory["alias"] == 32
    assert memory.keys() == {"argument", "output", "alias", "temp", "code"}


@pytest.mark.parametrize("data", [b"", b"garbage", b"ML\xefR garbage", b"\xff" * 100])
def test_what_is_no_program_is_refused(device: Device, data: bytes) -> None:
    with pytest.raises(DeviceError):
        device.compile(data, [])
    with pytest.raises(DeviceError):
        device.load(data, [])


def test_arguments_that_do_not_fit_are_refused(device: Device) -> None:
    program = reverse(device, "f32", (8,))
    with pytest.raises(DeviceError):
        program.run([device.put(np.zeros(3, np.float32))])
    with pytest.raises(DeviceError):
        program.run([])


@pytest.mark.parametrize("results", [[], ["f32[9]"], ["f32[8]", "f32[8]"]])
def test_results_that_do_not_fit_are_refused(device: Device, results: list[str]) -> None:
    serialized = reverse(device, "f32", (8,)).serialize()
    with pytest.raises(DeviceError):
        device.load(serialized, list(map(TensorSpec.parse, results))).run([device.put(np.zeros(8, np.float32))])


def test_a_buffer_of_another_device_is_refused(cpu: Device, plugin: Device) -> None:
    array = np.zeros(8, np.float32)
    with pytest.raises(DeviceError, match="another device"):
        reverse(cpu, "f32", (8,)).run([plugin.put(array)])
    with pytest.raises(DeviceError, match="another device"):
        reverse(plugin, "f32", (8,)).run([cpu.put(array)])


def test_a_device_says_what_it_is(device: Device) -> None:
    assert (device.platform, device.target, device.kind) == ("cpu", "cpu", "cpu")
    assert device.compiler
    assert device.host
    assert isinstance(device.memory_stats(), dict)


def test_an_open_device_is_shared() -> None:
    assert open_device("cpu") is open_device("cpu")


@pytest.mark.parametrize("name", ["", "gpu", "cpu:0", "plugin", "plugin:"])
def test_unknown_devices_are_refused(name: str) -> None:
    with pytest.raises(DeviceError, match="unknown device"):
        open_device(name)


BUILD = "Built on Jun 17 2026 11:08:48 (1781719728) cl/933746096"


@pytest.mark.parametrize(
    ("text", "build"),
    [
        (f"PJRT C API\nTFRT TPU v5 lite\n{BUILD}", BUILD),
        (f"TFRT TPU v5 lite\n{BUILD}", BUILD),
        (BUILD, BUILD),
        ("PJRT C API\ncpu", "cpu"),
        ("cpu", "cpu"),
    ],
)
def test_the_build_in_a_platform_version(text: str, build: str) -> None:
    assert compiler_build(text) == build


@pytest.mark.parametrize(
    ("made_by", "same"),
    [
        ({"platform_version": BUILD}, True),
        ({"platform_version": f"PJRT C API\nTFRT TPU v5 lite\n{BUILD}", "libtpu": "0.0.42.1"}, True),
        ({"platform_version": BUILD.replace("933746096", "933746097")}, False),
        ({"libtpu": "0.0.42.1"}, False),
        ({}, False),
    ],
)
def test_compilers_are_compared_by_what_the_device_names(made_by: dict[str, str], same: bool) -> None:
    assert is_same_compiler({"platform_version": BUILD}, made_by) is same
