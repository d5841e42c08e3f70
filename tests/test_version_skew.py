"""Version skew for real: an artifact of one jaxlib met by another, and one artifact for two libtpu builds.

Slow: each makes an environment of its own from the package registry.
"""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_OTHER_JAXLIB = "0.9.2"
_OTHER_LIBTPU = "0.0.52"

pytestmark = pytest.mark.slow


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_CACHE_HOME": str(cwd / "cache")}
    return subprocess.run(map(str, command), cwd=cwd, env=env, text=True, capture_output=True, check=False)


def _pip(python: Path | str, *arguments: str | Path, cwd: Path) -> None:
    done = _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model."""
    folder = tmp_path_factory.mktemp("skew")
    (folder / "net.py").write_text(
        "import torch\ntorch.manual_seed(0)\nnet = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())\n"
    )
    return folder


def test_another_jaxlib_compiles_again_and_says_so(folder: Path) -> None:
    done = _run(sys.executable, "-m", "tpuc.cli", "compile", "net.py", "--shapes", "[4,8]", "-o", "net.bin", cwd=folder)
    assert done.returncode == 0, done.stderr
    here = _run(sys.executable, "-m", "tpuc.cli", "run", "net.bin", "--random", "1", cwd=folder)
    assert here.stderr == ""

    other = folder / "other"
    venv.create(other, with_pip=True)
    python = other / "bin" / "python"
    _pip(python, f"jaxlib=={_OTHER_JAXLIB}", _ROOT, cwd=folder)
    refused = _run(python, "-m", "tpuc.cli", "run", "net.bin", "--random", "1", "--no-recompile", cwd=folder)
    assert refused.returncode == 1
    assert _OTHER_JAXLIB in refused.stderr
    assert "0.10.2" in refused.stderr
    assert "tpuc compile" in refused.stderr
    there = _run(python, "-m", "tpuc.cli", "run", "net.bin", "--random", "1", cwd=folder)
    assert there.returncode == 0, there.stderr
    assert there.stderr.startswith("note: ")
    assert len(there.stderr.splitlines()) == 1
    assert there.stdout == here.stdout
    # Kept: the second run compiles nothing.
    assert _run(python, "-m", "tpuc.cli", "run", "net.bin", "--random", "1", cwd=folder).stderr == ""


def test_one_artifact_for_two_libtpus(folder: Path) -> None:
    _pip(sys.executable, "--no-deps", "--target", folder / "libtpu", f"libtpu=={_OTHER_LIBTPU}", cwd=folder)
    other = folder / "libtpu" / "libtpu" / "libtpu.so"
    installed = _run(sys.executable, "-c", "from tpuc.backend.compile import *; print(installed_libtpu())", cwd=folder)
    done = _run(
        sys.executable, "-m", "tpuc.cli", "compile", "net.py", "--shapes", "[4,8]", "--target", "v5e",
        "--libtpu", installed.stdout.strip(), "--libtpu", other, "-o", "two.bin", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = _run(sys.executable, "-m", "tpuc.cli", "inspect", "two.bin", "--json", cwd=folder)
    executables = json.loads(shown.stdout)["entries"][0]["executables"]
    assert [executable["target"] for executable in executables] == ["v5e", "v5e"]
    assert executables[0]["compiler"]["platform_version"] != executables[1]["compiler"]["platform_version"]
