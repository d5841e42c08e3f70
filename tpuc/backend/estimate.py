"""The TPU compiler's estimates for passes: what would this program cost?"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.backend.compile import Executable, compile_in, compile_key, start_worker
from tpuc.errors import BackendError, CrashError
from tpuc.passes.base import LoopCosts
from tpuc.passes.hoist_weights import hoist_weights
from tpuc.program import take_apart
from tpuc.report.cycles import count_cycles, count_with_loops
from tpuc.runtime.cache import Cache, cache_key
from tpuc.targets import Target
from tpuc.worker import Worker

#: Another number for another way to count, or another form of what is kept.
_CACHE_VERSION = 1
_logger = logging.getLogger(__name__)


def estimator_for(
    target: Target,
    *,
    cache: Cache | None,
    workers: Sequence[Worker] = (),
    made: MutableMapping[bytes, Executable] | None = None,
) -> AbstractContextManager[LibtpuEstimator | None]:
    """Returns who estimates what programs cost on a target: libtpu for a chip, nobody for the CPU.

    Args:
        target: The target.
        cache: As `LibtpuEstimator` takes it.
        workers: As `LibtpuEstimator` takes them.
        made: As `LibtpuEstimator` takes it.
    """
    return LibtpuEstimator(target, cache=cache, workers=workers, made=made) if target.chip else nullcontext()


class LibtpuEstimator:
    """Compiles programs with libtpu for their estimated cycles.

    As many are compiled side by side as there are cores. Processes beside those that may be given are started when
    programs come that have no answer yet.
    """

    def __init__(
        self,
        target: Target,
        *,
        cache: Cache | None,
        workers: Sequence[Worker] = (),
        made: MutableMapping[bytes, Executable] | None = None,
    ) -> None:
        """Prepares for a chip.

        Args:
            target: The chip.
            cache: Where answers are looked for first, and kept; None keeps nothing.
            workers: Processes that `start_worker` started for the chip, to compile with the installed libtpu. They are
                closed only where the compiler ends them.
            made: Gets the executables of whole programs, by the program (portable StableHLO) that each was made of.
        """
        self._target = target
        self._cache = cache
        self._given = tuple(workers)
        self._made = made
        self._at_once = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(max_workers=self._at_once)
        #: Who compiles nothing yet; None stands for a process that is not started.
        self._idle: SimpleQueue[Worker | None] = SimpleQueue()
        for each in [*workers, *[None] * (self._at_once - len(workers))]:
            self._idle.put(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()
        while not self._idle.empty():
            worker = self._idle.get()
            if worker is not None and worker not in self._given:
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
            keys.append(self._key("program", program))
            programs[keys[-1]] = program
        pending = {key: self._pool.submit(self._ask, key, programs[key]) for key in programs}
        return [pending[key].result() for key in keys]

    def loops_of(self, module: ir.Module) -> Future[LoopCosts | None]:
        """Begins to estimate a whole program and its loops; see `tpuc.passes.base.Estimator`."""
        copy = mlir.copy(module)
        with module.context:
            hoist_weights(copy)
        program = take_apart(copy).main
        return self._pool.submit(self._ask_for_loops, self._key("loops", program), program)

    def _key(self, kind: str, program: bytes) -> str:
        return cache_key(_CACHE_VERSION, kind, compile_key(program, self._target))

    def _ask(self, key: str, program: bytes) -> int | None:
        def count(executable: Executable) -> int | None:
            return count_cycles(executable.hlo, self._target.chip).total or None

        cycles: int | None = self._answer(key, program, count)
        return cycles

    def _ask_for_loops(self, key: str, program: bytes) -> LoopCosts | None:
        def count(executable: Executable) -> dict[str, Any]:
            if self._made is not None:
                self._made[program] = executable
            whole, loops = count_with_loops(executable.hlo, self._target.chip)
            return asdict(LoopCosts(total=whole.total, loops={name: cycles.total for name, cycles in loops.items()}))

        answer = self._answer(key, program, count)
        return None if answer is None else LoopCosts(**answer)

    def _answer(self, key: str, program: bytes, count: Callable[[Executable], Any]) -> Any:
        """Returns, as JSON has it, what is kept, or what is counted in the executable and kept from now on."""
        kept = self._kept(key)
        if kept is not None:
            return json.loads(kept)
        try:
            executable = self._compile(program)
        except CrashError:
            return None
        answer = None if executable is None else count(executable)
        self._keep(key, answer)
        return answer

    def _kept(self, key: str) -> bytes | None:
        return None if self._cache is None else self._cache.read(key)

    def _keep(self, key: str, answer: object) -> None:
        if self._cache is None:
            return
        try:
            self._cache.write(key, json.dumps(answer).encode())
        except OSError as error:
            _logger.warning("an estimate is not kept: %s", error)

    def _compile(self, program: bytes) -> Executable | None:
        """Compiles; None where the compiler refuses.

        Raises:
            CrashError: Something ended its process, which says nothing of the program: it may do so another time only.
        """
        worker = self._idle.get()
        try:
            worker = worker or start_worker(self._target)
            return compile_in(worker, program, self._target)
        except BackendError:
            return None
        except CrashError:
            # The next program gets a new process.
            assert worker is not None
            worker.close()
            worker = None
            raise
        finally:
            self._idle.put(worker)
