"""Other weights for an artifact: programs and executables stay, and what is prepared from weights is prepared anew."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from tpuc.runtime.artifact import Artifact, SectionData, write_artifact
from tpuc.runtime.device import open_device
from tpuc.runtime.dtypes import Array
from tpuc.runtime.errors import InputError
from tpuc.runtime.manifest import Manifest, PreparedInfo
from tpuc.runtime.prepare import Preparer
from tpuc.runtime.tensor_file import TensorFile
from tpuc.runtime.weights import find_weights


def replace_weights(path: str | Path, weights: str | Path, output: str | Path | None = None) -> Manifest:
    """Writes an artifact anew with other weights; nothing is compiled for a target.

    Weights that no checkpoint of the model holds (constants, tables computed from its configuration) and the first
    values of states stay as they are. Tensors of the file that the model does not have are ignored.

    Args:
        path: The artifact, with its weights inside or beside it.
        weights: A safetensors file, or a folder whose safetensors files are taken together, with the model's own names.
        output: Where the new artifact goes; None means the place of the old one, which stays until the new one is
            complete. An old file of external weights stays, too: other artifacts may share it.

    Returns:
        The new manifest, with a new fingerprint.

    Raises:
        InputError: Weights are missing, or have another type or other dimensions: all of them are named. Or the
            artifact is one without weights.
        ArtifactError: The artifact or the file is damaged, or the new one cannot be written.
        DeviceError: A tensor cannot be prepared.
    """
    artifact = Artifact.open(path)
    manifest = artifact.manifest
    if manifest.weights_mode == "none":
        raise InputError(
            "the artifact has no weights that could be replaced", where=str(path), hint="Give them when it is loaded."
        )
    sources = {name for info in manifest.prepared for name in info.sources}
    wanted = {
        weight.name: weight.spec
        for weight in manifest.weights
        if weight.persistent and weight.origin != "constant" and (weight.section is not None or weight.name in sources)
    }
    files = find_weights(wanted, Path(weights))
    contents = _Contents(artifact, files)
    manifest = replace(manifest, fingerprint=_fingerprint(manifest, files))
    return write_artifact(output or path, manifest, {name: contents.of(name) for name in manifest.sections})


class _Contents:
    """The sections of the new artifact."""

    def __init__(self, artifact: Artifact, files: Mapping[str, TensorFile]) -> None:
        self._artifact = artifact
        self._files = files
        manifest = artifact.manifest
        self._specs = {weight.name: weight.spec for weight in manifest.weights}
        self._weights = {weight.section: weight.name for weight in manifest.weights if weight.section is not None}
        self._prepared = {info.section: info for info in manifest.prepared if info.section is not None}
        self._states = {state.section: state.name for state in manifest.state}
        self._preparer = Preparer(open_device("cpu"))

    def of(self, section: str) -> SectionData:
        """Returns the contents of a section, of prepared tensors as what computes them when they are written."""
        if section in self._weights:
            return self._weight(self._weights[section])
        if section in self._prepared:
            return self._compute(self._prepared[section])
        if section in self._states:
            self._artifact.verify([section])
            return self._artifact.initial_state(self._states[section])
        return self._artifact.section(section)

    def _weight(self, name: str) -> Array:
        if name not in self._files:
            self._artifact.verify([f"weights/{name}"])
            return self._artifact.weight(name)
        spec = self._specs[name]
        return self._files[name].array(name, spec.type, spec.shape)

    def _compute(self, info: PreparedInfo) -> SectionData:
        program = bytes(self._artifact.section(info.program))
        return partial(self._preparer.compute, program, info.spec, [self._weight(name) for name in info.sources])


def _fingerprint(manifest: Manifest, files: Mapping[str, TensorFile]) -> str:
    hashes = {name: file.sha256(name) for name, file in files.items()}
    text = json.dumps({"fingerprint": manifest.fingerprint, "weights": hashes}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
