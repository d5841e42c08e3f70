"""EfficientNet-Lite0 on a photograph, as eager sees it."""

import subprocess
import sys
from pathlib import Path

from .conftest import MODELS, Models


def test_the_photograph_is_of_a_military_uniform(models: Models) -> None:
    record = models.build_for_cpu("efficientnet_lite0")
    assert record.outcome == "built", record.reason
    assert record.agreement is not None
    assert record.agreement.error <= 1e-4
    # The five best labels, in order, are eager's.
    assert record.agreement.check is True

    labels = _classify(models.artifact("efficientnet_lite0"))
    assert len(labels) == 5
    assert labels[0].split("%")[1].strip() == "military uniform"


def _classify(artifact: Path) -> list[str]:
    command = [sys.executable, str(MODELS / "support" / "classify.py"), str(artifact)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
