"""Tells a person, or a program, how far a compile is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Progress:
    """Follows the stages of a compile and keeps their times; this one is silent.

    Attributes:
        seconds: For each stage that is over, how long it took, in seconds.
        notes: What the user should know, in order.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.notes: list[str] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Marks a block of work as a stage. A stage that is entered again adds to its time."""
        self.begin(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
            self.end(name)

    def note(self, text: str) -> None:
        """Tells the user one thing."""
        self.notes.append(text)

    def begin(self, name: str) -> None:
        """Called when a stage begins."""

    def end(self, name: str) -> None:
        """Called when a stage is over, or failed."""
