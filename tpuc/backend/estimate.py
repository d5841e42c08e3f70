"""The TPU compiler's estimates for passes: what would this program cost?"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
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

    As many are compiled side by side as there are cores. Processes beside the one that may be given are started when
    programs come that have no answer yet.
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
        self._given = worker
        self._at_once = os.cpu_count() or 1
        #: Who compiles nothing yet; None stands for a process that is not started.
        self._idle: SimpleQueue[Worker | None] = SimpleQueue()
        for each in [worker, *[None] * (self._at_once - 1)]:
            self._idle.put(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        while not self._idle.empty():
            worker = self._idle.get()
            if worker is not None and worker is not self._given:
                worker.close()

    def cycles(self, module: ir.Module) -> int | None:
        """Returns what `cycles_of` says of one module."""
        return self.cycles_of([module])[0]

    def cycles_of(self, modules: Sequence[ir.Module]) -> list[int | None]:
        """Returns the compiler's estimate for each module; see `tpuc.passes.base.Estimator`."""
        programs = {}
        keys = []
        for module in modules:
            mlir.run_pipeline(module, "strip-debuginfo")
            program = mlir.to_portable(module)
            keys.append(self._key(program))
            programs[keys[-1]] = program
        found: dict[str, int | None] = {}
        for key in programs:
            kept = self._cache.read(key)
            if kept is not None:
                found[key] = json.loads(kept)
        unknown = [key for key in programs if key not in found]
        with ThreadPoolExecutor(max_workers=self._at_once) as pool:
            for key, cycles in zip(unknown, pool.map(lambda key: self._compile(programs[key]), unknown), strict=True):
                found[key] = cycles
                self._keep(key, cycles)
        return [found[key] for key in keys]

    def _key(self, program: bytes) -> str:
        return cache_key(str(self._target), version("libtpu"), version("jaxlib"), hashlib.sha256(program).hexdigest())

    def _keep(self, key: str, cycles: int | None) -> None:
        try:
            self._cache.write(key, json.dumps(cycles).encode())
        except OSError as error:
            _logger.warning("an estimate is not kept: %s", error)

    def _compile(self, program: bytes) -> int | None:
        worker = self._idle.get()
        try:
            worker = worker or start_worker(self._target)
            executable = compile_in(worker, program, self._target)
        except BackendError:
            return None
        except CrashError:
            # The next program gets a new process.
            assert worker is not None
            worker.close()
            worker = None
            return None
        finally:
            self._idle.put(worker)
        return count_cycles(executable.hlo, self._target.chip).total or None
