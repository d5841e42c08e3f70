"""The registry: one lowering for all platforms, and one for each."""

from typing import Any

import pytest

from tpuc.errors import RequestError
from tpuc.lowerings.registry import REGISTRY, Lowering, Registry


def _one(x: Any) -> Any:
    return x


def _other(x: Any) -> Any:
    return x


def _lowering(function: Any, **fields: Any) -> Lowering:
    return Lowering(operator="lib.op.default", function=function, why="a test", since="0.1", **fields)


def test_an_operator_may_have_one_for_all_platforms_and_one_for_each() -> None:
    registry = Registry()
    everywhere, kernel = _lowering(_one), _lowering(_other, platform="tpu")
    registry.register(everywhere)
    registry.register(kernel)
    assert registry.get("lib.op.default") is everywhere
    assert registry.get("lib.op.default", "tpu") is kernel
    assert registry.get("lib.op.default", "cpu") is None
    assert registry.kernels("lib.op.default") == [kernel]
    assert list(registry) == [everywhere, kernel]


def test_a_second_one_is_an_error_that_names_both_places() -> None:
    registry = Registry()
    registry.register(_lowering(_one))
    with pytest.raises(
        RequestError, match=r"lib\.op\.default has a lowering already, at .*test_registry\.py:\d+"
    ) as error:
        registry.register(_lowering(_other))
    assert error.value.where == _lowering(_other).place
    registry.register(_lowering(_one))


def test_functions_without_a_name_of_their_own_never_replace_each_other() -> None:
    registry = Registry()
    registry.register(_lowering(lambda x: x))
    with pytest.raises(RequestError, match="has a lowering already"):
        registry.register(_lowering(lambda x: x))


def test_every_lowering_says_why_and_since_when() -> None:
    for lowering in REGISTRY:
        if not lowering.operator.startswith(("aten.", "quantized_decomposed.", "higher_order.")):
            continue
        assert lowering.why, lowering.operator
        assert lowering.since, lowering.operator
