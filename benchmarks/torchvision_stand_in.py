"""A stand-in for torchvision, which timm imports and its models do not need: there is none for this build of torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

_MODULES = (
    "torchvision",
    "torchvision.datasets",
    "torchvision.models",
    "torchvision.models.feature_extraction",
    "torchvision.ops",
    "torchvision.ops.misc",
    "torchvision.transforms",
    "torchvision.transforms.functional",
    "torchvision.utils",
)


class _Module(ModuleType):
    """A module whose every attribute is a class of that name, with nothing in it."""

    __path__: list[str]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # timm asks whether a layer is a FrozenBatchNorm2d, and derives classes from transforms.
        made = type(name, (torch.nn.Module,), {})
        setattr(self, name, made)
        return made


class _InterpolationMode:
    """The names of ways to resize an image, as torchvision has them."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


@contextmanager
def installed() -> Iterator[None]:
    """Puts the stand-in where `import torchvision` finds it, until the block ends: others find that there is none."""
    for name in _MODULES:
        module = _Module(name)
        module.__spec__ = ModuleSpec(name, loader=None, is_package=True)
        module.__path__ = []
        sys.modules[name] = module
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, module)
    functional: Any = sys.modules["torchvision.transforms.functional"]
    functional.InterpolationMode = _InterpolationMode
    try:
        yield
    finally:
        for name in _MODULES:
            del sys.modules[name]
