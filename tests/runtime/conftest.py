"""Fixtures that the tests of the runtime share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuc.runtime.device import Device, open_device

from .sample_artifacts import plugin_device_name


@pytest.fixture(scope="session")
def cpu() -> Device:
    return open_device("cpu")


@pytest.fixture(scope="session")
def plugin() -> Device:
    return open_device(plugin_device_name())


@pytest.fixture(params=["cpu", "plugin"])
def device(request: pytest.FixtureRequest) -> Device:
    """Each kind of device in turn: what is said of one holds for the other."""
    opened: Device = request.getfixturevalue(request.param)
    return opened


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keeps what tests compile out of the user's own cache."""
    folder = tmp_path / "cache-home"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder
