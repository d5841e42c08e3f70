"""`tpuc check` against the real compile: what it says of each operator, and of everything that stands in the way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
import torch
from torch import Tensor, nn

import tpuc
from tpuc.checking import check_model
from tpuc.errors import ExportError, PassError, RequestError, UnsupportedOp, UnsupportedOpError
from tpuc.frontend.importer import import_graph
from tpuc.frontend.stablehlo import WORKER, lower
from tpuc.loader import load_model
from tpuc.lowerings.native import is_native
from tpuc.pipeline import capture_model
from tpuc.shapes import parse_shapes
from tpuc.targets import Target
from tpuc.worker import Worker
from tpuc.zoo_build import read_settings

_MODELS = Path(__file__).parents[1] / "models"
#: Hundreds of layers' worth of nodes.
_LARGE = {"llama_7b"}


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(WORKER) as worker:
        yield worker


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=[pytest.mark.slow] if path.stem in _LARGE else [])
        for path in sorted(_MODELS.glob("*.py"))
    ],
)
def test_every_model_lowers_as_the_check_says(name: str, worker: Worker) -> None:
    settings = read_settings(_MODELS / f"{name}.py", "tpu")
    source = str(_MODELS / f"{name}.py") + (f":{settings.symbol}" if settings.symbol else "")
    shapes = parse_shapes(settings.shapes) if settings.shapes else ()
    check = check_model(
        load_model(source, shapes=shapes, with_weights=False), [Target.parse("cpu"), Target.parse("v5e")]
    )
    assert check.unsupported == ()

    captured = capture_model(load_model(source, shapes=shapes, with_weights=False), ("cpu", "tpu"), with_weights=False)
    assert lower(captured, worker, ("cpu", "tpu")).text
    called = {call.operator for call in import_graph(captured.graph, is_native).bodies.values()}
    assert called == {use.operator for use in check.uses if use.how in ("jax", "decomposition")}
    nodes = [node for node in captured.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    assert sum(use.count for use in check.uses) == len(nodes)


_library = torch.library.Library("checked", "FRAGMENT")
_library.define("opaque(Tensor x, Tensor[] others, *, float scale=2.0) -> Tensor")
_library.impl("opaque", lambda x, others, scale=2.0: x * scale, "CompositeExplicitAutograd")
_library.define("outer(Tensor x) -> Tensor")
_library.impl("outer", lambda x: torch.ops.checked.opaque(x, [x]) + 1, "CompositeImplicitAutograd")


@torch.library.custom_op("checked::broken", mutates_args=())
def broken(x: Tensor) -> Tensor:
    return x.clone()


@broken.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@tpuc.lowering("checked::broken")
def _broken(x: jax.Array) -> jax.Array:
    raise ValueError("nobody has thought of this")  # where it fails


class _Layer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.checked.opaque(x, [x, x], scale=3.0)  # opaque


class _Opaque(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([_Layer(), _Layer()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return torch.relu(x)


class _Outer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.checked.outer(x)


class _Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return broken(x) * 2


class _Eigenvalues(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.eigvals(x.double())


class _Sizes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0].sum() + torch.nonzero(x).sum()


class _Everything(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = torch.ops.checked.opaque(broken(x), [x])
        return y, torch.linalg.eigvals(x.double()), x[x > 0]


_FAILING = [
    (_Opaque, ["checked.opaque.default"] * 2),
    (_Outer, ["checked.outer.default"]),
    (_Broken, ["checked.broken.default"]),
    (_Eigenvalues, ["aten.linalg_eigvals.default"]),
    (_Sizes, ["aten.index.Tensor", "aten.nonzero.default"]),
    (
        _Everything,
        ["aten.index.Tensor", "checked.broken.default", "checked.opaque.default", "aten.linalg_eigvals.default"],
    ),
]


@pytest.mark.parametrize(("kind", "operators"), _FAILING)
def test_a_compile_fails_with_what_the_check_says(kind: type[nn.Module], operators: list[str], tmp_path: Path) -> None:
    x = torch.eye(4)
    check = tpuc.check(kind(), (x,), targets=["cpu", "v5e"])
    assert [op.operator for op in check.unsupported] == operators
    assert {use.operator: use.count for use in check.uses if use.how == "unsupported"} == {
        operator: operators.count(operator) for operator in operators
    }
    with pytest.raises(UnsupportedOpError) as expected:
        check.raise_if_unsupported()
    with pytest.raises(UnsupportedOpError) as error:
        tpuc.compile(kind(), (x,), targets=["cpu", "v5e"], output=tmp_path / "out.bin")
    assert str(error.value) == str(expected.value)
    assert error.value.operators == check.unsupported
    assert not (tmp_path / "out.bin").exists()


def _only(module: nn.Module, **options: Any) -> UnsupportedOp:
    (op,) = tpuc.check(module, (torch.eye(4),), **options).unsupported
    return op


def test_what_one_platform_lacks_does_not_matter_to_another() -> None:
    assert tpuc.check(_Eigenvalues(), (torch.eye(4),), targets=["cpu"]).unsupported == ()
    assert "it cannot be lowered for a tpu" in _only(_Eigenvalues(), targets=["v5e"]).reason


def test_each_place_has_its_line_its_module_and_a_skeleton() -> None:
    first, second = tpuc.check(_Opaque(), (torch.eye(4),)).unsupported
    assert first.location == second.location == f"{__file__}:{_line('# opaque')}"
    assert (first.module, second.module) == ("layers.0", "layers.1")
    assert first.reason == "it has no lowering, and PyTorch has no decomposition of it"
    assert first.skeleton.splitlines() == [
        '@tpuc.lowering("checked::opaque")',
        "def opaque(x, others, *, scale=2.0):",
        "    # x=f32[4,4] others=[f32[4,4], f32[4,4]]",
        "    return ...  # f32[4,4]",
    ]
    with pytest.raises(UnsupportedOpError) as error:
        tpuc.check(_Opaque(), (torch.eye(4),)).raise_if_unsupported()
    assert "in layers.0, and 1 times more: it has no lowering" in str(error.value)
    assert str(error.value).count("def opaque(") == 1


def test_an_operator_that_decomposes_into_a_missing_one_names_both() -> None:
    op = _only(_Outer())
    assert op.operator == "checked.outer.default"
    assert op.reason.startswith("it decomposes into checked.opaque.default: it has no lowering")
    assert op.skeleton.startswith('@tpuc.lowering("checked::outer")')


def test_a_lowering_that_fails_is_no_missing_one() -> None:
    op = _only(_Broken())
    place = f"{__file__}:{_line('# where it fails')}"
    assert op.reason == f"its lowering failed at {place}: ValueError: nobody has thought of this"
    assert not op.skeleton


def test_what_cannot_be_exported_is_an_error() -> None:
    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(ExportError, match="depends on the values of its tensors"):
        tpuc.check(Branch(), (torch.eye(4),))


class _Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.linear(x), 0)


class _OpaqueRows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.checked.opaque(x, [x]) + torch.nonzero(x).sum()


class _Roll(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.roll(3, 0)


def test_named_sizes_are_checked_as_they_are_compiled(tmp_path: Path) -> None:
    names: dict[str, Any] = {"shapes": "x=f32[rows,4]", "dims": "rows=2..5", "targets": ["cpu", "v5e"]}
    check = tpuc.check(_Scaled(), **names)
    assert [use.operator for use in check.uses] == ["aten.linear.default", "aten.softmax.int"]
    check.raise_if_unsupported()
    with pytest.raises(RequestError, match="no input has a dimension of the size other"):
        tpuc.check(_Scaled(), shapes="x=f32[rows,4]", dims="rows=2..5 other=1..2")

    check = tpuc.check(_OpaqueRows(), **names)
    assert [op.operator for op in check.unsupported] == ["aten.nonzero.default", "checked.opaque.default"]
    with pytest.raises(UnsupportedOpError) as error:
        tpuc.compile(_OpaqueRows(), **names, output=tmp_path / "out.bin")
    assert error.value.operators == check.unsupported


def test_an_operation_with_no_exact_form_in_padding_is_found(tmp_path: Path) -> None:
    names: dict[str, Any] = {"shapes": "x=f32[rows,4]", "dims": "rows=2..5"}
    check = tpuc.check(_Roll(), **names)
    assert check.unsupported == ()
    with pytest.raises(PassError) as expected:
        check.raise_if_unsupported()
    with pytest.raises(PassError) as error:
        tpuc.compile(_Roll(), **names, output=tmp_path / "out.bin")
    assert error.value.what.splitlines()[0] == expected.value.what.splitlines()[0]
    assert check.to_json()["any_size_error"].startswith("pass pad-dynamic failed: ")


_NET = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.nonzero(torch.relu(torch.relu(x)))
"""


def _tpuc(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tpuc.cli", *arguments]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, timeout=300, check=False)


def test_the_command_prints_the_operators_and_fails_as_compile_does(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(_NET)
    done = _tpuc(tmp_path, "check", "net.py", "--shapes", "x=[2,2]")
    lines = done.stdout.splitlines()
    assert lines[0].strip() == "net.py:Net for cpu"
    assert [line.split()[:3] for line in lines[2:4]] == [
        ["aten.relu.default", "2", "jax"],
        ["aten.nonzero.default", "1", "unsupported"],
    ]
    assert done.returncode == 1
    compiled = _tpuc(tmp_path, "compile", "net.py", "--shapes", "x=[2,2]")
    assert done.stderr == compiled.stderr[compiled.stderr.index("error: ") :]
    report = json.loads(_tpuc(tmp_path, "check", "net.py", "--shapes", "x=[2,2]", "--json").stdout)
    assert report["targets"] == ["cpu"]
    assert [(row["operator"], row["count"]) for row in report["operators"]] == [
        ("aten.relu.default", 2),
        ("aten.nonzero.default", 1),
    ]
    (op,) = report["unsupported"]
    assert op["location"] == f"{tmp_path / 'net.py'}:6"
    assert "torch.nonzero_static" in op["hint"]


def _line(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(text))
