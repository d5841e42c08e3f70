"""Load an artifact and run it; needs neither PyTorch nor a compiler.

    program = tpuc.runtime.load("artifact.bin")
    outputs = program(input_ids=ids, attention_mask=mask)

Importing this module costs next to nothing: what it exports is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpuc.runtime.artifact import Artifact, write_artifact
    from tpuc.runtime.device import open_device
    from tpuc.runtime.errors import (
        ArtifactError,
        DeviceError,
        DeviceMemoryError,
        InputError,
        TpucError,
        VersionSkewError,
    )
    from tpuc.runtime.executor import Program, Stats, load
    from tpuc.runtime.manifest import Manifest
    from tpuc.runtime.replacement import replace_weights
    from tpuc.runtime.spec import TensorSpec
    from tpuc.runtime.structure import Record

__all__ = [
    "load",
    "Program",
    "Stats",
    "Record",
    "TensorSpec",
    "Artifact",
    "Manifest",
    "write_artifact",
    "replace_weights",
    "open_device",
    "TpucError",
    "ArtifactError",
    "InputError",
    "DeviceError",
    "DeviceMemoryError",
    "VersionSkewError",
]

_MODULES = {
    "artifact": ("Artifact", "write_artifact"),
    "device": ("open_device",),
    "errors": ("ArtifactError", "DeviceError", "DeviceMemoryError", "InputError", "TpucError", "VersionSkewError"),
    "executor": ("Program", "Stats", "load"),
    "manifest": ("Manifest",),
    "replacement": ("replace_weights",),
    "spec": ("TensorSpec",),
    "structure": ("Record",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
