"""Programs in another precision than the model's, against eager."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tpuc
from tpuc.errors import RequestError
from tpuc.packaging import to_numpy
from tpuc.passes import parse_pipeline
from tpuc.passes.precision import Precision


class Block(nn.Module):
    """A small transformer on tokens, with attention, a softmax written out, norms of both kinds and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 64)
        self.norm = nn.LayerNorm(64)
        self.qkv = nn.Linear(64, 192)
        self.out = nn.Linear(64, 64)
        self.up = nn.Linear(64, 256)
        self.down = nn.Linear(256, 64)
        self.register_buffer("frequencies", 1e-4 ** torch.linspace(0, 1, 32), persistent=False)

    def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
        positions = torch.arange(ids.shape[1], device=ids.device).float()
        angles = positions[:, None] * self.frequencies
        # What a model of any precision does with its tables.
        table = torch.cat((angles.sin(), angles.cos()), -1).to(self.table.weight.dtype)
        x = self.table(ids) + table
        q, k, v = (each.unflatten(-1, (4, 16)).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / 4 + (1 - mask[:, None, None].to(q.dtype)) * torch.finfo(q.dtype).min
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        y = x * (x.float().pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt().to(x.dtype)
        x = x + self.down(nn.functional.gelu(self.up(y)))
        return {"hidden": x, "logits": (self.norm(x) @ self.table.weight.T).log_softmax(-1)}


class Picture(nn.Module):
    """Convolutions with batch norms, a residual and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2)
        self.norm = nn.BatchNorm2d(16)
        self.inner = nn.Conv2d(16, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.pool(self.norm(self.stem(x)).relu())
        x = (self.norm(self.inner(x)) + x).relu()
        return {"classes": self.head(x.mean((2, 3)))}


def _block() -> tuple[nn.Module, dict[str, Tensor]]:
    torch.manual_seed(0)
    ids = torch.randint(0, 50, (2, 24))
    mask = (torch.arange(24) < torch.tensor([[24], [17]])).long()
    return Block().eval(), {"ids": ids, "mask": mask}


def _picture() -> tuple[nn.Module, dict[str, Tensor]]:
    torch.manual_seed(0)
    module = Picture().eval()
    module.norm.running_mean.normal_()
    module.norm.running_var.uniform_(0.5, 2)
    return module, {"x": torch.randn(8, 3, 32, 32)}


MODELS = {"block": _block, "picture": _picture}


def _eager(module: nn.Module, inputs: dict[str, Tensor], dtype: torch.dtype) -> dict[str, np.ndarray]:
    given = {name: each.to(dtype) if each.is_floating_point() else each for name, each in inputs.items()}
    with torch.no_grad():
        outputs = copy.deepcopy(module).to(dtype)(**given)
    return {name: to_numpy(each.float()) for name, each in outputs.items()}


def _compiled(path: Path, module: nn.Module, inputs: dict[str, Tensor], precision: str) -> tuple[Any, dict[str, Any]]:
    tpuc.compile(module, kwargs=inputs, precision=precision, output=path)
    with tpuc.runtime.load(path) as program:
        return program.manifest, program(**{name: each.numpy() for name, each in inputs.items()})


def _errors(outputs: dict[str, Any], expected: dict[str, np.ndarray]) -> dict[str, float]:
    """The root of the mean square of the differences: the largest alone is a matter of luck."""
    return {name: float(np.sqrt(np.mean((outputs[name] - each) ** 2))) for name, each in expected.items()}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["bf16", "mixed"])
def test_bf16_is_nearer_to_f32_than_eager_bf16_is(tmp_path: Path, name: str, precision: str) -> None:
    module, inputs = MODELS[name]()
    expected = _eager(module, inputs, torch.float32)
    bound = _errors(_eager(module, inputs, torch.bfloat16), expected)
    manifest, outputs = _compiled(tmp_path / "a.bin", module, inputs, precision)
    errors = _errors(outputs, expected)
    for output, error in errors.items():
        assert 0 < error <= bound[output], (output, error, bound[output])
    # Inputs and outputs keep their dtypes.
    assert {spec.dtype for spec in manifest.outputs} == {"f32"}
    assert {outputs[output].dtype for output in expected} == {np.dtype(np.float32)}
    assert manifest.options["precision"] == precision
    (program,) = manifest.entries[0].programs
    assert set(program.products) == {"bf16 default"}
    # Matrices are stored in bf16, vectors in f32.
    dtypes = {weight.name: weight.dtype for weight in manifest.prepared}
    assert any(dtype == "bf16" for dtype in dtypes.values())


def test_highest_is_asked_for_on_every_product(tmp_path: Path) -> None:
    module, inputs = _block()
    manifest, outputs = _compiled(tmp_path / "a.bin", module, inputs, "f32-highest")
    assert max(_errors(outputs, _eager(module, inputs, torch.float32)).values()) <= 1e-5
    (program,) = manifest.entries[0].programs
    assert set(program.products) == {"f32 highest"}


def test_precision_and_passes_exclude_each_other() -> None:
    module, inputs = _picture()
    with pytest.raises(RequestError, match="precision is a pass"):
        tpuc.compile(module, kwargs=inputs, precision="bf16", passes="cse")


def test_an_unknown_precision_names_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"(?s)no precision 'f16'.*f32, bf16, mixed, f32-highest"):
        parse_pipeline("precision{mode=f16}")
    assert parse_pipeline("precision{mode=bf16}") == (Precision(mode="bf16"),)
