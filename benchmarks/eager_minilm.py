"""What `tpuc run` of MiniLM does, in eager PyTorch.

    python benchmarks/eager_minilm.py TOKENS.npz

Loads the checkpoint that models/minilm.py names, runs it on the tokens in the file, and prints what comes out.
"""

import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

import minilm


def main(tokens: str) -> None:
    """Prints the similarity and the embeddings' range."""
    with np.load(tokens) as arrays:
        inputs = {name: torch.from_numpy(array) for name, array in arrays.items()}
    with torch.inference_mode():
        outputs = minilm.model().eval()(**inputs)
    for name, tensor in outputs.items():
        print(name, list(tensor.shape), float(tensor.min()), float(tensor.mean()), float(tensor.max()))


if __name__ == "__main__":
    main(*sys.argv[1:])
