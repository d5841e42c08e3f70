"""What a TPU gets of every model, where all that is tried pays: it computes what eager does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from jaxlib.mlir import ir

from tpuc import pipeline
from tpuc.passes import Pass, PassReport, run_passes
from tpuc.passes.attention_kernel import AttentionKernel
from tpuc.passes.base import LoopCosts
from tpuc.targets import Target

from .conftest import Models

V5E = Target.parse("v5e")


class AllPays:
    """Takes each program for cheaper than those that it saw before."""

    def __init__(self) -> None:
        self._cycles = 10**9

    def cycles_of(self, modules: Sequence[ir.Module]) -> list[int | None]:
        found: list[int | None] = []
        for _ in modules:
            self._cycles //= 2
            self._cycles = self._cycles or 10**9
            found.append(self._cycles)
        return found

    def loops_of(self, module: ir.Module) -> Future[LoopCosts | None]:
        answer: Future[LoopCosts | None] = Future()
        answer.set_result(LoopCosts(total=1, loops={"0": 1}))
        return answer


def _run_for_tpu(fired: Counter[str]) -> Callable[..., None]:
    """Runs the passes as for a TPU; but the CPU has no kernels of Mosaic."""

    def run(module: ir.Module, passes: Sequence[Pass], _: Target, **options: Any) -> None:
        def note(report: PassReport) -> None:
            fired[report.text.partition("{")[0]] += sum(report.rewrites.values())

        without = [replace(each, use="never") if isinstance(each, AttentionKernel) else each for each in passes]
        run_passes(module, without, V5E, **{**options, "estimator": AllPays(), "observer": note})

    return run


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("bert_large", "recompose-norms recompose-activations merge-products pad-to-tiles roll-layers weight-layout"),
        ("efficientnet_lite0", "fuse-affine pad-to-tiles space-to-depth weight-layout"),
        ("gated_recurrence", "recompose-norms recompose-activations merge-products"),
        ("llama_7b", "recompose-norms recompose-activations merge-products attention-kernel fuse-affine"),
        ("minilm", "recompose-norms recompose-activations merge-products"),
        ("resnet50", "fuse-affine pad-to-tiles width-to-channels space-to-depth weight-layout"),
        ("sdxl_unet", "recompose-norms merge-products pad-to-tiles width-to-channels weight-layout"),
    ],
)
def test_it_computes_what_eager_does(models: Models, monkeypatch: pytest.MonkeyPatch, name: str, passes: str) -> None:
    fired: Counter[str] = Counter()
    monkeypatch.setattr(pipeline, "run_passes", _run_for_tpu(fired))
    record = models.build_for_cpu(name)
    assert record.outcome == "built", record.reason
    assert record.agreement is not None
    assert record.agreement.error <= 1e-4
    assert set(passes.split()) <= {each for each, count in fired.items() if count}
