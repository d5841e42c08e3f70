"""Bodies for each platform."""

from typing import Any

import pytest
import torch

from tpuc.lowerings.body import Body, lower_body
from tpuc.lowerings.call import OpCall, TensorMeta
from tpuc.lowerings.evaluate import MissingLoweringError, expected_of


def _body(operator: torch._ops.OpOverload, *args: Any) -> Body:
    results = expected_of(operator(*args))
    metas = tuple(TensorMeta.of(arg) if isinstance(arg, torch.Tensor) else arg for arg in args)
    return lower_body(OpCall(target=operator, args=metas, kwargs={}, results=results))


def test_most_bodies_serve_every_platform() -> None:
    body = _body(torch.ops.aten.mul.Tensor, torch.ones(3), torch.ones(3))
    assert body.is_portable
    assert not body.missing


def test_linear_algebra_differs() -> None:
    body = _body(torch.ops.aten.linalg_cholesky_ex.default, torch.eye(3))
    assert not body.is_portable
    assert b"lapack_spotrf" in body.modules["cpu"]
    assert b"lapack" not in body.modules["tpu"]


@pytest.mark.parametrize(
    ("operator", "x", "reason"),
    [
        (torch.ops.aten.linalg_eig.default, torch.eye(3).double(), "linear algebra in complex128"),
        (torch.ops.aten.linalg_lu_factor_ex.default, torch.eye(3).double(), "LU factorization in float64"),
        (torch.ops.aten.linalg_qr.default, torch.eye(3).cdouble(), "complex128"),
    ],
)
def test_what_a_tpu_lacks_has_a_body_for_the_cpu_alone(
    operator: torch._ops.OpOverload, x: torch.Tensor, reason: str
) -> None:
    args = ([1], 0, True) if "fft" in str(operator) else ()
    body = _body(operator, x, *args)
    assert set(body.modules) == {"cpu"}
    assert set(body.missing) == {"tpu"}
    assert body.missing["tpu"].startswith("it cannot be lowered for a tpu: ")
    assert reason in body.missing["tpu"]
    assert not body.is_portable


def test_without_a_lowering_there_is_no_body() -> None:
    call = OpCall(target=torch.ops.aten._foobar.default, args=(), kwargs={}, results=None)
    with pytest.raises(MissingLoweringError, match=r"aten\._foobar\.default"):
        lower_body(call)
