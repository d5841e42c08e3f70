"""Classifies a picture with a compiled EfficientNet-Lite0: `classify.py ARTIFACT [PICTURE]`.

A program as a serving host would run it: NumPy, Pillow and tpuc's runtime, no PyTorch.
"""

import sys
from pathlib import Path

from imagenet import PHOTOGRAPH, preprocess, top5

import tpuc.runtime


def main(artifact: str, picture: str = str(PHOTOGRAPH)) -> None:
    """Prints the five best labels."""
    with tpuc.runtime.load(artifact) as program:
        logits = program(preprocess(Path(picture)))
    for label, probability in top5(logits):
        print(f"{probability:6.1%}  {label}")


if __name__ == "__main__":
    main(*sys.argv[1:])
