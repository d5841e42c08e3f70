"""LLaMA-7B prefill, from transformers' configuration.

Reference: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models" (2023). 32 layers of width 4096,
6.7 B parameters in bf16. For a TPU it is compiled at full size with no memory for its weights; on the CPU two
layers of it, in f32 and with random weights, are compared with eager.

Input: `input_ids=i64[1,2048]`. Output: `logits`. At 2048 tokens it needs 13.1 GiB: a v5e holds it, a v2 does not.
"""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

ZOO = {
    "tpu": {
        "symbol": "model",
        "shapes": "input_ids=i64[1,2048]",
        "weights": "none",
        "chips": ["v5e", "v5p", "v6e", "v7x"],
    },
    "cpu": {"symbol": "two_layers", "shapes": "input_ids=i64[1,128]"},
}


def model() -> nn.Module:
    """Makes the network at full size, in bf16."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        return LlamaForCausalLM(LlamaConfig(use_cache=False))
    finally:
        torch.set_default_dtype(default)


def two_layers() -> nn.Module:
    """Makes two layers of the same widths, in f32, with random weights."""
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(use_cache=False, num_hidden_layers=2))
