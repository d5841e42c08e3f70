"""Whole models as torch-mlir leaves them: after the passes they are plain StableHLO, and compute what eager does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from jaxlib.mlir import ir
from torch import nn
from torch_mlir import ir as torch_mlir_ir
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras.fx_importer import FxImporter
from torch_mlir.passmanager import PassManager
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

from tpuc import mlir
from tpuc.frontend.torch_mlir_worker import PIPELINE as TORCH_MLIR_PIPELINE
from tpuc.passes import PIPELINE, PassReport, run_passes
from tpuc.passes.rewrite import nested_ops
from tpuc.targets import CPU

from .evaluation import evaluate


class ConvNet(nn.Module):
    """Convolutions, pooling, and batch norm written out, which torch-mlir has no lowering for."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.mean = nn.Parameter(torch.randn(8))
        self.variance = nn.Parameter(torch.rand(8) + 0.5)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = (x - self.mean[:, None, None]) * torch.rsqrt(self.variance + 1e-5)[:, None, None]
        x = nn.functional.max_pool2d(torch.relu(x), 3, 2, 1)
        x = x + torch.relu(self.second(x))
        x = nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)
        result: torch.Tensor = self.head(x) / x.std(1, keepdim=True)
        return result


def conv_net() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    return ConvNet(), {"x": torch.randn(2, 3, 16, 16)}


def bert() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    config = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    mask = torch.ones(1, 8, dtype=torch.int64)
    mask[0, 6:] = 0
    return BertModel(config), {"input_ids": torch.randint(50, (1, 8)), "attention_mask": mask}


def llama() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        use_cache=False,
    )
    return LlamaForCausalLM(config), {"input_ids": torch.randint(50, (1, 8))}


def lower(model: nn.Module, inputs: dict[str, torch.Tensor]) -> tuple[str, list[torch.Tensor]]:
    """Takes a model through torch-mlir, with everything decomposed; returns the text and `@main`'s arguments."""
    exported = torch.export.export(model, (), kwargs=inputs, strict=False).run_decompositions()
    context = torch_mlir_ir.Context()
    torch_dialect.register_dialect(context)
    importer = FxImporter(context=context)
    importer.import_stateless_graph(exported.graph)
    with context:
        for name in TORCH_MLIR_PIPELINE:
            PassManager.parse(f"builtin.module({name})").run(importer.module.operation)
    tensors: dict[str, Any] = {**exported.state_dict, **exported.constants, **inputs}
    arguments = [tensors[spec.target or spec.arg.name] for spec in exported.graph_signature.input_specs]
    return importer.module.operation.get_asm(enable_debug_info=True), arguments


@pytest.mark.parametrize(
    ("make", "rules"),
    [
        (conv_net, {"narrow_island", "dot_of_transpose", "divide_elements", "drop_neutral"}),
        (bert, {"fold_not", "dot_of_transpose", "dynamic_gather", "sink_below_elementwise"}),
        (llama, {"fold_not", "dot_of_transpose", "dynamic_gather", "broadcast_of_transpose"}),
    ],
)
def test_model(make: Callable[[], tuple[nn.Module, dict[str, torch.Tensor]]], rules: set[str]) -> None:
    torch.manual_seed(0)
    model, inputs = make()
    model.eval()
    text, arguments = lower(model, inputs)
    with torch.no_grad():
        expected = model(**inputs)
    expected = list(expected.values()) if isinstance(expected, dict) else [expected]
    fired: set[str] = set()

    def note(report: PassReport) -> None:
        fired.update(report.rewrites)

    with mlir.make_context() as context:
        module = mlir.parse(text, context)
        run_passes(module, PIPELINE, CPU, observer=note)
        assert all(_is_plain(op) for op in nested_ops(module.operation))
        assert "f64" not in mlir.to_text(module)
        results = evaluate(module, [argument.detach().numpy() for argument in arguments])
    assert rules <= fired
    for result, reference in zip(results, expected, strict=True):
        scale = float(reference.abs().max())
        np.testing.assert_allclose(result, reference.numpy(), rtol=1e-4, atol=1e-4 * scale)


def _is_plain(op: ir.OpView | ir.Operation) -> bool:
    is_dynamic = "dynamic_" in op.name and op.name not in ("stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice")
    is_known = op.name.startswith(("stablehlo.", "func.", "builtin.", "chlo."))
    return is_known and not is_dynamic and not op.name.startswith(("chlo.broadcast_", "chlo.constant"))
