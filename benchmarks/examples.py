"""The PyTorch models that are measured, each with its inputs by name."""

from __future__ import annotations

import inspect

import torch
from transformers import BertConfig, BertModel

from benchmarks.common import ROOT
from tpuc.fake import lazy_weights
from tpuc.loader import load_model
from tpuc.shapes import parse_shapes

#: A module in inference mode, and its inputs.
Example = tuple[torch.nn.Module, dict[str, torch.Tensor]]


def bert_base() -> Example:
    """BERT-base in f32 with random weights, at batch 1 and 128 tokens."""
    torch.manual_seed(0)
    tokens = torch.randint(0, 30522, (1, 128))
    return BertModel(BertConfig()).eval(), {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def bert_large() -> Example:
    """BERT-large in bf16, at batch 8 and 512 tokens; its weights have no memory."""
    config = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    with lazy_weights(enabled=True):
        module = BertModel(config).eval().to(torch.bfloat16)
    tokens = torch.zeros(8, 512, dtype=torch.int64)
    return module, {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def resnet50() -> Example:
    """The zoo's ResNet-50 in f32 with random weights, at batch 1."""
    loaded = load_model(str(ROOT / "models" / "resnet50.py"))
    assert isinstance(loaded.program, torch.nn.Module)
    return loaded.program, {"x": loaded.args[0]}


def resnet50_batch() -> Example:
    """The same in bf16, at batch 64."""
    module, _ = resnet50()
    return module.to(torch.bfloat16), {"x": torch.zeros(64, 3, 224, 224, dtype=torch.bfloat16)}


def llama_7b() -> Example:
    """LLaMA-7B in bf16, at 2048 tokens; its weights have no memory."""
    return _without_weights("llama_7b", "input_ids=i64[1,2048]")


def sdxl_unet() -> Example:
    """The UNet of SDXL in bf16, for four pictures of 1024 x 1024; its weights have no memory."""
    return _without_weights(
        "sdxl_unet",
        "sample=bf16[4,4,128,128] timestep=i64[] encoder_hidden_states=bf16[4,77,2048] text_embeds=bf16[4,1280] "
        "time_ids=bf16[4,6]",
    )


def _without_weights(name: str, shapes: str) -> Example:
    loaded = load_model(f"{ROOT / 'models' / name}.py:model", shapes=parse_shapes(shapes), with_weights=False)
    assert isinstance(loaded.program, torch.nn.Module)
    names = inspect.signature(loaded.program.forward).parameters
    return loaded.program, {**dict(zip(names, loaded.args, strict=False)), **loaded.kwargs}
