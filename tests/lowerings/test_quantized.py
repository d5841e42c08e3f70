"""Quantized graphs: the operators of `quantized_decomposed`, and a model that PT2E quantizes."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # Registers the operators.
from torch import Tensor, nn
from torchao.quantization.pt2e import MinMaxObserver, PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, QuantizationSpec, Quantizer

import tpuc

from .support import check

Q = torch.ops.quantized_decomposed

#: Halves, which round to even; both ends of the range and beyond.
X = torch.tensor([[0.5, -0.5, 1.5, 2.5], [-3.75, 100.0, -100.0, 0.0], [0.05, 0.15, -0.25, 12.6]])
SCALES = torch.tensor([0.1, 0.5, 0.02])
ZERO_POINTS = torch.tensor([0, 3, -7])


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(-128, 127, torch.int8), (0, 255, torch.uint8), (-8, 7, torch.int8), (-32768, 32767, torch.int16)],
)
def test_one_scale_for_a_tensor(low: int, high: int, dtype: torch.dtype) -> None:
    zero_point = (low + high) // 2

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        quantized = Q.quantize_per_tensor.default(x, 0.1, zero_point, low, high, dtype)
        return quantized, Q.dequantize_per_tensor.default(quantized, 0.1, zero_point, low, high, dtype)

    check(function, X)


def test_a_scale_that_is_a_tensor() -> None:
    scale, zero_point = torch.tensor(0.5), torch.tensor(3)
    low, high = torch.tensor(-128), torch.tensor(127)
    check(lambda x, s, z: Q.quantize_per_tensor.tensor(x, s, z, -128, 127, torch.int8), X, scale, zero_point)
    check(
        lambda x, s, z, a, b: Q.quantize_per_tensor.tensor2(x, s, z, a, b, torch.int8), X, scale, zero_point, low, high
    )
    check(
        lambda x, s, z: Q.dequantize_per_tensor.tensor(x, s, z, -128, 127, torch.int8),
        X.to(torch.int8),
        scale,
        zero_point,
    )


@pytest.mark.parametrize("axis", [0, -2])
def test_a_scale_for_each_channel(axis: int) -> None:
    def function(x: Tensor, scales: Tensor, zero_points: Tensor) -> tuple[Tensor, Tensor]:
        quantized = Q.quantize_per_channel.default(x, scales, zero_points, axis, -128, 127, torch.int8)
        return quantized, Q.dequantize_per_channel.default(
            quantized, scales, zero_points, axis, -128, 127, torch.int8, out_dtype=torch.float32
        )

    check(function, X, SCALES, ZERO_POINTS)


def test_symmetric_channels_have_no_zero_points() -> None:
    check(
        lambda x, scales: Q.dequantize_per_channel.default(x, scales, None, 0, -127, 127, torch.int8),
        X.to(torch.int8),
        SCALES,
    )


def test_a_scale_for_each_token() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        scales, zero_points = Q._choose_qparams_per_token_asymmetric_impl(x, torch.int8)
        quantized = Q.quantize_per_token.default(x, scales, zero_points, -128, 127, torch.int8)
        real = Q.dequantize_per_token.default(quantized, scales, zero_points, -128, 127, torch.int8, torch.float32)
        return scales.float(), quantized, real  # Computed in f32, and given as f64.

    check(function, X)
    # PyTorch's kernel gives f32; its shape function, and so an exported program, says f64 and i64.
    check(lambda x: [result.float() for result in Q.choose_qparams_per_token.default(x, torch.int8)], X)


def test_a_scale_for_each_group_of_a_row() -> None:
    scales, zero_points = torch.tensor([[0.1, 0.5], [2.0, 1.0], [0.02, 0.3]]), torch.zeros(3, 2)

    def function(x: Tensor, scales: Tensor, zero_points: Tensor) -> tuple[Tensor, Tensor]:
        quantized = Q.quantize_per_channel_group.default(x, scales, zero_points, -8, 7, torch.int8, 2)
        return quantized, Q.dequantize_per_channel_group.default(
            quantized, scales, zero_points, -8, 7, torch.int8, 2, torch.float32
        )

    check(function, X, scales, zero_points)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: Q.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8),
        lambda x: Q.choose_qparams_symmetric.tensor(x, -127, 127, 1e-5, torch.int8),
    ],
    ids=["affine", "symmetric"],
)
@pytest.mark.parametrize("x", [X, X.abs() + 1, torch.zeros(3)], ids=["both signs", "positive", "zeros"])
def test_the_scale_of_a_range(function: Callable[..., Any], x: Tensor) -> None:
    def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
        scale, zero_point = function(x)
        return scale.float(), zero_point  # Computed in f32, and given as f64.

    check(rounded, x)


def test_fake_quantization_stays_real() -> None:
    check(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127), X)
    check(lambda x: torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 0.01, 3, -128, 127), X)
    for enabled in (0, 1):
        check(
            torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams,
            X,
            torch.tensor([0.01]),
            torch.tensor([3], dtype=torch.int32),
            torch.tensor([enabled]),
            -128,
            127,
        )
    check(
        lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 0, -128, 127),
        X,
        SCALES,
        ZERO_POINTS.to(torch.int32),
    )


def test_a_product_of_bytes_is_exact() -> None:
    x = torch.full((17, 64), -128, dtype=torch.int8)
    check(torch._int_mm, x, torch.full((64, 8), 127, dtype=torch.int8))


class _Int8(Quantizer):  # type: ignore[misc]  # torchao has no types.
    """int8 for the inputs and, a scale for each output channel, the weights of linear layers and convolutions."""

    INPUT = QuantizationSpec(
        dtype=torch.int8,
        quant_min=-128,
        quant_max=127,
        qscheme=torch.per_tensor_affine,
        observer_or_fake_quant_ctr=MinMaxObserver,
    )
    WEIGHT = QuantizationSpec(
        dtype=torch.int8,
        quant_min=-127,
        quant_max=127,
        qscheme=torch.per_channel_symmetric,
        ch_axis=0,
        observer_or_fake_quant_ctr=PerChannelMinMaxObserver,
    )

    def annotate(self, model: torch.fx.GraphModule) -> torch.fx.GraphModule:
        for node in model.graph.nodes:
            if node.target in (torch.ops.aten.linear.default, torch.ops.aten.conv2d.default):
                x, weight = node.args[:2]
                node.meta["quantization_annotation"] = QuantizationAnnotation(
                    input_qspec_map={x: self.INPUT, weight: self.WEIGHT}, _annotated=True
                )
        return model

    def validate(self, model: torch.fx.GraphModule) -> None:
        pass


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, 3)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))


@pytest.fixture(scope="module")
def picture() -> Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def quantized(picture: Tensor) -> torch.fx.GraphModule:
    prepared = prepare_pt2e(torch.export.export(_Net().eval(), (picture,)).module(), _Int8())
    prepared(picture)  # Shows the observers the range.
    module = convert_pt2e(prepared)
    assert isinstance(module, torch.fx.GraphModule)
    return module


def test_a_pt2e_model_keeps_its_int8_weights(quantized: torch.fx.GraphModule, picture: Tensor, tmp_path: Path) -> None:
    compiled = tpuc.compile(quantized, (picture,), targets=["cpu", "v5e"], output=tmp_path / "net.bin")
    weights = {tuple(weight.dims): weight.dtype for weight in compiled.manifest.weights if len(weight.dims) > 1}
    assert weights == {(8, 3, 3, 3): "i8", (4, 8): "i8"}
    with tpuc.runtime.load(compiled.path) as program:
        output = program(picture.numpy())
    expected = quantized(picture).detach().numpy()
    # A sum on the edge between two integers may round to the other; nothing here is.
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)


def test_a_saved_pt2e_program_loads_where_nothing_has_registered_its_operators(
    quantized: torch.fx.GraphModule, picture: Tensor, tmp_path: Path
) -> None:
    torch.export.save(torch.export.export(quantized, (picture,)), tmp_path / "net.pt2")
    command = [sys.executable, "-m", "tpuc.cli", "compile", "net.pt2"]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
