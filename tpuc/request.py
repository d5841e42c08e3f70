"""What a compile is asked for: everything that affects its output, and nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from tpuc.dims import Bucket, SizeBuckets, buckets_of
from tpuc.plugins import Plugin
from tpuc.runtime.sizes import SizeRange
from tpuc.shapes import InputSpec
from tpuc.targets import CPU, Target

WeightsMode = Literal["embed", "external", "none"]

#: The packages whose versions affect what is made.
STACK = ("tpuc", "torch", "torch-mlir", "jax", "jaxlib", "libtpu")


@dataclass(frozen=True, kw_only=True)
class CompileRequest:
    """A compile's inputs.

    Attributes:
        source: The model as the user named it: `model.py:Net`, or a description of a module given from Python.
        source_sha256: Of the file; "" for a folder or a module given from Python.
        shapes: The inputs' specs; () means the file's own example inputs.
        sizes: What the named sizes in the shapes may be.
        buckets: For which of them programs are made.
        targets: What to compile for.
        libtpus: The libtpu builds to compile with for TPU targets; () means the installed one.
        weights: Where the weights go: into the artifact, into a file beside it, or nowhere.
        training: Whether the module keeps its training mode.
        precision: What is stored in bf16, and how products are multiplied; a mode of the pass `precision`.
        passes: The pass pipeline, as `tpuc opt --passes` reads it.
        plugins: The plugins whose lowerings there were.
    """

    source: str
    source_sha256: str = ""
    shapes: tuple[InputSpec, ...] = ()
    sizes: tuple[SizeRange, ...] = ()
    buckets: tuple[SizeBuckets, ...] = ()
    targets: tuple[Target, ...] = (CPU,)
    libtpus: tuple[Path, ...] = ()
    weights: WeightsMode = "embed"
    training: bool = False
    precision: str = "f32"
    passes: str
    plugins: tuple[Plugin, ...] = ()

    def programs(self) -> list[Bucket]:
        """Returns what the sizes may be in each program; without named sizes there is one, without sizes."""
        return buckets_of(self.sizes, self.buckets)

    def fingerprint(self) -> str:
        """Hashes the request with the versions of the stack: 64 hex digits.

        Equal fingerprints mean an equal artifact, but for the bytes of executables, which compilers do not repeat.
        """
        fields = {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}
        text = json.dumps({"request": fields, "stack": stack_versions()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def options(self) -> dict[str, str]:
        """The options that matter to people, by their command line names; a flag's value is ""."""
        options = {
            "shapes": " ".join(map(str, self.shapes)),
            "dims": " ".join(map(str, self.sizes)),
            "buckets": " ".join(map(str, self.buckets)),
            "target": " ".join(map(str, self.targets)),
            "weights": self.weights,
            "precision": self.precision,
            "passes": self.passes,
            "plugin": " ".join(plugin.name for plugin in self.plugins),
        }
        given = {name: value for name, value in options.items() if value}
        return given | ({"training": ""} if self.training else {})


def stack_versions() -> dict[str, str]:
    """Returns the installed version of each package of the stack; "" where it is not installed."""
    versions = {}
    for package in STACK:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = ""
    return versions


def _plain(value: object) -> object:
    return [str(item) for item in value] if isinstance(value, tuple) else value
