"""What the tests of the models share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tpuc.loader import load_model
from tpuc.shapes import parse_shapes
from tpuc.zoo import ZooRecord
from tpuc.zoo_build import build, read_settings

MODELS = Path(__file__).parents[2] / "models"


class Models:
    """The models of models/, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def artifact(self, name: str) -> Path:
        """Where the artifact of a model goes."""
        return self._folder / f"{name}.bin"

    def build_for_cpu(self, name: str) -> ZooRecord:
        """Builds a model for the cpu as the zoo does, and compares it with eager."""
        return build(MODELS / f"{name}.py", "cpu", self.artifact(name))

    def count_parameters(self, name: str) -> int:
        """Counts a model's parameters, which get no memory."""
        path = MODELS / f"{name}.py"
        stated = read_settings(path, "tpu").shapes
        shapes = parse_shapes(stated) if stated else ()
        module = load_model(f"{path}:model", shapes=shapes, with_weights=False).program
        assert isinstance(module, torch.nn.Module)
        return sum(parameter.numel() for parameter in module.parameters())


@pytest.fixture
def models(tmp_path: Path) -> Models:
    return Models(tmp_path)
