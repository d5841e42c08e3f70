"""Watching the memory of a command and its descendants."""

import subprocess
import sys

import pytest

from benchmarks.llama import watch

_CHILD = "import time; x = bytes([1]) * 100_000_000; time.sleep(1)"
_PARENT = f"import subprocess, sys; print('text'); subprocess.run([sys.executable, '-c', {_CHILD!r}])"


def test_the_memory_of_a_child_counts() -> None:
    finished = watch([sys.executable, "-c", _PARENT])
    assert 100_000_000 < finished.peak_bytes < 200_000_000
    assert finished.seconds > 1
    assert finished.text == "text\n"


def test_a_command_that_fails_is_heard(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        watch([sys.executable, "-c", "raise SystemExit('no such model')"])
    assert capsys.readouterr().err == "no such model\n"
