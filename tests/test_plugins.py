"""A user's own operators: lowerings of theirs, kernels for one platform, plugins, and decompositions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._decomp import register_decomposition

import tpuc
from tpuc import mlir
from tpuc.errors import LoadError, RequestError, UnsupportedOpError
from tpuc.lowerings.body import lower_body
from tpuc.lowerings.call import OpCall, TensorMeta
from tpuc.plugins import load_plugins
from tpuc.request import CompileRequest

X = torch.arange(6.0).reshape(2, 3)


class _Call(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def _run(function: Callable[..., Any], folder: Path, **kwargs: Any) -> Any:
    tpuc.compile(_Call(function), (X,), output=folder / "call.bin")
    with tpuc.runtime.load(folder / "call.bin") as program:
        return program(X.numpy(), **kwargs)


@torch.library.custom_op("tests::scale_rows", mutates_args=())
def scale_rows(x: Tensor, factors: Tensor, *, offset: float = 0.0) -> Tensor:
    """Computed by something that tpuc cannot see into."""
    return torch.from_numpy(x.numpy() * factors.numpy()[:, None] + offset)


@scale_rows.register_fake
def _(x: Tensor, factors: Tensor, *, offset: float = 0.0) -> Tensor:
    return torch.empty_like(x)


@tpuc.lowering("tests::scale_rows")
def _scale_rows(x: jax.Array, factors: jax.Array, *, offset: float = 0.0) -> jax.Array:
    return x * factors[:, None] + offset


def test_an_operator_is_lowered_by_the_users_function(tmp_path: Path) -> None:
    def function(x: Tensor) -> Tensor:
        return scale_rows(x, x[:, 1], offset=0.5) * 2

    np.testing.assert_array_equal(_run(function, tmp_path), function(X))


@torch.library.custom_op("tests::split", mutates_args=())
def split(x: Tensor) -> tuple[Tensor, Tensor]:
    return x + 1, (x > 2).clone()


@split.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty(x.shape, dtype=torch.bool)


@tpuc.lowering("tests::split")
def _split(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return x + 1, x > 2


@tpuc.lowering("tests::split", platform="tpu")
def _split_kernel(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    assert not jax.config.jax_enable_x64
    return jnp.tan(x), x > 2


def _text(module: bytes) -> str:
    with mlir.make_context() as context:
        return mlir.to_text(mlir.parse(module, context))


def test_a_kernel_serves_its_platform_only(tmp_path: Path) -> None:
    meta = TensorMeta(shape=(2, 3), dtype=torch.float32)
    body = lower_body(
        OpCall(
            target=torch.ops.tests.split.default,
            args=(meta,),
            kwargs={},
            results=(meta, TensorMeta(shape=(2, 3), dtype=torch.bool)),
        )
    )
    assert not body.is_portable
    assert "stablehlo.tan" not in _text(body.modules["cpu"])
    assert "stablehlo.tan" in _text(body.modules["tpu"])
    first, second = _run(split, tmp_path)
    np.testing.assert_array_equal(first, X + 1)
    np.testing.assert_array_equal(second, X > 2)


@torch.library.custom_op("tests::jitter", mutates_args=())
def jitter(x: Tensor) -> Tensor:
    return x + torch.rand_like(x)


@jitter.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@tpuc.lowering("tests::jitter", random=True)
def _jitter(key: jax.Array, x: jax.Array) -> jax.Array:
    return x + jax.random.uniform(key, x.shape, x.dtype)


def test_an_operator_that_draws_takes_the_key(tmp_path: Path) -> None:
    one, again, other = (_run(jitter, tmp_path, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    assert ((one >= X.numpy()) & (one < X.numpy() + 1)).all()


_library = torch.library.Library("tests", "FRAGMENT")
_library.define("double_relu(Tensor x) -> Tensor")
_library.impl("double_relu", lambda x: torch.relu(x) * 2, "CompositeImplicitAutograd")
_library.define("halved(Tensor x) -> Tensor")
_library.impl("halved", lambda x: x / 2, "CompositeExplicitAutograd")
_library.define("opaque(Tensor x, Tensor[] others, float scale=2.0) -> Tensor")
_library.impl("opaque", lambda x, others, scale=2.0: x * scale, "CompositeExplicitAutograd")


@register_decomposition(torch.ops.tests.halved.default)
def _halved(x: Tensor) -> Tensor:
    return x * 0.5


@pytest.mark.parametrize("name", ["double_relu", "halved"], ids=["composite", "registered"])
def test_an_operator_that_decomposes_needs_no_lowering(name: str, tmp_path: Path) -> None:
    function = getattr(torch.ops.tests, name)
    np.testing.assert_array_equal(_run(lambda x: function(x - 3) + 1, tmp_path), function(X - 3) + 1)


def test_an_operator_without_either_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOpError, match=r"tests\.opaque\.default at .*test_plugins\.py:\d+"):
        _run(lambda x: torch.ops.tests.opaque(x, [x]), tmp_path)


def test_a_second_lowering_of_an_operator_is_an_error() -> None:
    with pytest.raises(RequestError, match=r"tests\.scale_rows\.default has a lowering already, at .*test_plugins\.py"):
        tpuc.lowering("tests::scale_rows")(lambda x, factors: x)
    with pytest.raises(RequestError, match=r"aten\.relu\.default has a lowering already"):
        tpuc.lowering("aten::relu")(lambda x: x)


def test_a_function_that_is_defined_again_takes_its_place() -> None:
    assert tpuc.lowering("tests::scale_rows")(_scale_rows) is _scale_rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"operator": "tests.scale_rows"}, "names no operator"),
        ({"operator": "tests::x", "platform": "gpu"}, "unknown platform 'gpu'"),
        ({"operator": "tests::x", "platform": "tpu", "random": True}, "is for all platforms"),
    ],
)
def test_a_registration_that_makes_no_sense(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        tpuc.lowering(**arguments)


_OPERATOR = """
import torch

@torch.library.custom_op("{namespace}::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3

@triple.register_fake
def _(x):
    return torch.empty_like(x)
"""
_LOWERING = """
import tpuc

@tpuc.lowering("{namespace}::triple")
def triple(x):
    return x * 3
"""
_MODEL = """
class Net(torch.nn.Module):
    def forward(self, x):
        return triple(x) - 1
"""


def _write(folder: Path, name: str, *texts: str, namespace: str) -> None:
    (folder / name).write_text("".join(text.replace("{namespace}", namespace) for text in texts))


def _tpuc(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tpuc.cli", *arguments]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, timeout=300, check=False)


def test_a_plugin_file_brings_a_lowering(tmp_path: Path) -> None:
    _write(tmp_path, "net.py", _OPERATOR, _MODEL, namespace="fileplug")
    _write(tmp_path, "plug.py", _LOWERING, namespace="fileplug")
    assert "fileplug.triple.default" in _tpuc(tmp_path, "compile", "net.py", "--shapes", "x=[2]").stderr
    done = _tpuc(tmp_path, "compile", "net.py", "--shapes", "x=[2]", "--plugin", "plug.py", "-o", "net.bin")
    assert done.returncode == 0, done.stderr
    assert tpuc.runtime.Artifact.open(tmp_path / "net.bin").manifest.options["plugin"] == "plug.py"
    listed = json.loads(_tpuc(tmp_path, "ops", "--plugin", "plug.py", "--json").stdout)
    (mine,) = [row for row in listed if row["operator"] == "fileplug.triple.default"]
    assert mine["why"] == "a user's own"
    assert mine["place"] == f"{tmp_path / 'plug.py'}:4"


def test_an_installed_package_brings_lowerings_as_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, "entryplug_tpu.py", _LOWERING, namespace="entryplug")
    info = tmp_path / "entryplug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: entryplug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tpuc.lowerings]\nanything = entryplug_tpu\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert [plugin.name for plugin in load_plugins()] == ["entryplug_tpu"]
    _write(tmp_path, "net.py", _OPERATOR, _MODEL, namespace="entryplug")
    compiled = tpuc.compile(tmp_path / "net.py", shapes="x=[2]", output=tmp_path / "net.bin")
    assert compiled.manifest.options["plugin"] == "entryplug_tpu"


def test_a_plugin_that_fails_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import tpuc\n1 / 0\n")
    with pytest.raises(LoadError, match=r"broken\.py.*ZeroDivisionError") as error:
        load_plugins([str(tmp_path / "broken.py")])
    assert error.value.where == f"{tmp_path / 'broken.py'}:2"
    with pytest.raises(LoadError, match=r"there is no plugin none\.py"):
        load_plugins(["none.py"])
    with pytest.raises(LoadError, match="the plugin no_such_module failed: ModuleNotFoundError"):
        load_plugins(["no_such_module"])


def test_a_plugins_contents_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    def fingerprint(text: str) -> str:
        (tmp_path / "plug.py").write_text(text)
        return CompileRequest(source="net", passes="", plugins=load_plugins([str(tmp_path / "plug.py")])).fingerprint()

    assert fingerprint("a = 1\n") == fingerprint("a = 1\n")
    assert fingerprint("a = 1\n") != fingerprint("a = 2\n")
