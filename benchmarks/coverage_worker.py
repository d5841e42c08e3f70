"""The process that runs the cases of `benchmarks.coverage`: whatever dies or hangs, does so here."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from functools import cache
from importlib import import_module
from typing import Any

import torch

from benchmarks.against_eager import Runner
from tpuc.targets import Target
from tpuc.worker import Blobs, Fields, serve

#: Each is a module with `names()`, `cases(name)` and `run(runner, name, case)`, imported when it is asked for.
SUITES = {
    "operators": "benchmarks.opinfo",
    "layers": "benchmarks.models_layers",
    "transformers": "benchmarks.models_transformers",
    "timm": "benchmarks.models_timm",
    "diffusers": "benchmarks.models_diffusers",
}


def _suite(fields: Fields) -> Any:
    return import_module(SUITES[fields["suite"]])


@cache
def _runner() -> Runner:
    return Runner(Target.parse("v5e"))


def list_names(fields: Fields, blobs: Blobs) -> tuple[Fields, Blobs]:
    """Answers with the names of a suite."""
    return {"names": _suite(fields).names()}, {}


def list_cases(fields: Fields, blobs: Blobs) -> tuple[Fields, Blobs]:
    """Answers with the cases of a name."""
    return {"cases": _suite(fields).cases(fields["name"])}, {}


def list_sample(fields: Fields, blobs: Blobs) -> tuple[Fields, Blobs]:
    """Answers with so many operators of all kinds."""
    return {"names": import_module(SUITES["operators"]).stratified(fields["count"])}, {}


def run(fields: Fields, blobs: Blobs) -> tuple[Fields, Blobs]:
    """Answers with the verdict on a case."""
    return asdict(_suite(fields).run(_runner(), fields["name"], fields["case"])), {}


if __name__ == "__main__":
    # Whoever runs thousands of programs of others sees every warning there is.
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    serve({"list_names": list_names, "list_cases": list_cases, "list_sample": list_sample, "run": run})
