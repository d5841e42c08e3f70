"""The UNet of Stable Diffusion XL, from the configuration of its base model, in diffusers' terms.

Reference: Podell et al., "SDXL: Improving Latent Diffusion Models for High-Resolution Image Synthesis" (2023). 2.57 B
parameters in bf16. For a TPU it is compiled at full size with no memory for its weights; on the CPU a narrow one of
the same structure, in f32 and with random weights, is compared with eager.

Inputs: `sample=bf16[1,4,128,128] timestep=i64[] encoder_hidden_states=bf16[1,77,2048] text_embeds=bf16[1,1280]
time_ids=bf16[1,6]`: latents of a picture of 1024 x 1024, the step, the prompt by tokens and as a whole, and the
picture's sizes and crop. Output: the noise in the sample.
"""

from typing import Any

import torch
from diffusers import UNet2DConditionModel
from torch import Tensor, nn

ZOO = {
    "tpu": {
        "symbol": "model",
        "shapes": "sample=bf16[1,4,128,128] timestep=i64[] encoder_hidden_states=bf16[1,77,2048] "
        "text_embeds=bf16[1,1280] time_ids=bf16[1,6]",
        "weights": "none",
        "chips": ["v5e", "v5p", "v6e", "v7x"],
    },
    "cpu": {
        "symbol": "narrow",
        "shapes": "sample=f32[1,4,16,16] timestep=i64[] encoder_hidden_states=f32[1,77,64] "
        "text_embeds=f32[1,64] time_ids=f32[1,6]",
    },
}

CONFIGURATION: dict[str, Any] = {
    "sample_size": 128,
    "in_channels": 4,
    "out_channels": 4,
    "block_out_channels": (320, 640, 1280),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "layers_per_block": 2,
    "transformer_layers_per_block": (1, 2, 10),
    # By diffusers' misnomer, how many heads there are; each is 64 wide.
    "attention_head_dim": (5, 10, 20),
    "cross_attention_dim": 2048,
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    # The prompt's embedding, 1280, and six numbers of 256 each.
    "projection_class_embeddings_input_dim": 2816,
}

#: The same structure with a tenth of the width.
NARROW: dict[str, Any] = CONFIGURATION | {
    "sample_size": 16,
    "block_out_channels": (32, 64, 128),
    "transformer_layers_per_block": (1, 1, 2),
    "attention_head_dim": (1, 2, 4),
    "cross_attention_dim": 64,
    "addition_time_embed_dim": 32,
    "projection_class_embeddings_input_dim": 64 + 6 * 32,
}


class Unet(nn.Module):
    """The network, with the text's embedding and the sizes as inputs of their own."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        super().__init__()
        self.unet = UNet2DConditionModel(**configuration)

    def forward(
        self, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor, text_embeds: Tensor, time_ids: Tensor
    ) -> Tensor:
        """Predicts the noise in latents: [N, 4, H, W] -> [N, 4, H, W]."""
        conditions = {"text_embeds": text_embeds, "time_ids": time_ids}
        return self.unet(sample, timestep, encoder_hidden_states, added_cond_kwargs=conditions, return_dict=False)[0]


def model() -> nn.Module:
    """Makes the network at full size, in bf16."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        return Unet(CONFIGURATION)
    finally:
        torch.set_default_dtype(default)


def narrow() -> nn.Module:
    """Makes the narrow network, in f32, with random weights."""
    torch.manual_seed(0)
    return Unet(NARROW)
