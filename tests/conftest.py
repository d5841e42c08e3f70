"""Fixtures that all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _cache_home_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps what tests compile and estimate out of the user's cache, and what the user has there away from them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache-home")))
        yield
