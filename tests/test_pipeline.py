"""What a compile puts into an artifact: programs by target, and tensors prepared from weights."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import tpuc
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


class Attention(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


def _assert_equal(program: Program, module: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        np.testing.assert_allclose(program(x.numpy()), module(x).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weights", ["embed", "external", "none"])
def test_what_depends_on_weights_alone_is_prepared(tmp_path: Path, weights: str) -> None:
    module, x = Normed().eval(), torch.randn(1, 3, 8, 8)
    expected = Normed().eval()
    compiled = tpuc.compile(module, (x,), targets=["cpu"], output=tmp_path / "a.bin", weights=weights)  # type: ignore[arg-type]
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
