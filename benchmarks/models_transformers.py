"""Architectures of transformers, small and with random weights, as a suite of the coverage benchmark.

A configuration is made small by setting those of `SMALL` that it has; what more a model needs stands in `OVERRIDES`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from benchmarks.against_eager import Runner, Verdict
from benchmarks.modules import run_module

#: The architectures by kind.
KINDS: Mapping[str, str] = {
    "encoders": """
        albert bert bert-generation big_bird camembert canine convbert data2vec-text deberta deberta-v2 distilbert
        dpr electra ernie eurobert flaubert fnet funnel gte ibert jina_embeddings_v3 layoutlm longformer luke
        markuplm megatron-bert mobilebert modernbert mpnet mra nomic_bert nystromformer reformer rembert roberta
        roberta-prelayernorm roc_bert roformer splinter squeezebert tapas xlm xlm-roberta xlm-roberta-xl yoso
    """,
    "decoders": """
        apertus arcee biogpt bitnet bloom codegen cohere cohere2 cpmant ctrl diffllama doge ernie4_5 exaone4 falcon
        gemma gemma2 gemma3_text glm glm4 gpt2 gpt_bigcode gpt_neox gpt_neox_japanese granite helium hyperclovax
        imagegpt jais2 llama mistral modernbert-decoder mpt nanochat olmo olmo2 olmo3 openai-gpt opt persimmon phi
        phi3 qwen2 qwen3 seed_oss smollm3 stablelm starcoder2 vaultgemma xglm
    """,
    "mixtures of experts": """
        afmoe deepseek_v2 deepseek_v3 ernie4_5_moe flex_olmo glm4_moe gpt_oss granitemoe jetmoe llama4_text minimax
        mixtral olmoe phimoe qwen2_moe qwen3_moe
    """,
    "state spaces and recurrent": """
        bamba falcon_h1 falcon_mamba jamba kimi_linear lfm2 mamba mamba2 nemotron_h qwen3_next recurrent_gemma rwkv
        xlstm zamba2
    """,
    "encoders and decoders": """
        bart bigbird_pegasus blenderbot blenderbot-small fsmt led longt5 m2m_100 marian mbart mt5 mvp nllb-moe
        pegasus pegasus_x plbart prophetnet switch_transformers t5 t5gemma umt5
    """,
    "vision": """
        aimv2_vision_model beit bit convnext convnextv2 cvt data2vec-vision deit dinov2 dinov2_with_registers
        dinov3_vit donut-swin dpt efficientnet focalnet hgnet_v2 ijepa internvl_vision mobilenet_v1 mobilenet_v2
        mobilevit pixtral poolformer pvt regnet resnet segformer siglip_vision_model swiftformer swin swin2sr swinv2
        textnet timesformer videomae vit vit_mae vit_msn vitdet vivit yolos
    """,
    "audio": """
        audio-spectrogram-transformer data2vec-audio glmasr_encoder hubert sew sew-d speech_to_text unispeech
        unispeech-sat vits wav2vec2 wav2vec2-conformer wavlm whisper
    """,
    "vision and language": """
        altclip blip chinese_clip clip clipseg flava git groupvit metaclip_2 owlv2 owlvit siglip vilt visual_bert
    """,
}
#: Settings by the names that configurations use.
SMALL: Mapping[str, Any] = {
    "use_cache": False,
    "vocab_size": 99,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "hidden_size": 32,
    "d_model": 32,
    "n_embd": 32,
    "dim": 32,
    "embed_dim": 32,
    "embedding_size": 32,
    "encoder_hidden_size": 32,
    "decoder_hidden_size": 32,
    "d_kv": 8,
    "head_dim": 8,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_decoder_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "intermediate_size": 64,
    "n_inner": 64,
    "d_ff": 64,
    "d_inner": 64,
    "ffn_dim": 64,
    "hidden_dim": 64,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "image_size": 32,
    "patch_size": 8,
    "projection_dim": 16,
    "max_position_embeddings": 64,
    "n_positions": 64,
}

#: What a model needs beside `SMALL`; None leaves the configuration's own value.
OVERRIDES: Mapping[str, Mapping[str, Any]] = {
    "audio-spectrogram-transformer": {"max_length": 32, "num_mel_bins": 16},
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 16, "attn_layer_indices": [1]},
    "codegen": {"rotary_dim": 4},
    "convnext": {
        "hidden_sizes": [8, 16, 24, 32],
        "depths": [1, 1, 2, 1],
        "num_layers": None,
        "num_hidden_layers": None,
        "patch_size": 4,
    },
    "convnextv2": {
        "hidden_sizes": [8, 16, 24, 32],
        "depths": [1, 1, 2, 1],
        "num_layers": None,
        "num_hidden_layers": None,
        "patch_size": 4,
    },
    "cvt": {"embed_dim": [16, 32, 48], "num_heads": [1, 2, 3], "patch_size": None},
    "deepseek_v2": {
        "head_dim": 4,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "num_key_value_heads": 4,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
        "num_experts_per_tok": 2,
    },
    "deepseek_v3": {
        "head_dim": 4,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "num_key_value_heads": 4,
        "first_k_dense_replace": 1,
        "n_group": 2,
        "topk_group": 1,
    },
    "dinat": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4]},
    "donut-swin": {
        "num_attention_heads": None,
        "embed_dim": 16,
        "depths": [1, 1],
        "num_heads": [2, 4],
        "patch_size": 4,
        "window_size": 4,
    },
    "efficientnet": {"width_coefficient": 0.25, "depth_coefficient": 0.2, "hidden_dim": 320},
    "falcon": {"head_dim": None},
    "funnel": {"num_hidden_layers": None, "block_sizes": [1, 1], "num_decoder_layers": 1, "d_head": 8, "d_inner": 64},
    "luke": {"entity_vocab_size": 8},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 16, "n_groups": 2, "chunk_size": 8, "expand": 2},
    "prophetnet": {"num_hidden_layers": None, "num_encoder_layers": 2, "num_decoder_layers": 2},
    "pvt": {
        "num_attention_heads": [1, 2, 2, 4],
        "hidden_sizes": [8, 16, 24, 32],
        "depths": [1, 1, 1, 1],
        "patch_sizes": [4, 2, 2, 2],
    },
    "reformer": {"axial_pos_embds": False, "num_hidden_layers": None, "attn_layers": ["local", "local"]},
    "segformer": {
        "num_attention_heads": [1, 2, 2, 4],
        "hidden_sizes": [8, 16, 24, 32],
        "depths": [1, 1, 1, 1],
        "decoder_hidden_size": None,
    },
    "speech_to_text": {"input_feat_per_channel": 16, "conv_channels": 32, "max_source_positions": 64},
    "swin": {
        "num_attention_heads": None,
        "embed_dim": 16,
        "depths": [1, 2],
        "num_heads": [2, 4],
        "patch_size": 4,
        "window_size": 4,
    },
    "swin2sr": {
        "num_attention_heads": None,
        "embed_dim": 16,
        "depths": [1, 2],
        "num_heads": [2, 4],
        "patch_size": 1,
        "window_size": 4,
    },
    "swinv2": {
        "num_attention_heads": None,
        "embed_dim": 16,
        "depths": [1, 2],
        "num_heads": [2, 4],
        "patch_size": 4,
        "window_size": 4,
    },
    "timesformer": {"num_frames": 4},
    "videomae": {"num_frames": 4},
    "vivit": {"num_frames": 4, "tubelet_size": [2, 8, 8]},
    "whisper": {"max_source_positions": 32, "num_mel_bins": 16},
    "yolos": {"image_size": [32, 32], "num_detection_tokens": 4},
    "zamba2": {"num_hidden_layers": None},
}

#: What needs a mask of its input: while they are exported these make none, and then read it.
MASKED = ("longt5", "switch_transformers")


def names() -> list[str]:
    """The architectures, by transformers' names for them."""
    return [name for kind in KINDS.values() for name in kind.split()]


def cases(name: str) -> list[str]:
    """One: the model on its inputs."""
    return [""]


def run(runner: Runner, name: str, case: str) -> Verdict:
    """Runs a model."""
    torch.manual_seed(0)
    model = _model(name)
    return run_module(runner, model, (), _inputs(name, model))


def _model(name: str) -> PreTrainedModel:
    transformers.logging.set_verbosity_error()
    architecture = MODEL_MAPPING_NAMES[name]
    found = getattr(transformers, architecture if isinstance(architecture, str) else architecture[0])
    model: PreTrainedModel = found(_small(CONFIG_MAPPING[name], OVERRIDES.get(name, {})))
    for module in model.modules():
        # Some configurations have parts that `SMALL` does not reach; a cache is no tensor.
        if getattr(getattr(module, "config", None), "use_cache", False):
            module.config.use_cache = False
    for weight in model.parameters():
        # A router that starts with zeros leaves it to ties which experts a token gets.
        if weight.ndim > 1 and not weight.any():
            torch.nn.init.normal_(weight)
    return model.eval()


def _small(kind: type[PreTrainedConfig], overrides: Mapping[str, Any]) -> PreTrainedConfig:
    default = kind()
    settings = {name: value for name, value in SMALL.items() if getattr(default, name, None) is not None}
    for name in kind.sub_configs:
        if isinstance(part := getattr(default, name, None), PreTrainedConfig):
            settings[name] = _small(type(part), {}).to_dict()
    settings.update(overrides)
    return kind(**{name: value for name, value in settings.items() if value is not None})


def _inputs(name: str, model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Makes inputs for what forward takes: tokens, an image (or frames), a waveform or a spectrogram."""
    config, taken = model.config, inspect.signature(model.forward).parameters
    inputs: dict[str, torch.Tensor] = {}
    if "input_ids" in taken:
        inputs["input_ids"] = torch.randint(3, 90, (2, 16))
    if name in MASKED:
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if "pixel_values" in taken:
        part = getattr(config, "vision_config", config)
        frames = [part.num_frames] if hasattr(part, "num_frames") else []
        inputs["pixel_values"] = torch.randn(2, *frames, getattr(part, "num_channels", 3), 32, 32)
    if "noise" in taken:  # What is masked is drawn, if it is not given.
        inputs["noise"] = torch.rand(2, (32 // config.patch_size) ** 2)
    if "decoder_input_ids" in taken:
        inputs["decoder_input_ids"] = torch.randint(3, 90, (2, 8))
    if "input_values" in taken and not inputs:
        shape = (config.max_length, config.num_mel_bins) if hasattr(config, "num_mel_bins") else (4000,)
        inputs["input_values"] = torch.randn(1, *shape)
    if "input_features" in taken and "input_ids" not in inputs:
        features = getattr(config, "input_feat_per_channel", None)
        inputs["input_features"] = torch.randn(1, 64, features) if features else torch.randn(1, config.num_mel_bins, 64)
    return inputs
