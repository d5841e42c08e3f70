"""What a compile puts into an artifact: programs by target, and tensors prepared from weights."""

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxlib.mlir import ir
from safetensors.torch import save_file
from torch import nn

import tpuc
from tpuc import mlir
from tpuc.backend import compilers
from tpuc.passes.base import LoopCosts
from tpuc.request import WeightsMode
from tpuc.runtime import Program


class Normed(nn.Module):
    """Two convolutions with batch norms, whose scales depend on weights alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4))
        for module in self.layers:
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight)
                nn.init.uniform_(module.running_var)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Stack(nn.Module):
    """Layers of one form, over the last dimension."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


class Attention(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


class LinearAlgebra(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cholesky(x @ x.mT + torch.eye(8)) + torch.linalg.eigvals(x).abs().max()


class Complex(nn.Module):
    """Complex constants and products, also in 64 bits."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(8, 8, dtype=torch.complex64))
        self.register_buffer("turn", torch.tensor([1j, 2.0]).repeat(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.fft.fft(x) * self.turn @ self.weight
        return y.abs() + torch.fft.irfft(torch.fft.rfft(x.double())).float()


def _assert_equal(program: Program, module: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        np.testing.assert_allclose(program(x.numpy()), module(x).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weights", ["embed", "external", "none"])
def test_what_depends_on_weights_alone_is_prepared(tmp_path: Path, weights: WeightsMode) -> None:
    module, x = Normed().eval(), torch.randn(1, 3, 8, 8)
    expected = Normed().eval()
    compiled = tpuc.compile(module, (x,), targets=["cpu"], output=tmp_path / "a.bin", weights=weights)
    manifest = compiled.manifest
    assert manifest.prepared
    assert all((info.section is not None) == (weights == "embed") for info in manifest.prepared)
    # Layers of one form are prepared by one program.
    assert len({info.program for info in manifest.prepared}) < len(manifest.prepared)
    if weights == "embed":
        stored = {info.name for info in manifest.weights if info.section}
        assert "layers.1.running_var" not in stored
    save_file(expected.state_dict(), tmp_path / "weights.safetensors")
    supplied = tmp_path / "weights.safetensors" if weights == "none" else None
    with tpuc.runtime.load(tmp_path / "a.bin", weights=supplied) as program:
        _assert_equal(program, expected, x)


@pytest.mark.parametrize("weights", ["embed", "external", "none"])
def test_layers_become_a_loop_over_stacked_weights(tmp_path: Path, weights: WeightsMode) -> None:
    module, x = Stack(3).eval(), torch.randn(2, 8)
    options: dict[str, Any] = {"weights": weights, "roll": "always", "dump": tmp_path / "ir", "cache": False}
    compiled = tpuc.compile(module, (x,), targets=["cpu"], output=tmp_path / "a.bin", **options)
    assert compiled.progress.notes[-1] == "3 layers on cpu are loops, over stacked weights"
    assert {info.dims for info in compiled.manifest.prepared} == {(3, 8), (3, 8, 8)}
    assert "roll-layers{mode=always least=2}" in compiled.manifest.options["passes"]
    save_file(Stack(3).state_dict(), tmp_path / "weights.safetensors")
    supplied = tmp_path / "weights.safetensors" if weights == "none" else None
    with tpuc.runtime.load(tmp_path / "a.bin", weights=supplied) as program:
        _assert_equal(program, Stack(3).eval(), x)


def test_layers_become_a_loop_for_any_size(tmp_path: Path) -> None:
    module = Stack(3).eval()
    specs: dict[str, Any] = {"shapes": "x=f32[batch,8]", "dims": "batch=1..5", "buckets": "batch=5"}
    compiled = tpuc.compile(module, output=tmp_path / "a.bin", roll="always", **specs)
    assert any("3 layers" in note for note in compiled.progress.notes)
    with tpuc.runtime.load(tmp_path / "a.bin") as program:
        for batch in (1, 4, 5):
            _assert_equal(program, module, torch.randn(batch, 8))


class LoopsAreCheap:
    """Takes loops for cheaper than layers one by one."""

    def cycles_of(self, modules: Sequence[ir.Module]) -> list[int]:
        return [100] * len(modules)

    def loops_of(self, module: ir.Module) -> Future[LoopCosts | None]:
        future: Future[LoopCosts | None] = Future()
        loops = {str(number): 1 for number in range(len(mlir.find(module, "stablehlo.while")))}
        future.set_result(LoopCosts(total=1, loops=loops))
        return future


def test_the_cpu_takes_the_stacks_that_a_tpu_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        compilers, "estimator_for", lambda target, **_: nullcontext(LoopsAreCheap() if target.chip else None)
    )
    module, x = Stack(8).eval(), torch.randn(2, 8)
    compiled = tpuc.compile(module, (x,), targets=["cpu", "v5e"], output=tmp_path / "a.bin", cache=False)
    assert [note.partition(" are ")[0] for note in compiled.progress.notes] == ["8 layers on cpu", "8 layers on v5e"]
    assert not [info.name for info in compiled.manifest.weights if info.section]
    with tpuc.runtime.load(tmp_path / "a.bin") as program:
        _assert_equal(program, module, x)


def test_programs_that_come_out_equal_are_stored_once(tmp_path: Path) -> None:
    compiled = tpuc.compile(nn.ReLU(), (torch.zeros(4),), targets=["cpu", "v5e", "v4"], output=tmp_path / "a.bin")
    (program,) = compiled.manifest.entries_of()[0].programs
    assert program.serves == ("cpu", "v5e", "v4", "any")


def test_a_program_with_kernels_has_another_beside_it_for_other_devices(tmp_path: Path) -> None:
    x = torch.randn(1, 8, 2048, 128)
    compiled = tpuc.compile(Attention(), (x,), targets=["v5e"], output=tmp_path / "a.bin")
    served = [program.serves for program in compiled.manifest.entries_of()[0].programs]
    assert served == [("v5e",), ("cpu", "any")]
    told: list[str] = []
    with tpuc.runtime.load(tmp_path / "a.bin", notify=told.append, cache_dir=tmp_path) as program:
        _assert_equal(program, Attention(), x)
    assert len(told) == 1


@pytest.mark.parametrize("kind", [LinearAlgebra, Complex])
def test_what_a_tpu_computes_in_another_way(kind: type[nn.Module], tmp_path: Path) -> None:
    """LAPACK for the one and loops for the other, and complex numbers, which passes have to read."""
    module, x = kind(), torch.randn(8, 8)
    tpuc.compile(module, (x,), targets=["cpu", "v5e"], output=tmp_path / "a.bin")
    with tpuc.runtime.load(tmp_path / "a.bin") as program:
        _assert_equal(program, module, x)


class TalkingHeads(nn.Module):
    """Attention of one image whose heads are mixed before and after the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return self.after(self.before(q @ k).softmax(-1)) @ v


def test_a_pass_of_libtpu_that_fails_is_left_out(tmp_path: Path) -> None:
    args = (torch.randn(1, 8, 49, 32), torch.randn(1, 8, 32, 49), torch.randn(1, 8, 49, 128))
    compiled = tpuc.compile(TalkingHeads(), args, targets=["v5e"], output=tmp_path / "a.bin")
    assert [each.executable.disabled_pass for each in compiled.executables] == ["space-to-batch-converter"]
    assert any("space-to-batch-converter fails on v5e" in note for note in compiled.progress.notes)
