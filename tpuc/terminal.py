"""Progress on a terminal: the stage at work on one line, with a clock."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from tpuc.guard import Guard
from tpuc.progress import Progress


class TerminalProgress(Progress):
    """Shows the stages on a console, and tells the guard, whose message after a crash names them."""

    def __init__(self, console: Console, guard: Guard) -> None:
        super().__init__()
        self._guard = guard
        self._display = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._display.add_task("start")

    def __enter__(self) -> Self:
        self._display.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.stop()

    def begin(self, name: str) -> None:
        """Shows the stage."""
        self._guard.at(name)
        self._display.update(self._task, description=name)

    def end(self, name: str) -> None:
        """Where there is no terminal to redraw, leaves a line for each stage."""
        if not self._display.console.is_terminal:
            self._display.console.print(f"{name} {self.seconds[name]:.1f} s")
