"""What an install would contain: the packages that pyproject.toml lists by hand against the folders."""

import tomllib
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_CONFIG = tomllib.loads((_ROOT / "pyproject.toml").read_text())


def test_the_listed_packages_are_the_folders() -> None:
    folders = {path.parent.relative_to(_ROOT) for path in (_ROOT / "tpuc").rglob("__init__.py")}
    found = {".".join(folder.parts) for folder in folders} | {"tpuc.passes", "tpuc.runtime"}
    assert set(_CONFIG["tool"]["setuptools"]["packages"]) == found


def test_passes_and_runtime_are_flat_and_mapped() -> None:
    assert _CONFIG["tool"]["setuptools"]["package-dir"] == {
        "tpuc": "tpuc",
        "tpuc.passes": "passes",
        "tpuc.runtime": "runtime",
    }
    for name in ("passes", "runtime"):
        assert not [path for path in (_ROOT / name).iterdir() if path.is_dir() and path.name != "__pycache__"]
        assert not (_ROOT / "tpuc" / name).exists()


def test_torch_is_pinned_exactly() -> None:
    pins = (_ROOT / "constraints.txt").read_text().splitlines()
    assert "torch==2.13.0" in pins
