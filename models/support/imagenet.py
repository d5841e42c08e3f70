"""Pictures in, labels out, as networks trained on ImageNet have it. Needs NumPy and Pillow only."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

DATA = Path(__file__).parents[1] / "data"
PHOTOGRAPH = DATA / "grace_hopper.jpg"


def preprocess(path: Path) -> NDArray[np.float32]:
    """Reads a picture as EfficientNet-Lite0 wants it: the middle square, f32[1,3,224,224], (pixel - 127) / 128."""
    with Image.open(path) as picture:
        side = min(picture.size)
        left, top = ((size - side) // 2 for size in picture.size)
        box = (left, top, left + side, top + side)
        square = picture.convert("RGB").resize((224, 224), Image.Resampling.BICUBIC, box)
    pixels = np.asarray(square, np.float32).transpose(2, 0, 1)
    return (pixels[None] - 127) / 128


def labels() -> list[str]:
    """The names of the 1000 classes, in order."""
    return (DATA / "imagenet_labels.txt").read_text().splitlines()


def top5(logits: NDArray[np.float32]) -> list[tuple[str, float]]:
    """The five most probable classes of one picture, with their probabilities.

    Args:
        logits: f32[1,1000].
    """
    exponentials = np.exp(logits[0] - logits[0].max())
    probabilities = exponentials / exponentials.sum()
    names = labels()
    return [(names[i], float(probabilities[i])) for i in np.argsort(-logits[0])[:5]]
