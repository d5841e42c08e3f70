"""Runs a command in a forked child, so that a crash in a C++ library ends in a message and not in silence.

The child does the work; the parent waits, and says what happened if a signal ended the child. A fork costs a
millisecond, as nothing heavy is imported yet. Unless the command is verbose, what libraries print to standard error
goes to a log that is shown only after a crash.
"""

from __future__ import annotations

import faulthandler
import gc
import mmap
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import IO

from tpuc.errors import TpucError
from tpuc.worker import die_with_parent

#: Room for the name of the stage that the child is at.
_STAGE_BYTES = 256
_LAST_LINES = 10
#: What asks a command to stop; it does so in order, and leaves nothing half written.
_STOPS = (signal.SIGINT, signal.SIGTERM)
#: Ctrl-C reaches the child twice, from the terminal and from the parent, within a moment.
_MOMENT_SECONDS = 1.0


class Guard:
    """The process around a command.

    Attributes:
        messages: Where messages to the person go: standard error, also when the libraries' is sent to a log.
    """

    def __init__(self, *, verbose: bool, debug: bool) -> None:
        """Prepares a guard.

        Args:
            verbose: Whether the libraries' own output is shown as it comes.
            debug: Whether errors come with their traceback.
        """
        self.messages: IO[str] = sys.stderr
        self._verbose = verbose
        self._debug = debug
        self._stage = mmap.mmap(-1, _STAGE_BYTES)
        self._interrupted: float | None = None
        self._stopped_by: int = signal.SIGINT

    def at(self, stage: str) -> None:
        """Tells the parent what the child is about to do, for the message after a crash.

        Raises:
            KeyboardInterrupt: Ctrl-C came before, and whatever ran then swallowed it.
        """
        if self._interrupted is not None:
            raise KeyboardInterrupt
        text = stage.encode()[: _STAGE_BYTES - 1]
        self._stage[: len(text) + 1] = text + b"\0"

    def run(self, work: Callable[[], None]) -> int:
        """Runs `work` in a child, and prints the error that it raises.

        Returns:
            The exit code: 0; 1 after an error or a crash; 130 after Ctrl-C, 143 after SIGTERM.
        """
        with tempfile.TemporaryFile() as log:
            sys.stdout.flush()
            sys.stderr.flush()
            child = os.fork()
            if child == 0:
                os._exit(self._child(work, log))
            code = self._wait(child)
            if code < 0:
                self._tell(signal.Signals(-code).name, log)
                return 1
            return code

    def _child(self, work: Callable[[], None], log: IO[bytes]) -> int:
        if not self._verbose:
            self.messages = os.fdopen(os.dup(2), "w", buffering=1)
            os.dup2(log.fileno(), 2)
        faulthandler.enable(log)
        die_with_parent()
        # Imports and exports make millions of objects, which stay: to look through them for cycles again and again
        # takes a sixth of a compile. What is left in cycles is little, and a command ends soon.
        gc.disable()
        for number in _STOPS:
            signal.signal(number, self._interrupt)
        code = self._run(work)
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            return 1
        return code

    def _interrupt(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        self._stopped_by = number
        if self._interrupted is None or now > self._interrupted + _MOMENT_SECONDS:
            # Raised in a callback or under an import, the exception may get lost; the next stage raises it again.
            self._interrupted = now
            raise KeyboardInterrupt

    def _run(self, work: Callable[[], None]) -> int:
        try:
            work()
        except KeyboardInterrupt:
            return 128 + self._stopped_by
        except BrokenPipeError:
            return 1  # Whoever read our output has seen enough.
        except TpucError as error:
            if self._debug:
                traceback.print_exc(file=self.messages)
            print(f"error: {error}", file=self.messages)
            return 1
        except Exception:  # A defect of tpuc: shown whole, whatever became of standard error.
            traceback.print_exc(file=self.messages)
            print("error: this is a defect of tpuc; please report it with the lines above", file=self.messages)
            return 1
        return 0

    def _wait(self, child: int) -> int:
        # What asks the parent to end asks the child, which ends by it; the parent waits for that.
        def pass_on(number: int, _: FrameType | None) -> None:
            with suppress(ProcessLookupError):
                os.kill(child, number)

        previous = {number: signal.signal(number, pass_on) for number in _STOPS}
        try:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _tell(self, name: str, log: IO[bytes]) -> None:
        stage = self._stage[:].split(b"\0")[0].decode(errors="replace")
        print(f"error: tpuc was ended by {name}{f' during {stage}' if stage else ''}", file=sys.stderr)
        log.seek(0)
        lines = _telling_lines(log.read().decode(errors="replace").splitlines())
        if lines:
            print("  from its log (all of it with --verbose):", file=sys.stderr)
            for line in lines:
                print(f"  | {line}", file=sys.stderr)


def _telling_lines(log: list[str]) -> list[str]:
    """The last lines that a library wrote, and the innermost frames of Python's own report of the crash."""
    starts = [number for number, line in enumerate(log) if line.startswith("Fatal Python error")]
    start = starts[0] if starts else len(log)
    return log[max(0, start - _LAST_LINES) : start] + log[start : start + _LAST_LINES]
