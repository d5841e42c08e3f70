"""Tests of reading manifests strictly."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tpuc.runtime.errors import ArtifactError
from tpuc.runtime.manifest import ExecutableInfo, Manifest, PreparedInfo, SectionInfo, decode_manifest, encode_manifest

from .sample_artifacts import counter_manifest

HASH = "0" * 64


def complete() -> Manifest:
    manifest = counter_manifest()
    (entry,) = manifest.entries
    info = ExecutableInfo(
        section="executable/cpu",
        program="program/main",
        target="cpu",
        platform="cpu",
        compiler={"jaxlib": "0.10.2"},
        memory={"argument": 12},
        estimated_cycles=7,
    )
    prepared = PreparedInfo(
        name="scaled", dtype="f32", dims=(4, 3), program="prepare/0", sources=("linear.weight",), section=None
    )
    names = ("weights/linear.weight", "state/count", "program/main", "prepare/0", "executable/cpu")
    sections = {name: SectionInfo(sha256=HASH, size=4) for name in names}
    entry = replace(entry, executables=(info,))
    return replace(manifest, sections=sections, prepared=(prepared,), entries=(entry,))


def as_json(manifest: Manifest) -> Any:
    return json.loads(json.dumps(encode_manifest(manifest)))


def test_json_and_back() -> None:
    assert decode_manifest(as_json(complete())) == complete()


def test_fields_with_a_default_may_be_missing() -> None:
    data = as_json(complete())
    for key in ("byte_order", "options", "weights_file"):
        del data[key]
    assert decode_manifest(data) == replace(complete(), options={})


def set_in(*path: Any, to: Any) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = to

    return change


def delete(*path: Any) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        del data[path[-1]]

    return change


def duplicate(*path: Any) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for key in path:
            data = data[key]
        data.append(data[0])

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            set_in("entries", 0, "programs", 0, "arguments", 2, "kind", to=3),
            r"manifest.entries\[0\].programs\[0\].arguments\[2\].kind: expected one of",
        ),
        (set_in("entries", 0, "name", to=3), r"manifest.entries\[0\].name: expected a text, got 3"),
        (set_in("model", "parameters", to="12"), r"manifest.model.parameters: expected a number, got '12'"),
        (set_in("model", "parameters", to=True), r"manifest.model.parameters: expected a number, got True"),
        (set_in("model", "parameters", to=1.5), r"manifest.model.parameters: expected a number, got 1.5"),
        (set_in("model", to=[]), r"manifest.model: expected an object, got a list"),
        (set_in("weights", to={}), r"manifest.weights: expected an array, got a dict"),
        (set_in("weights_mode", to="inline"), r"manifest.weights_mode: expected one of embed, external, none"),
        (set_in("weights", 0, "section", to=1), r"manifest.weights\[0\].section: expected a text or null, got 1"),
        (set_in("weights", 0, "dims", 0, to="n"), r"manifest.weights\[0\].dims\[0\]: expected a number, got 'n'"),
        (set_in("inputs", 0, "dims", 0, to=None), r"manifest.inputs\[0\].dims\[0\]: expected a number or a text"),
        (set_in("producer", "tpuc", to=1), r"manifest.producer.tpuc: expected a text, got 1"),
        (
            set_in("entries", 0, "executables", 0, "platform", to="gpu"),
            r"manifest.entries\[0\].executables\[0\].platform: expected one of cpu, tpu",
        ),
        (
            set_in("entries", 0, "executables", 0, "estimated_cycles", to=1.5),
            r"estimated_cycles: expected a number or null",
        ),
        (set_in("input_structure", to={"args": 0}), r"manifest.input_structure: expected an object with args"),
        (set_in("input_structure", "args", to=0), r"manifest.input_structure.args: expected a tuple"),
        (set_in("input_structure", "kwargs", to={"tuple": []}), r"manifest.input_structure.kwargs: expected a dict"),
        (set_in("output_structure", to={"set": []}), r"manifest.output_structure: expected a node"),
        (set_in("unknown", to=1), r"manifest: unknown key 'unknown'"),
        (set_in("model", "unknown", to=1), r"manifest.model: unknown key 'unknown'"),
        (delete("model"), r"manifest: the key 'model' is missing"),
        (
            delete("entries", 0, "programs", 0, "results"),
            r"manifest.entries\[0\].programs\[0\]: the key 'results' is missing",
        ),
    ],
)
def test_errors_name_the_place(change: Callable[[Any], None], message: str) -> None:
    data = as_json(complete())
    change(data)
    with pytest.raises(ArtifactError, match=message):
        decode_manifest(data)


@pytest.mark.parametrize("data", [None, 1, "text", [], {}])
def test_what_is_no_manifest_is_refused(data: object) -> None:
    with pytest.raises(ArtifactError, match="manifest"):
        decode_manifest(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_in("inputs", 1, "name", to="x"), "two inputs have the same name"),
        (set_in("inputs", 0, "dtype", to="f33"), "the input x has the unknown dtype 'f33'"),
        (set_in("weights", 0, "dims", 0, to=-4), "the weight linear.weight has a negative dimension"),
        (
            set_in("input_structure", "args", to={"tuple": [0]}),
            "the input structure does not hold each of the 2 inputs",
        ),
        (set_in("input_structure", "args", to={"tuple": [0, 1, 1]}), "the input structure does not hold"),
        (set_in("output_structure", to={"tuple": [0, 1]}), "the output structure does not hold each of the 1 outputs"),
        (
            set_in("entries", 0, "programs", 0, "arguments", 0, "name", to="w"),
            "uses the weight 'w', which there is not",
        ),
        (set_in("entries", 0, "programs", 0, "results", 1, "name", to="z"), "uses the output 'z', which there is not"),
        (set_in("entries", 0, "programs", 0, "arguments", 3, "name", to="x"), "names an argument or a result twice"),
        (set_in("entries", 0, "executables", 0, "program", to="x"), "compiled from a program that the entry lacks"),
        (duplicate("entries", 0, "programs"), "the entry main names a program twice"),
        (set_in("prepared", 0, "dtype", to="f33"), "the prepared scaled has the unknown dtype 'f33'"),
        (set_in("prepared", 0, "sources", to=["w"]), "scaled is prepared from the weight 'w', which there is not"),
        (set_in("prepared", 0, "program", to="prepare/x"), "the section prepare/x is used and not described"),
        (set_in("prepared", 0, "section", to="prepared/x"), "the section prepared/x is used and not described"),
        (set_in("weights", 0, "section", to="weights/w"), "the section weights/w is used and not described"),
        (set_in("sections", "program/main", "sha256", to="xyz"), "impossible size or hash"),
        (set_in("sections", "program/main", "size", to=-1), "impossible size or hash"),
        (set_in("weights_mode", to="external"), "a weights file is named if and only if"),
        (set_in("weights_file", to="w.safetensors"), "a weights file is named if and only if"),
    ],
)
def test_contradictions_are_found(change: Callable[[Any], None], message: str) -> None:
    data = as_json(complete())
    change(data)
    with pytest.raises(ArtifactError, match=message):
        decode_manifest(data)


@pytest.mark.parametrize("name", ["", ".", "..", "../w", "/etc/passwd", "a/b", "a\\b", "a\0b"])
def test_a_weights_file_must_stand_beside_the_artifact(name: str) -> None:
    data = as_json(complete())
    data |= {"weights_mode": "external", "weights_file": name}
    with pytest.raises(ArtifactError, match="is not the bare name of a file"):
        decode_manifest(data)


def test_two_entries_need_two_names() -> None:
    data = as_json(complete())
    data["entries"] *= 2
    with pytest.raises(ArtifactError, match="two entries have the same name"):
        decode_manifest(data)


def test_two_programs_serve_different_targets() -> None:
    data = as_json(complete())
    programs = data["entries"][0]["programs"]
    programs.append(programs[0] | {"section": "program/v5e", "serves": ["v5e", "any"]})
    with pytest.raises(ArtifactError, match="the entry main has two programs for the same target"):
        decode_manifest(data)


def test_a_missing_entry_is_named() -> None:
    with pytest.raises(ArtifactError, match="no entry 'prepare'"):
        complete().entries_of("prepare")
