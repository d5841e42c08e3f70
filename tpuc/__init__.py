"""Compile PyTorch programs ahead of time into TPU executables.

    tpuc.compile("model.py", shapes="x=f32[1,3,224,224]", targets=["cpu", "v5e"], output="artifact.bin")
    program = tpuc.runtime.load("artifact.bin")

Importing this package imports neither PyTorch nor a compiler: `tpuc.runtime` is a part of it and must stay light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpuc import runtime
    from tpuc.api import check, compile
    from tpuc.plugins import lowering

__all__ = ["check", "compile", "lowering", "runtime"]

_HOMES = {"check": "tpuc.api", "compile": "tpuc.api", "lowering": "tpuc.plugins"}


def __getattr__(name: str) -> Any:
    if name == "runtime":
        return importlib.import_module("tpuc.runtime")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tpuc' has no attribute {name!r}")
