"""The skeleton of a missing lowering is Python that registers it."""

import ast

import pytest
import torch

from tpuc.lowerings.call import OpCall, TensorMeta
from tpuc.lowerings.skeleton import skeleton_of

_library = torch.library.Library("skeletons", "FRAGMENT")
_library.define("plain(Tensor x) -> Tensor")
_library.define("full.out_of_many(Tensor[] xs, int n=3, *, str mode='sum', bool flag=True) -> (Tensor, Tensor)")
_library.define("_private(Tensor x, float? eps=None) -> Tensor[]")

_X = TensorMeta(shape=(2, 3), dtype=torch.bfloat16)


def test_the_signature_and_the_shapes_of_a_call() -> None:
    call = OpCall(
        target=torch.ops.skeletons.full.out_of_many, args=([_X, _X], 5), kwargs={"mode": "max"}, results=(_X, _X)
    )
    assert skeleton_of(call).splitlines() == [
        '@tpuc.lowering("skeletons::full.out_of_many")',
        "def full(xs, n=3, *, mode='sum', flag=True):",
        "    # xs=[bf16[2,3], bf16[2,3]]",
        "    return ...  # (bf16[2,3], bf16[2,3])",
    ]


@pytest.mark.parametrize("name", ["plain", "_private"])
def test_it_is_python(name: str) -> None:
    text = skeleton_of(OpCall(target=getattr(torch.ops.skeletons, name).default, args=(_X,), kwargs={}, results=_X))
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    assert function.name == name.lstrip("_")


def test_a_higher_order_operator_has_none() -> None:
    assert skeleton_of(OpCall(target=torch.ops.higher_order.cond, args=(), kwargs={}, results=())) == ""
