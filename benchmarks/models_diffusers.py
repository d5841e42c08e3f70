"""UNets, transformers and autoencoders of diffusers, small and with random weights, as a suite of the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import diffusers
import torch

from benchmarks.against_eager import Runner, Verdict
from benchmarks.modules import run_module


@dataclass(frozen=True)
class _Model:
    """A configuration, and the inputs by name: a shape of normal numbers, or a function that makes a tensor."""

    config: Mapping[str, Any]
    inputs: Mapping[str, tuple[int, ...] | Callable[[], Any]]


def _steps() -> torch.Tensor:
    return torch.tensor([3, 700])


def _step() -> torch.Tensor:
    return torch.tensor([3])


def _part_steps() -> torch.Tensor:
    return torch.tensor([0.25, 0.75])


def _ones(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[], torch.Tensor]:
    return lambda: torch.ones(shape, dtype=dtype)


def _integers(high: int, *shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(high, shape)


#: A UNet of two levels; `kind` is the suffix of its blocks.
def _levels(kind: str) -> dict[str, Any]:
    return {
        "sample_size": 16,
        "block_out_channels": (16, 32),
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "cross_attention_dim": 24,
        "down_block_types": (f"CrossAttnDownBlock{kind}", f"DownBlock{kind}"),
        "up_block_types": (f"UpBlock{kind}", f"CrossAttnUpBlock{kind}"),
    }


_IMAGE = {"sample": (2, 3, 32, 32)}
_VIDEO = {"sample": (1, 3, 5, 16, 16)}
_SMALL_VAE = {
    "block_out_channels": (16, 32),
    "down_block_types": ("DownEncoderBlock2D", "DownEncoderBlock2D"),
    "up_block_types": ("UpDecoderBlock2D", "UpDecoderBlock2D"),
    "latent_channels": 4,
    "norm_num_groups": 4,
}
MODELS: Mapping[str, _Model] = {
    "UNet1DModel": _Model(
        {"sample_size": 64, "in_channels": 2, "block_out_channels": (32, 32, 64), "extra_in_channels": 64},
        {"sample": (2, 2, 64), "timestep": _steps},
    ),
    "UNet2DModel": _Model(
        {
            "sample_size": 16,
            "block_out_channels": (16, 32),
            "layers_per_block": 1,
            "norm_num_groups": 4,
            "attention_head_dim": 4,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        },
        {"sample": (2, 3, 16, 16), "timestep": _steps},
    ),
    "UNet2DConditionModel": _Model(
        {**_levels("2D"), "attention_head_dim": 4},
        {"sample": (2, 4, 16, 16), "timestep": _steps, "encoder_hidden_states": (2, 7, 24)},
    ),
    "UNet3DConditionModel": _Model(
        {**_levels("3D"), "attention_head_dim": 4},
        {"sample": (2, 4, 3, 16, 16), "timestep": _steps, "encoder_hidden_states": (2, 7, 24)},
    ),
    "UNetMotionModel": _Model(
        {**_levels("Motion"), "num_attention_heads": 2, "motion_num_attention_heads": 2},
        {"sample": (1, 4, 3, 16, 16), "timestep": _step, "encoder_hidden_states": (3, 7, 24)},
    ),
    "UNetSpatioTemporalConditionModel": _Model(
        {
            **{name: value for name, value in _levels("SpatioTemporal").items() if name != "norm_num_groups"},
            "block_out_channels": (32, 64),
            "num_attention_heads": (2, 4),
            "num_frames": 3,
            "addition_time_embed_dim": 8,
            "projection_class_embeddings_input_dim": 24,
        },
        {
            "sample": (2, 3, 8, 16, 16),
            "timestep": _steps,
            "encoder_hidden_states": (2, 1, 24),
            "added_time_ids": (2, 3),
        },
    ),
    "StableCascadeUNet": _Model(
        {
            "in_channels": 4,
            "out_channels": 4,
            "timestep_ratio_embedding_dim": 16,
            "conditioning_dim": 32,
            "block_out_channels": (16, 32),
            "num_attention_heads": (2, 4),
            "down_num_layers_per_block": (1, 1),
            "up_num_layers_per_block": (1, 1),
            "clip_text_pooled_in_channels": 24,
            "clip_seq": 2,
        },
        {"sample": (2, 4, 8, 8), "timestep_ratio": _part_steps, "clip_text_pooled": (2, 1, 24)},
    ),
    "UVit2DModel": _Model(
        {
            "hidden_size": 32,
            "cond_embed_dim": 24,
            "micro_cond_encode_dim": 8,
            "micro_cond_embed_dim": 40,
            "encoder_hidden_size": 24,
            "vocab_size": 40,
            "codebook_size": 32,
            "in_channels": 32,
            "block_out_channels": 32,
            "num_res_blocks": 1,
            "block_num_heads": 4,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 64,
            "sample_size": 8,
        },
        {
            "input_ids": _integers(32, 2, 8, 8),
            "encoder_hidden_states": (2, 7, 24),
            "pooled_text_emb": (2, 24),
            "micro_conds": (2, 5),
        },
    ),
    "Kandinsky3UNet": _Model(
        {
            "time_embedding_dim": 32,
            "groups": 4,
            "attention_head_dim": 8,
            "layers_per_block": 2,
            "block_out_channels": (16, 16, 32, 32),
            "cross_attention_dim": 24,
            "encoder_hid_dim": 24,
        },
        {
            "sample": (2, 4, 16, 16),
            "timestep": _steps,
            "encoder_hidden_states": (2, 7, 24),
            "encoder_attention_mask": _ones(2, 7),
        },
    ),
    "DiTTransformer2DModel": _Model(
        {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2, "sample_size": 8},
        {"hidden_states": (2, 4, 8, 8), "timestep": _steps, "class_labels": _integers(1000, 2)},
    ),
    "PixArtTransformer2DModel": _Model(
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "num_layers": 2,
            "sample_size": 8,
            "cross_attention_dim": 16,
            "caption_channels": 24,
            "use_additional_conditions": False,
        },
        {
            "hidden_states": (2, 4, 8, 8),
            "encoder_hidden_states": (2, 7, 24),
            "timestep": _steps,
            "added_cond_kwargs": lambda: {"resolution": None, "aspect_ratio": None},
        },
    ),
    "SD3Transformer2DModel": _Model(
        {
            "sample_size": 8,
            "in_channels": 4,
            "num_layers": 2,
            "attention_head_dim": 8,
            "num_attention_heads": 2,
            "joint_attention_dim": 24,
            "caption_projection_dim": 16,
            "pooled_projection_dim": 24,
            "out_channels": 4,
            "pos_embed_max_size": 8,
            "qk_norm": "rms_norm",
        },
        {
            "hidden_states": (2, 4, 8, 8),
            "encoder_hidden_states": (2, 7, 24),
            "pooled_projections": (2, 24),
            "timestep": _steps,
        },
    ),
    "FluxTransformer2DModel": _Model(
        {
            "in_channels": 4,
            "num_layers": 1,
            "num_single_layers": 1,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 24,
            "pooled_projection_dim": 24,
            "axes_dims_rope": (4, 4, 8),
        },
        {
            "hidden_states": (2, 16, 4),
            "encoder_hidden_states": (2, 7, 24),
            "pooled_projections": (2, 24),
            "timestep": _part_steps,
            "img_ids": (16, 3),
            "txt_ids": (7, 3),
        },
    ),
    "AuraFlowTransformer2DModel": _Model(
        {
            "sample_size": 8,
            "num_mmdit_layers": 1,
            "num_single_dit_layers": 1,
            "attention_head_dim": 8,
            "num_attention_heads": 2,
            "joint_attention_dim": 24,
            "caption_projection_dim": 16,
            "pos_embed_max_size": 16,
        },
        {"hidden_states": (2, 4, 8, 8), "encoder_hidden_states": (2, 7, 24), "timestep": _part_steps},
    ),
    "CogVideoXTransformer3DModel": _Model(
        {
            "num_attention_heads": 2,
            "attention_head_dim": 16,
            "in_channels": 4,
            "out_channels": 4,
            "time_embed_dim": 8,
            "text_embed_dim": 24,
            "num_layers": 2,
            "sample_width": 8,
            "sample_height": 8,
            "sample_frames": 9,
            "max_text_seq_length": 7,
        },
        {"hidden_states": (1, 3, 4, 8, 8), "encoder_hidden_states": (1, 7, 24), "timestep": _step},
    ),
    "LatteTransformer3DModel": _Model(
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "in_channels": 4,
            "out_channels": 8,
            "num_layers": 1,
            "cross_attention_dim": 16,
            "attention_bias": True,
            "sample_size": 8,
            "patch_size": 2,
            "activation_fn": "gelu-approximate",
            "num_embeds_ada_norm": 1000,
            "norm_type": "ada_norm_single",
            "norm_elementwise_affine": False,
            "caption_channels": 24,
            "video_length": 2,
        },
        {"hidden_states": (1, 4, 2, 8, 8), "timestep": _step, "encoder_hidden_states": (1, 7, 24)},
    ),
    "Lumina2Transformer2DModel": _Model(
        {
            "sample_size": 8,
            "in_channels": 4,
            "hidden_size": 24,
            "num_layers": 2,
            "num_refiner_layers": 1,
            "num_attention_heads": 3,
            "num_kv_heads": 1,
            "multiple_of": 2,
            "axes_dim_rope": (4, 2, 2),
            "axes_lens": (16, 16, 16),
            "cap_feat_dim": 24,
        },
        {
            "hidden_states": (2, 4, 8, 8),
            "timestep": _part_steps,
            "encoder_hidden_states": (2, 7, 24),
            "encoder_attention_mask": _ones(2, 7, dtype=torch.bool),
        },
    ),
    "SanaTransformer2DModel": _Model(
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "num_layers": 1,
            "num_cross_attention_heads": 2,
            "cross_attention_head_dim": 8,
            "cross_attention_dim": 16,
            "caption_channels": 24,
            "sample_size": 8,
        },
        {"hidden_states": (2, 4, 8, 8), "encoder_hidden_states": (2, 7, 24), "timestep": _steps},
    ),
    "LTXVideoTransformer3DModel": _Model(
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "cross_attention_dim": 16,
            "num_layers": 1,
            "caption_channels": 24,
        },
        {
            "hidden_states": (2, 2 * 4 * 4, 4),
            "encoder_hidden_states": (2, 7, 24),
            "timestep": _steps,
            "encoder_attention_mask": _ones(2, 7),
            "num_frames": lambda: 2,
            "height": lambda: 4,
            "width": lambda: 4,
        },
    ),
    "MochiTransformer3DModel": _Model(
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "num_layers": 2,
            "pooled_projection_dim": 16,
            "in_channels": 4,
            "text_embed_dim": 24,
            "time_embed_dim": 16,
            "max_sequence_length": 7,
        },
        {
            "hidden_states": (2, 4, 2, 8, 8),
            "encoder_hidden_states": (2, 7, 24),
            "timestep": _steps,
            "encoder_attention_mask": _ones(2, 7, dtype=torch.bool),
        },
    ),
    "CogView3PlusTransformer2DModel": _Model(
        {
            "in_channels": 4,
            "num_layers": 1,
            "attention_head_dim": 8,
            "num_attention_heads": 2,
            "out_channels": 4,
            "text_embed_dim": 24,
            "time_embed_dim": 16,
            "condition_dim": 4,
            "pos_embed_max_size": 16,
            "sample_size": 8,
        },
        {
            "hidden_states": (2, 4, 8, 8),
            "encoder_hidden_states": (2, 7, 24),
            "timestep": _steps,
            "original_size": _ones(2, 2),
            "target_size": _ones(2, 2),
            "crop_coords": _ones(2, 2),
        },
    ),
    "Transformer2DModel": _Model(
        {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 16, "norm_num_groups": 4},
        {"hidden_states": (2, 16, 8, 8)},
    ),
    "TransformerTemporalModel": _Model(
        {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 16, "norm_num_groups": 4},
        {"hidden_states": (4, 16, 8, 8), "num_frames": lambda: 2},
    ),
    "PriorTransformer": _Model(
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "num_layers": 2,
            "embedding_dim": 16,
            "num_embeddings": 7,
        },
        {
            "hidden_states": (2, 16),
            "timestep": _steps,
            "proj_embedding": (2, 16),
            "encoder_hidden_states": (2, 7, 16),
        },
    ),
    "WanTransformer3DModel": _Model(
        {
            "num_attention_heads": 2,
            "attention_head_dim": 12,
            "in_channels": 4,
            "out_channels": 4,
            "text_dim": 24,
            "freq_dim": 16,
            "ffn_dim": 32,
            "num_layers": 2,
            "rope_max_seq_len": 32,
        },
        {"hidden_states": (1, 4, 2, 8, 8), "timestep": _step, "encoder_hidden_states": (1, 7, 24)},
    ),
    "AutoencoderKL": _Model(_SMALL_VAE, _IMAGE),
    "AsymmetricAutoencoderKL": _Model(
        {
            "down_block_types": ("DownEncoderBlock2D", "DownEncoderBlock2D"),
            "down_block_out_channels": (16, 32),
            "up_block_types": ("UpDecoderBlock2D", "UpDecoderBlock2D"),
            "up_block_out_channels": (16, 32),
            "norm_num_groups": 4,
        },
        _IMAGE,
    ),
    "AutoencoderTiny": _Model(
        {
            "encoder_block_out_channels": (16, 16),
            "decoder_block_out_channels": (16, 16),
            "num_encoder_blocks": (1, 1),
            "num_decoder_blocks": (1, 1),
        },
        _IMAGE,
    ),
    "AutoencoderDC": _Model(
        {
            "latent_channels": 4,
            "attention_head_dim": 8,
            "encoder_block_types": ("ResBlock", "EfficientViTBlock"),
            "decoder_block_types": ("ResBlock", "EfficientViTBlock"),
            "encoder_block_out_channels": (16, 32),
            "decoder_block_out_channels": (16, 32),
            "encoder_layers_per_block": (1, 1),
            "decoder_layers_per_block": (1, 1),
            "encoder_qkv_multiscales": ((), (5,)),
            "decoder_qkv_multiscales": ((), (5,)),
            "downsample_block_type": "Conv",
            "upsample_block_type": "interpolate",
            "decoder_norm_types": "rms_norm",
            "decoder_act_fns": "silu",
        },
        _IMAGE,
    ),
    "AutoencoderKLTemporalDecoder": _Model(
        {
            "block_out_channels": (32, 32),
            "down_block_types": ("DownEncoderBlock2D", "DownEncoderBlock2D"),
            "latent_channels": 4,
        },
        {"sample": (2, 3, 16, 16), "num_frames": lambda: 2},
    ),
    "AutoencoderKLCogVideoX": _Model(
        {
            "block_out_channels": (8, 8, 8, 8),
            "down_block_types": ("CogVideoXDownBlock3D",) * 4,
            "up_block_types": ("CogVideoXUpBlock3D",) * 4,
            "latent_channels": 4,
            "layers_per_block": 1,
            "norm_num_groups": 2,
            "temporal_compression_ratio": 4,
        },
        _VIDEO,
    ),
    "AutoencoderKLWan": _Model(
        {
            "base_dim": 4,
            "z_dim": 4,
            "dim_mult": [1, 1, 1, 1],
            "num_res_blocks": 1,
            "temperal_downsample": [False, True, True],
        },
        _VIDEO,
    ),
    "AutoencoderKLLTXVideo": _Model(
        {
            "latent_channels": 8,
            "block_out_channels": (8, 8, 8, 8),
            "decoder_block_out_channels": (8, 8, 8, 8),
            "layers_per_block": (1, 1, 1, 1, 1),
            "decoder_layers_per_block": (1, 1, 1, 1, 1),
            "patch_size": 1,
        },
        {"sample": (1, 3, 9, 16, 16)},
    ),
    "AutoencoderOobleck": _Model(
        {
            "encoder_hidden_size": 8,
            "downsampling_ratios": [2, 4],
            "channel_multiples": [1, 2],
            "decoder_channels": 8,
            "decoder_input_channels": 4,
        },
        {"sample": (2, 2, 64)},
    ),
    "VQModel": _Model(
        {
            "block_out_channels": (16, 32),
            "down_block_types": ("DownEncoderBlock2D", "DownEncoderBlock2D"),
            "up_block_types": ("UpDecoderBlock2D", "UpDecoderBlock2D"),
            "norm_num_groups": 4,
            "num_vq_embeddings": 32,
        },
        _IMAGE,
    ),
}


def names() -> list[str]:
    """The classes, by diffusers' names for them."""
    return list(MODELS)


def cases(name: str) -> list[str]:
    """One: the model on its inputs."""
    return [""]


def run(runner: Runner, name: str, case: str) -> Verdict:
    """Runs a model."""
    torch.manual_seed(0)
    model, inputs = _model(name)
    return run_module(runner, model, (), inputs)


def _model(name: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    given = MODELS[name]
    model: torch.nn.Module = getattr(diffusers, name)(**given.config)
    inputs = {key: torch.randn(made) if isinstance(made, tuple) else made() for key, made in given.inputs.items()}
    return model.eval(), inputs
