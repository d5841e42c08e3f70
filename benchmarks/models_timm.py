"""Architectures of timm, the smallest of each family, with random weights, as a suite of the coverage benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from benchmarks import torchvision_stand_in
from benchmarks.against_eager import Runner, Verdict
from benchmarks.modules import run_module

with torchvision_stand_in.installed():
    import timm

#: The architectures, and what makes them smaller.
MODELS: Mapping[str, Mapping[str, Any]] = {
    "bat_resnext26ts": {},
    "beit_base_patch16_224": {"depth": 2, "img_size": 64},
    "botnet26t_256": {},
    "caformer_s18": {},
    "cait_xxs24_224": {"depth": 2, "img_size": 64},
    "coat_lite_tiny": {},
    "coatnet_nano_rw_224": {"img_size": 64},
    "convit_tiny": {"depth": 3, "img_size": 64},
    "convmixer_768_32": {},
    "convnext_atto": {},
    "convnextv2_atto": {},
    "crossvit_9_240": {},
    "cspresnet50": {},
    "cs3darknet_focus_s": {},
    "davit_tiny": {"depths": (1, 1, 1, 1)},
    "deit3_small_patch16_224": {"depth": 2, "img_size": 64},
    "deit_tiny_distilled_patch16_224": {"depth": 2, "img_size": 64},
    "densenet121": {},
    "dla46_c": {},
    "dpn48b": {},
    "eca_nfnet_l0": {},
    "ecaresnet26t": {},
    "edgenext_xx_small": {},
    "efficientformer_l1": {},
    "efficientformerv2_s0": {},
    "efficientnet_b0": {},
    "efficientnet_lite0": {},
    "efficientvit_b0": {},
    "efficientvit_m0": {"img_size": 224},
    "ese_vovnet19b_slim": {},
    "eva02_tiny_patch14_224": {"depth": 2, "img_size": 56},
    "fasternet_t0": {},
    "fastvit_t8": {},
    "fbnetv3_b": {},
    "focalnet_tiny_srf": {},
    "gcvit_xxtiny": {},
    "ghostnet_050": {},
    "gmlp_ti16_224": {},
    "haloregnetz_b": {},
    "hardcorenas_a": {},
    "hgnetv2_b0": {},
    "hiera_tiny_224": {"img_size": 224, "stages": (1, 1, 1, 1)},
    "hrnet_w18_small": {},
    "inception_next_atto": {},
    "inception_v3": {},
    "lambda_resnet26t": {},
    "lcnet_035": {},
    "legacy_seresnet18": {},
    "levit_128s": {},
    "mambaout_femto": {},
    "maxvit_pico_rw_256": {"img_size": 64},
    "mixer_s32_224": {},
    "mixnet_s": {},
    "mnasnet_small": {},
    "mobilenetv2_050": {},
    "mobilenetv3_small_050": {},
    "mobilenetv4_conv_small_035": {},
    "mobilenetv4_hybrid_medium_075": {},
    "mobileone_s0": {},
    "mobilevit_xxs": {},
    "mobilevitv2_050": {},
    "mvitv2_tiny": {},
    "nest_tiny": {},
    "nextvit_small": {},
    "nf_regnet_b0": {},
    "pit_ti_224": {"depth": (1, 1, 1)},
    "poolformer_s12": {},
    "pvt_v2_b0": {},
    "regnetx_002": {},
    "regnety_002": {},
    "repghostnet_050": {},
    "repvgg_a0": {},
    "repvit_m0_9": {},
    "res2net50_14w_8s": {},
    "resmlp_12_224": {},
    "resnest14d": {},
    "resnet10t": {},
    "resnetv2_18": {},
    "rexnet_100": {},
    "selecsls42": {},
    "semnasnet_075": {},
    "sequencer2d_s": {"layers": (1, 1, 1, 1)},
    "shvit_s1": {},
    "skresnet18": {},
    "starnet_s050": {},
    "swiftformer_xs": {},
    "swin_tiny_patch4_window7_224": {"depths": (1, 1, 2, 1)},
    "swinv2_tiny_window8_256": {"depths": (1, 1, 2, 1)},
    "test_vit": {},
    "tiny_vit_5m_224": {"depths": (1, 1, 2, 1)},
    "tnt_s_patch16_224": {"depth": 2},
    "tresnet_m": {},
    "twins_svt_small": {"depths": (1, 1, 2, 1)},
    "visformer_tiny": {},
    "vit_relpos_small_patch16_224": {"depth": 2, "img_size": 64},
    "vit_small_patch32_224": {"depth": 2, "img_size": 64},
    "vit_tiny_r_s16_p8_224": {"depth": 2},
    "volo_d1_224": {},
    "xception41": {},
    "xcit_nano_12_p16_224": {"depth": 2, "img_size": 64},
}
#: The size of an image, for models that take any.
_IMAGE = 64
#: For models that take no less, and do not say so.
_SIZES = {"bat_resnext26ts": 256, "haloregnetz_b": 224, "inception_v3": 96}


def names() -> list[str]:
    """The architectures, by timm's names for them."""
    return list(MODELS)


def cases(name: str) -> list[str]:
    """One: the model on an image."""
    return [""]


def run(runner: Runner, name: str, case: str) -> Verdict:
    """Runs a model."""
    torch.manual_seed(0)
    model, size = _model(name)
    return run_module(runner, model, (torch.randn(1, 3, *size),), {})


def _model(name: str) -> tuple[torch.nn.Module, tuple[int, int]]:
    """Makes a model, and says which size of image it takes: its own, where that is fixed and not given."""
    model = timm.create_model(name, num_classes=10, **MODELS[name]).eval()
    fixed = model.default_cfg.get("fixed_input_size", False)
    own = model.default_cfg["input_size"][-1] if fixed else _SIZES.get(name, _IMAGE)
    size = MODELS[name].get("img_size", own)
    return model, (size, size)
