"""The text of shapes, and example inputs made from it."""

from typing import Any

import pytest
import torch

from tpuc.dtypes import TORCH_DTYPES
from tpuc.errors import RequestError
from tpuc.runtime.spec import TensorSpec
from tpuc.shapes import ValueSpec, bind, parse_shapes


def _forward(x: Any, mask: Any = None, *, scale: float = 1.0, flag: bool = False) -> None: ...


def test_parse() -> None:
    assert parse_shapes("input_ids=i64[1,128] mask=bool[1, 128]  x=[3] scale=0.5 flag=true name='a' none=None") == (
        TensorSpec(name="input_ids", dtype="i64", dims=(1, 128)),
        TensorSpec(name="mask", dtype="bool", dims=(1, 128)),
        TensorSpec(name="x", dtype="f32", dims=(3,)),
        ValueSpec(name="scale", value=0.5),
        ValueSpec(name="flag", value=True),
        ValueSpec(name="name", value="a"),
        ValueSpec(name="none", value=None),
    )


def test_a_single_input_needs_no_name() -> None:
    assert parse_shapes("[1,3,224,224]") == (TensorSpec(name="", dtype="f32", dims=(1, 3, 224, 224)),)
    args, kwargs = bind(parse_shapes("bf16[2,3]"), _forward)
    assert kwargs == {}
    assert args[0].dtype == torch.bfloat16
    assert args[0].shape == (2, 3)


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("", "empty", "name=dtype[dims]"),
        ("x=float32[1]", "unknown dtype 'float32'", "f32"),
        ("x=f32[1,-2]", "'-2'", ""),
        ("x=f32[1", "is not an input spec", "name=dtype[dims]"),
        ("x=f32[1] x=f32[2]", "x twice", ""),
        ("f32[1] f32[2]", "several inputs without a name", ""),
        ("x=__import__('os')", "neither a tensor spec nor a value", ""),
        ("x={1:2}", "only None, bools, numbers and texts", ""),
    ],
)
def test_bad_texts(text: str, what: str, hint: str) -> None:
    with pytest.raises(RequestError) as error:
        parse_shapes(text)
    assert what in error.value.what
    assert hint in (error.value.hint or "")


def test_inputs_go_by_position_as_far_as_they_can() -> None:
    args, kwargs = bind(parse_shapes("flag=True x=f32[2] scale=2.5"), _forward)
    assert [arg.shape for arg in args] == [(2,)]
    assert kwargs == {"flag": True, "scale": 2.5}
    args, kwargs = bind(parse_shapes("mask=bool[2] x=f32[2]"), _forward)
    assert [arg.dtype for arg in args] == [torch.float32, torch.bool]
    assert kwargs == {}


def test_unknown_input() -> None:
    with pytest.raises(RequestError, match="forward has no input 'maks'") as error:
        bind(parse_shapes("x=f32[2] maks=bool[2]"), _forward)
    assert "Did you mean mask?" in (error.value.hint or "")


def test_missing_input() -> None:
    with pytest.raises(RequestError, match="leave out x"):
        bind(parse_shapes("mask=bool[2]"), _forward)


def test_named_dimensions_are_refused() -> None:
    with pytest.raises(RequestError, match="a dimension is a name"):
        bind(parse_shapes("x=f32[batch,2]"), _forward)


def test_every_dtype_has_a_torch_dtype() -> None:
    from tpuc.runtime.dtypes import DTYPES

    assert set(TORCH_DTYPES) == set(DTYPES)
