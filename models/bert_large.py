"""BERT-large, from transformers' configuration.

Reference: Devlin, Chang, Lee and Toutanova, "BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding" (NAACL 2019). 24 layers of width 1024, 335 M parameters, random here.

Inputs: `input_ids=i64[1,128] attention_mask=i64[1,128]`. Outputs: `last_hidden_state`, `pooler_output`.
"""

import torch
from torch import nn
from transformers import BertConfig, BertModel


def model() -> nn.Module:
    """Makes the encoder with random weights."""
    torch.manual_seed(0)
    config = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    return BertModel(config)


def example_inputs() -> dict[str, torch.Tensor]:
    """A sentence of random tokens, the last quarter of it padding."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones(1, 128, dtype=torch.int64)
    mask[:, 96:] = 0
    return {"input_ids": torch.randint(0, 30522, (1, 128), generator=generator), "attention_mask": mask}
