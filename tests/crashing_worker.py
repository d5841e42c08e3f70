"""A worker for tests: it does what it is asked, such as dying. Run as `python -m crashing_worker`."""

import os
import signal
import sys
import time

from tpuc.errors import HbmOverflowError
from tpuc.worker import Blobs, Fields, serve


def echo(fields: Fields, blobs: Blobs) -> tuple[Fields, Blobs]:
    print("on standard output")  # Must not mix with the answer.
    return fields, {name: blob[::-1] for name, blob in blobs.items()}


def refuse(fields: Fields, blobs: Blobs) -> tuple[Fields, Blobs]:
    raise HbmOverflowError("too large", needed=10, available=5, hint="smaller")


def fault(fields: Fields, blobs: Blobs) -> tuple[Fields, Blobs]:
    raise ZeroDivisionError("a defect")


def die(fields: Fields, blobs: Blobs) -> tuple[Fields, Blobs]:
    print("LLVM ERROR: the last words", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}, {}


def leave(fields: Fields, blobs: Blobs) -> tuple[Fields, Blobs]:
    os._exit(3)


def hang(fields: Fields, blobs: Blobs) -> tuple[Fields, Blobs]:
    time.sleep(60)
    return {}, {}


if __name__ == "__main__":
    serve({"echo": echo, "refuse": refuse, "fault": fault, "die": die, "leave": leave, "hang": hang})
