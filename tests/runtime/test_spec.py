"""Tests of the text form of tensor specs."""

from __future__ import annotations

import pytest

from tpuc.runtime.errors import InputError
from tpuc.runtime.spec import TensorSpec


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("x=bf16[batch,128]", TensorSpec(name="x", dtype="bf16", dims=("batch", 128))),
        ("f32[]", TensorSpec(name="", dtype="f32", dims=())),
        ("step=i32[]", TensorSpec(name="step", dtype="i32", dims=())),
        ("batch.mask[0]=bool[0,3]", TensorSpec(name="batch.mask[0]", dtype="bool", dims=(0, 3))),
        ("f32[1,3,224,224]", TensorSpec(name="", dtype="f32", dims=(1, 3, 224, 224))),
    ],
)
def test_parse_and_print(text: str, spec: TensorSpec) -> None:
    assert TensorSpec.parse(text) == spec
    assert str(spec) == text


def test_spaces_are_allowed() -> None:
    assert str(TensorSpec.parse(" x=f32[1, 3] ")) == "x=f32[1,3]"


@pytest.mark.parametrize("text", ["", "x", "x=f32", "f32[", "f32[1,]", "f32[-1]", "f32[1.5]", "x y=f32[1]", "=f32[1]"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        TensorSpec.parse(text)


def test_an_unknown_dtype_is_named() -> None:
    with pytest.raises(InputError, match="unknown dtype 'float32'"):
        TensorSpec.parse("x=float32[1]")


def test_sizes() -> None:
    assert TensorSpec.parse("c128[2,3]").nbytes == 96
    assert TensorSpec.parse("f32[]").nbytes == 4
    assert TensorSpec.parse("f32[0,5]").nbytes == 0


def test_a_named_dimension_has_no_size() -> None:
    spec = TensorSpec.parse("x=f32[batch,3]")
    assert not spec.is_static
    with pytest.raises(InputError, match="not known yet"):
        _ = spec.nbytes
