"""Tests of what `import tpuc.runtime` gives and costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tpuc.runtime


@pytest.mark.parametrize("name", tpuc.runtime.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(tpuc.runtime, name).__name__ == name
    assert name in dir(tpuc.runtime)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'laod'"):
        _ = tpuc.runtime.laod


def test_importing_it_imports_nothing_heavy() -> None:
    program = (
        "import sys, tpuc.runtime\n"
        "heavy = {'numpy', 'ml_dtypes', 'jaxlib', 'torch', 'jax'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
