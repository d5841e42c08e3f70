"""Branches and loops on tensors, as eager runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_slices
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.fx.experimental.proxy_tensor import make_fx

import tpuc
from tpuc.errors import UnsupportedOpError
from tpuc.lowerings import control_flow

from .support import check, lowered

# PyTorch imports its own deprecated code when it first traces a scan.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")

X = torch.arange(12.0).reshape(3, 4) / 7 - 0.5
POSITIVE, NEGATIVE = X.abs() + 0.1, -X.abs() - 0.1


@pytest.fixture(scope="module")
def layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 4)


@pytest.mark.parametrize("x", [POSITIVE, NEGATIVE])
class TestCond:
    def test_a_branch_closes_over_weights(self, x: Tensor, layer: nn.Linear) -> None:
        check(lambda x: torch.cond(x.sum() > 0, lambda x: torch.relu(layer(x)), lambda x: x @ layer.weight, (x,)), x)

    def test_branches_stand_in_branches(self, x: Tensor) -> None:
        def inner(x: Tensor) -> Tensor:
            return torch.cond(x[0, 0] > 0.3, lambda x: x + 1, lambda x: x * 3, (x,))

        def function(x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, inner, lambda x: inner(-x) - 1, (x,))

        check(function, x)
        check(function, x * 5)

    def test_several_results_and_dtypes(self, x: Tensor) -> None:
        def function(x: Tensor, n: Tensor) -> Any:
            return torch.cond(
                x.sum() > 0,
                lambda x, n: {"x": x.to(torch.bfloat16), "n": (n + 1, x > 0)},
                lambda x, n: {"x": (x * 2).to(torch.bfloat16), "n": (n * n, x < -0.5)},
                (x, n),
            )

        check(function, x, torch.tensor(7))

    def test_a_predicate_may_have_one_dimension(self, x: Tensor) -> None:
        check(lambda x: torch.cond((x[0, :1] > 0), torch.sin, torch.cos, (x,)), x)

    def test_numbers_that_depend_on_data_stand_in_a_branch(self, x: Tensor) -> None:
        check(lambda x: torch.cond(x.sum() > 0, lambda x: x * x[0, 0].item(), lambda x: x - 1, (x,)), x)

    def test_attention_stands_in_a_branch(self, x: Tensor) -> None:
        def attend(x: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

        check(lambda x: torch.cond(x.sum() > 0, attend, lambda x: x * 2, (x,)), x[None])


class TestWhileLoop:
    def test_a_loop_carries_tensors_and_closes_over_weights(self, layer: nn.Linear) -> None:
        def function(x: Tensor) -> Any:
            return while_loop(
                lambda i, x: (i < 10) & (x.abs().sum() > 0.5),
                lambda i, x: (i + 1, torch.tanh(layer(x)) * 0.9),
                (torch.zeros((), dtype=torch.int64), x),
            )

        check(function, X)

    def test_a_loop_that_does_not_turn_gives_what_it_was_given(self) -> None:
        check(lambda x: while_loop(lambda x: x.sum() > 100, lambda x: (x + 1,), (x,)), X)

    def test_a_number_is_carried_as_a_tensor(self) -> None:
        result, count = lowered(lambda x: while_loop(lambda x, i: i < 5, lambda x, i: (x * 2 + i, i + 2), (x, 1)), X)
        expected = X
        for i in (1, 3):
            expected = expected * 2 + i
        np.testing.assert_allclose(result, expected, rtol=1e-6)
        assert (count.shape, count.dtype, count) == ((), np.int64, 5)

    def test_a_loop_stands_in_a_loop_and_in_a_branch(self) -> None:
        def inner(x: Tensor) -> Tensor:
            return while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x * 1.5), (torch.tensor(0), x))[1]

        def outer(x: Tensor) -> Tensor:
            return while_loop(lambda n, x: n < 2, lambda n, x: (n + 1, inner(x) - 1), (torch.tensor(0), x))[1]

        check(lambda x: torch.cond(x.sum() > 0, outer, lambda x: x.clone(), (x,)), POSITIVE)


class TestScan:
    def test_a_recurrent_network(self) -> None:
        def function(x: Tensor, weight: Tensor) -> Any:
            def step(h: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
                h = torch.tanh(weight @ h + row)
                return h, h * 2

            return scan(step, torch.zeros(4), x)

        check(function, X, torch.eye(4) - 0.3)

    @pytest.mark.parametrize("reverse", [True, False])
    def test_trees_another_dimension_and_backwards(self, reverse: bool) -> None:
        def step(carry: Any, x: Any) -> Any:
            total, count = carry
            return (total + x["a"] * x["b"], count + 1), {"total": total + 0, "last": x["a"] - count}

        def function(a: Tensor, b: Tensor) -> Any:
            initial = (torch.zeros(3), torch.zeros((), dtype=torch.int64))
            return scan(step, initial, {"a": a, "b": b}, dim=1, reverse=reverse)

        check(function, X, X + 1)


class TestMap:
    def test_slices_and_operands_that_stay(self, layer: nn.Linear) -> None:
        check(lambda x, s: map_slices(lambda row, s: layer(row) * s, x, s), X, torch.tensor(3.0))

    def test_trees(self) -> None:
        check(lambda x: map_slices(lambda pair: (pair[0] @ pair[1], pair[0] > 0), (x, x + 1)), X)


class TestAssociativeScan:
    def test_the_generic_form_is_made_of_operators(self) -> None:
        def compose(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return left[0] * right[0], left[1] * right[0] + right[1]

        check(lambda a, b: associative_scan(compose, (a, b), dim=1, combine_mode="generic"), X, X + 1)

    def test_the_pointwise_form_is_an_operator(self) -> None:
        # PyTorch itself has this form for accelerators only, and so does not export it here.
        combine = make_fx(lambda a, b, p, q, s: (a * p, b * p + q * s))(*X[:1].expand(4, 4), torch.tensor(2.0))
        with jax.enable_x64(True):
            powers, sums = control_flow.associative_scan(combine, [X.numpy(), X.numpy()], [np.float32(2.0)])
        power, total = X[0], X[0]
        for row, (got_power, got_sum) in enumerate(zip(powers, sums, strict=True)):
            if row:
                power, total = power * X[row], total * X[row] + X[row] * 2
            np.testing.assert_allclose(got_power, power, rtol=1e-6)
            np.testing.assert_allclose(got_sum, total, rtol=1e-6)


def test_what_a_branch_draws_comes_from_the_seed() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.rand_like(x), lambda x: x * 2, (x,))

    one, again, other = (lowered(function, POSITIVE, seed=seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    np.testing.assert_array_equal(lowered(function, NEGATIVE, seed=1)[0], NEGATIVE * 2)


def test_each_turn_of_a_loop_draws_anew() -> None:
    (rows,) = lowered(lambda x: map_slices(lambda row: torch.rand_like(row), x), X)
    assert len({row.tobytes() for row in rows}) == len(rows)
    _, stacked = lowered(lambda x: scan(lambda h, row: (h + 1, torch.rand_like(row)), torch.zeros(()), x), X)
    assert len({row.tobytes() for row in stacked}) == len(stacked)


class _Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        def step(h: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            h = torch.cond(row.sum() > 0, lambda h: self.layer(h), lambda h: h - 1, (h,))
            return h, h + row

        return scan(step, x[0], x)[1]  # the scan


def test_a_program_with_control_flow_compiles_and_runs(tmp_path: Path) -> None:
    module = _Branches()
    tpuc.compile(module, (X,), targets=["cpu", "v5e"], output=tmp_path / "net.bin", dump=tmp_path / "ir")
    with tpuc.runtime.load(tmp_path / "net.bin") as program, torch.no_grad():
        np.testing.assert_allclose(program(X.numpy()), module(X), rtol=1e-5, atol=1e-6)
    (text,) = {path.read_text() for path in (tmp_path / "ir").glob("*/00-input.mlir")}
    assert "stablehlo.while" in text
    assert "stablehlo.case" in text
    # PyTorch records one line for a loop and all that stands in it.
    assert f'"{__file__}":{_line("# the scan")}' in text
    assert not [line for line in text.splitlines() if " = stablehlo." in line and "loc(unknown)" in line]


_library = torch.library.Library("branches", "FRAGMENT")
_library.define("opaque(Tensor x) -> Tensor")
_library.impl("opaque", lambda x: x * 2, "CompositeExplicitAutograd")


class _OpaqueBranch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.ops.branches.opaque(x), lambda x: x + 1, (x,))  # the branch


def test_an_operator_that_a_branch_lacks_is_named_itself(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOpError) as error:
        tpuc.compile(_OpaqueBranch(), (X,), output=tmp_path / "net.bin")
    (op,) = error.value.operators
    assert op.operator == "branches.opaque.default"
    assert op.location == f"{__file__}:{_line('# the branch')}"
    found = tpuc.check(_OpaqueBranch(), (X,))
    assert found.unsupported == (op,)
    assert ("branches.opaque.default", "unsupported") in {(use.operator, use.how) for use in found.uses}


@torch.library.custom_op("branches::broken", mutates_args=())
def broken(x: Tensor) -> Tensor:
    return x.clone()


@broken.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@tpuc.lowering("branches::broken")
def _broken(x: jax.Array) -> jax.Array:
    raise ValueError("nobody has thought of this")


class _BrokenLoop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return map_slices(lambda row: broken(row) + 1, x)


def test_a_lowering_that_fails_in_a_loop_is_named_itself() -> None:
    (op,) = tpuc.check(_BrokenLoop(), (X,)).unsupported
    assert op.operator == "branches.broken.default"
    assert "its lowering failed at" in op.reason


def _line(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(text))
