"""The TPU compiler's estimates for passes: what would this program cost?"""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self

from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.backend.compile import compile_in, start_worker
from tpuc.errors import BackendError, CrashError
from tpuc.report.cycles import count_cycles
from tpuc.runtime.cache import Cache, cache_key, default_folder
from tpuc.targets import Target
from tpuc.worker import Worker

_logger = logging.getLogger(__name__)


def estimator_for(target: Target, worker: Worker | None = None) -> AbstractContextManager[LibtpuEstimator | None]:
    """Returns who estimates what programs cost on a target: libtpu for a chip, nobody for the CPU.

    Args:
        target: The target.
        worker: As `LibtpuEstimator` takes it.
    """
    return LibtpuEstimator(target, worker=worker) if target.chip else nullcontext()


class LibtpuEstimator:
    """Compiles programs with libtpu for their estimated cycles, and keeps the answers in the user's cache folder.

    Unless one is given, the compiler's process is started when the first program comes that has no answer yet.
    """

    def __init__(self, target: Target, *, folder: Path | None = None, worker: Worker | None = None) -> None:
        """Prepares for a chip.

        Args:
            target: The chip.
            folder: Where to keep the answers; None takes the user's cache folder.
            worker: A process that `start_worker` started for the chip, which compiles with the installed libtpu. It is
                closed only where the compiler ends it.
        """
        self._target = target
        self._cache = Cache(folder or default_folder() / "estimates", "estimate")
        self._given = self._worker = worker

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._worker is not None and self._worker is not self._given:
            self._worker.close()

    def cycles(self, module: ir.Module) -> int | None:
        """Returns the compiler's estimate for a module, in cycles; None where it makes none or refuses the module.

        The module loses its source locations, so that equal programs are estimated once.
        """
        mlir.run_pipeline(module, "strip-debuginfo")
        program = mlir.to_portable(module)
        key = cache_key(str(self._target), version("libtpu"), version("jaxlib"), hashlib.sha256(program).hexdigest())
        kept = self._cache.read(key)
        if kept is not None:
            found: int | None = json.loads(kept)
            return found
        cycles = self._compile(program)
        try:
            self._cache.write(key, json.dumps(cycles).encode())
        except OSError as error:
            _logger.warning("an estimate is not kept: %s", error)
        return cycles

    def _compile(self, program: bytes) -> int | None:
        if self._worker is None:
            self._worker = start_worker(self._target)
        try:
            executable = compile_in(self._worker, program, self._target)
        except BackendError:
            return None
        except CrashError:
            # The next program gets a new process.
            self._worker.close()
            self._worker = None
            return None
        return count_cycles(executable.hlo, self._target.chip).total or None
