"""The PyTorch models that are measured, each with its inputs by name."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, BertConfig, BertModel, LlamaConfig
from transformers.initialization import no_init_weights

from benchmarks.common import ROOT
from tpuc.loader import load_model

#: A module in inference mode, and its inputs.
Example = tuple[torch.nn.Module, dict[str, torch.Tensor]]


def bert_base() -> Example:
    """BERT-base in f32 with random weights, at batch 1 and 128 tokens."""
    torch.manual_seed(0)
    tokens = torch.randint(0, 30522, (1, 128))
    return BertModel(BertConfig()).eval(), {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def resnet50() -> Example:
    """The zoo's ResNet-50 in f32, at batch 1."""
    loaded = load_model(str(ROOT / "models" / "resnet50.py"))
    assert isinstance(loaded.program, torch.nn.Module)
    return loaded.program, {"x": loaded.args[0]}


def four_llama_layers() -> Example:
    """Four layers of LLaMA-7B in bf16, at 512 tokens, with weights of no value: only to compile."""
    config = LlamaConfig(num_hidden_layers=4, use_cache=False)
    with no_init_weights():
        module = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return module.eval(), {"input_ids": torch.zeros(1, 512, dtype=torch.int64)}
