"""Tests of the table of element types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tpuc.runtime.dtypes import DTYPES, dtype, dtype_of
from tpuc.runtime.errors import InputError


def test_names_are_unique_in_every_column() -> None:
    for column in ("name", "numpy", "pjrt"):
        assert len({getattr(row, column) for row in DTYPES.values()}) == len(DTYPES)


def test_every_type_the_design_names_is_there() -> None:
    names = "f32 bf16 f16 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool c64 c128 f8e4m3fn f8e5m2"
    assert " ".join(DTYPES) == names


@pytest.mark.parametrize("name", DTYPES)
def test_an_array_of_a_type_has_that_type(name: str) -> None:
    array = np.zeros(3, DTYPES[name].numpy)
    assert dtype_of(array) is DTYPES[name]
    assert array.itemsize == DTYPES[name].itemsize


def test_byte_order_does_not_matter() -> None:
    assert dtype_of(np.zeros(3, ">f4")).name == "f32"
    assert dtype_of(np.zeros(3, ">i8")).name == "i64"


@pytest.mark.parametrize("array", [np.array(["text"]), np.array([object()]), np.zeros(2, ml_dtypes.int4)])
def test_other_arrays_are_refused(array: np.ndarray) -> None:
    with pytest.raises(InputError, match="not supported"):
        dtype_of(array)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(InputError, match="Did you mean bf16"):
        dtype("bff16")
