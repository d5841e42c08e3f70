"""Workers: answers, refusals, and the ways of dying."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuc.errors import CrashError, HbmOverflowError
from tpuc.worker import Worker, WorkerFaultError


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker("crashing_worker", env={"PYTHONPATH": str(Path(__file__).parent)}) as worker:
        yield worker


def test_an_answer_comes_back_whole(worker: Worker) -> None:
    blob = bytes(range(256)) * 5000
    fields, blobs = worker.call({"do": "echo", "n": 1, "text": "ä\n"}, {"a": blob, "empty": b""}, what="the echo")
    assert fields == {"do": "echo", "n": 1, "text": "ä\n"}
    assert blobs == {"a": blob[::-1], "empty": b""}
    assert "on standard output" in worker.log()
    assert worker.is_running


def test_a_refusal_is_raised_here(worker: Worker) -> None:
    with pytest.raises(HbmOverflowError) as error:
        worker.call({"do": "refuse"}, what="the request")
    assert (error.value.needed, error.value.available, error.value.hint) == (10, 5, "smaller")
    assert str(error.value) == "too large\n  smaller"
    assert worker.call({"do": "echo"}, what="the next")[0] == {"do": "echo"}


def test_a_defect_comes_with_its_traceback(worker: Worker) -> None:
    with pytest.raises(WorkerFaultError, match="ZeroDivisionError: a defect"):
        worker.call({"do": "fault"}, what="the request")


def test_a_crash_names_the_signal_and_the_last_words(worker: Worker) -> None:
    with pytest.raises(CrashError) as error:
        worker.call({"do": "die"}, what="the conversion")
    assert not worker.is_running
    assert error.value.what == "the conversion: the process was ended by SIGSEGV"
    assert error.value.hint == "Its last words: LLVM ERROR: the last words"


def test_an_exit_is_a_crash(worker: Worker) -> None:
    with pytest.raises(CrashError, match="ended with exit code 3"):
        worker.call({"do": "leave"}, what="the conversion")


def test_a_hang_ends(worker: Worker) -> None:
    with pytest.raises(CrashError, match="no answer after 1 s"):
        worker.call({"do": "hang"}, what="the conversion", timeout=1)
    assert not worker.is_running


def test_a_closed_worker_is_gone(worker: Worker) -> None:
    worker.call({"do": "echo"}, what="the echo")
    pid = worker.pid
    worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
