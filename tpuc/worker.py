"""Child processes for the C++ libraries that may abort, hang, or hold memory for ever.

A worker is a Python module that ends in `serve({...})`: it answers one request at a time over its standard input
and output. What its libraries print goes to a log that the parent reads when something goes wrong. A worker that
dies or does not answer in time becomes a `CrashError`; one that refuses raises the `TpucError` that it sent.

A message is one line of JSON, `{"fields": {...}, "blobs": {"name": bytes, ...}}`, and the blobs after it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import IO, Any, Self

from tpuc import errors
from tpuc.errors import CrashError, TpucError

Fields = dict[str, Any]
Blobs = dict[str, bytes]
Handler = Callable[[Fields, Blobs], tuple[Fields, Blobs]]

_PR_SET_PDEATHSIG = 1


class WorkerFaultError(Exception):
    """An exception in a worker that is not a `TpucError`: a defect, with the worker's traceback as its text."""


class Worker:
    """The parent's end of a worker."""

    def __init__(self, module: str, *, env: Mapping[str, str] | None = None) -> None:
        """Starts `python -m module`; it imports what it needs while the parent goes on.

        Args:
            module: The worker's module.
            env: Variables to set beside the parent's own.
        """
        self._module = module
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  Closed by close().
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **(env or {})},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there; after a `CrashError` it is not."""
        return self._process.poll() is None

    def close(self) -> None:
        """Ends the process; closing again does nothing."""
        if self._log.closed:
            return
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            assert stream is not None
            # The worker may be gone before it read everything.
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def call(
        self, fields: Fields, blobs: Blobs | None = None, *, what: str, timeout: float | None = None
    ) -> tuple[Fields, Blobs]:
        """Sends a request and waits for its answer.

        Args:
            fields: What JSON can say.
            blobs: Bytes by name.
            what: What the worker is asked for, as an error would put it: `libtpu's compile for v5e`.
            timeout: Seconds after which the worker counts as hung; None waits for ever.

        Raises:
            CrashError: The worker died, or did not answer in time.
            TpucError: The worker refused; the error that it raised.
            WorkerFaultError: The worker raised anything else.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            write_message(self._process.stdin, fields, blobs or {})
        except BrokenPipeError:
            raise self._crash(what) from None
        deadline = None if timeout is None else time.monotonic() + timeout
        _wait_readable(self._process.stdout, deadline, lambda: self._raise_hang(what, timeout))
        answer = read_message(self._process.stdout)
        if answer is None:
            raise self._crash(what)
        fields, received = answer
        if "error" in fields:
            raise _rebuild(fields["error"])
        return fields, received

    def log(self) -> str:
        """Returns what the worker's libraries printed so far."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def _crash(self, what: str) -> CrashError:
        code = self._process.wait()
        reason = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        hint = _last_line(self.log())
        return CrashError(f"{what}: the process {reason}", hint=f"Its last words: {hint}" if hint else None)

    def _raise_hang(self, what: str, timeout: float | None) -> None:
        self._process.kill()
        self._process.wait()
        raise CrashError(f"{what}: no answer after {timeout:.0f} s; the process was stopped")


def serve(handlers: Mapping[str, Handler]) -> None:
    """A worker's main loop: answers requests until its standard input ends.

    Args:
        handlers: For each value of a request's field `do`, the function that answers it.
    """
    die_with_parent()
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # Whatever a library prints must not mix with the answers.
    os.dup2(2, 1)
    while (message := read_message(requests)) is not None:
        fields, blobs = message
        try:
            result, received = handlers[fields["do"]](fields, blobs)
        except TpucError as error:
            result, received = {"error": _describe(error)}, {}
        except Exception:  # A defect: it goes to the parent whole, and this worker goes on serving.
            result, received = {"error": {"type": "WorkerFaultError", "text": traceback.format_exc()}}, {}
        write_message(answers, result, received)


def write_message(stream: IO[bytes], fields: Fields, blobs: Blobs) -> None:
    """Writes a message."""
    sizes = {name: len(blob) for name, blob in blobs.items()}
    stream.write(json.dumps({"fields": fields, "blobs": sizes}).encode() + b"\n")
    for blob in blobs.values():
        stream.write(blob)
    stream.flush()


def read_message(stream: IO[bytes]) -> tuple[Fields, Blobs] | None:
    """Reads a message; None if the stream ends before it does."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    message = json.loads(line)
    blobs = {}
    for name, size in message["blobs"].items():
        blobs[name] = stream.read(size)
        if len(blobs[name]) != size:
            return None
    return message["fields"], blobs


def _wait_readable(stream: IO[bytes], deadline: float | None, on_timeout: Callable[[], None]) -> None:
    remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
    ready, _, _ = select.select([stream], [], [], remaining)
    if not ready:
        on_timeout()


def _describe(error: TpucError) -> Fields:
    state = {key: value for key, value in vars(error).items() if isinstance(value, str | int | None)}
    return {"type": type(error).__name__, **state}


def _rebuild(description: Fields) -> Exception:
    kind = description.pop("type")
    if kind == "WorkerFaultError":
        return WorkerFaultError(description["text"])
    made: TpucError = getattr(errors, kind).__new__(getattr(errors, kind))
    vars(made).update(description)
    return made


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def die_with_parent() -> None:
    """Lets this process be killed when the one that started it ends, even if that is killed itself.

    One that waits for requests sees its input end; one that computes would go on.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
