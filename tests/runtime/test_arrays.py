"""Tests of what is taken for an input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tpuc.runtime.arrays import as_input
from tpuc.runtime.errors import InputError
from tpuc.runtime.spec import TensorSpec


def test_an_array_that_fits_is_not_copied() -> None:
    array = np.zeros((2, 3), np.float32)
    assert as_input(array, TensorSpec.parse("x=f32[2,3]"), "x") is array


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(4, 3).T,
        np.arange(24, dtype=np.float32).reshape(3, 8)[:, ::2],
        np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4)),
        np.arange(12, dtype=">f4").reshape(3, 4),
    ],
)
def test_layout_and_byte_order_are_converted(array: np.ndarray) -> None:
    given = as_input(array, TensorSpec.parse("x=f32[3,4]"), "x")
    np.testing.assert_array_equal(given, array)
    assert given.flags.c_contiguous
    assert given.dtype.isnative


def test_nan_passes() -> None:
    assert np.isnan(as_input(np.array([np.nan], np.float32), TensorSpec.parse("x=f32[1]"), "x")).all()


def test_a_tensor_of_another_library() -> None:
    given = as_input(torch.ones(2, dtype=torch.bfloat16), TensorSpec.parse("x=bf16[2]"), "x")
    np.testing.assert_array_equal(given.astype(np.float32), [1, 1])


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (3, "i32", 3),
        (3, "f32", 3.0),
        (2.5, "bf16", 2.5),
        (True, "bool", True),
        (2, "c64", 2 + 0j),
        (1 + 2j, "c128", 1 + 2j),
        (float("inf"), "f16", float("inf")),
        (np.float32(1.5), "f32", 1.5),
    ],
)
def test_numbers_stand_for_tensors_without_dimensions(value: Any, dtype: str, expected: complex) -> None:
    spec = TensorSpec(name="x", dtype=dtype, dims=())
    given = as_input(value, spec, "x")
    assert given.shape == ()
    assert given.dtype == spec.type.numpy
    assert given == expected


@pytest.mark.parametrize(
    ("value", "spec", "message"),
    [
        (np.zeros(2), "x=f32[2]", r"(?s)x: expected f32, got f64.*x.astype\(numpy.float32\)"),
        (np.zeros(2, np.float32), "x=bf16[2]", r"(?s)x: expected bf16, got f32.*x.astype\(ml_dtypes.bfloat16\)"),
        (torch.zeros(2), "x=i64[2]", "(?s)x: expected i64, got f32.*Convert it to i64"),
        (
            np.zeros((3, 224, 224), np.float32),
            "x=f32[1,3,224,224]",
            r"expected f32\[1,3,224,224\], got f32\[3,224,224\]",
        ),
        (np.zeros(0, np.float32), "x=f32[]", r"expected f32\[\], got f32\[0\]"),
        (2.5, "x=f32[1]", r"expected f32\[1\], got f32\[\]"),
        (2.5, "x=i32[]", "expected i32, got 2.5"),
        (True, "x=i32[]", "expected i32, got True"),
        (1, "x=bool[]", "expected bool, got 1"),
        (1j, "x=f32[]", "expected f32, got 1j"),
        (300, "x=u8[]", "300 does not fit u8"),
        (-1, "x=u64[]", "-1 does not fit u64"),
        ([1, 2], "x=i64[2]", r"expected i64\[2\], got a list"),
        ("text", "x=i64[2]", r"expected i64\[2\], got a str"),
        (np.array(["a"]), "x=i64[1]", "arrays of <U1 are not supported"),
    ],
)
def test_what_does_not_fit_is_said(value: Any, spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_input(value, TensorSpec.parse(spec), "x")
