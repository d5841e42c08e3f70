"""Tests of taking over tensors of other libraries. torch stands for them: the runtime itself never imports it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from tpuc.runtime.dlpack import from_dlpack
from tpuc.runtime.dtypes import DTYPES
from tpuc.runtime.errors import InputError

TORCH_DTYPES = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f64": torch.float64,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "bool": torch.bool,
    "c64": torch.complex64,
    "c128": torch.complex128,
    "f8e4m3fn": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
}


def test_every_type_is_tried() -> None:
    assert TORCH_DTYPES.keys() == DTYPES.keys()


@pytest.mark.parametrize("name", TORCH_DTYPES)
def test_a_tensor_becomes_an_array_over_the_same_memory(name: str) -> None:
    tensor = torch.tensor([[0, 1, 0], [1, 1, 0]]).to(TORCH_DTYPES[name])
    array = from_dlpack(tensor, "x")
    assert array.dtype == DTYPES[name].numpy
    assert array.ctypes.data == tensor.data_ptr()
    np.testing.assert_array_equal(array.astype(np.complex128), [[0, 1, 0], [1, 1, 0]])


def test_the_memory_outlives_the_tensor() -> None:
    array = from_dlpack(torch.full((1000,), 3.0, dtype=torch.bfloat16), "x")
    torch.full((1000,), 4.0, dtype=torch.bfloat16)
    assert array.dtype == ml_dtypes.bfloat16
    assert (array == 3).all()


def test_a_view_keeps_its_strides() -> None:
    tensor = torch.arange(12, dtype=torch.float32).reshape(3, 4).T
    np.testing.assert_array_equal(from_dlpack(tensor, "x"), np.arange(12).reshape(3, 4).T)


def test_a_tensor_that_its_library_does_not_share_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"x: .*gradient"):
        from_dlpack(torch.zeros(2, requires_grad=True), "x")


def test_a_tensor_elsewhere_is_an_input_error() -> None:
    class Elsewhere:
        def __dlpack__(self, **_: Any) -> Any:
            raise AssertionError("not to be asked")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

    with pytest.raises(InputError, match="x: the tensor is on another device"):
        from_dlpack(Elsewhere(), "x")


def test_a_type_that_programs_cannot_use_is_an_input_error() -> None:
    with pytest.raises(InputError, match="x: its element type is not supported"):
        from_dlpack(torch.zeros(2).to(torch.float8_e4m3fnuz), "x")
