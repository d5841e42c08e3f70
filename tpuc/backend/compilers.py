"""The processes that compile the programs of one artifact, side by side."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tpuc.backend.caches import Caches
from tpuc.backend.compile import Executable, compile_program, keep_executable, start_worker
from tpuc.backend.estimate import LibtpuEstimator, estimator_for
from tpuc.dims import Bucket, bucket_name
from tpuc.program import OptimizedProgram
from tpuc.report.cycles import Cycles, count_cycles
from tpuc.request import CompileRequest
from tpuc.runtime.files import replacing
from tpuc.targets import CPU, Target
from tpuc.worker import Worker


@dataclass(frozen=True, kw_only=True)
class CompiledTarget:
    """An executable with what it will cost.

    Attributes:
        bucket: What the sizes may be.
        executable: The executable.
        cycles: The compiler's estimate; all zero for the CPU, where it makes none.
    """

    bucket: Bucket
    executable: Executable
    cycles: Cycles


class Compilers:
    """Compiles for every bucket and target, with every libtpu where several are asked for, side by side."""

    def __init__(self, request: CompileRequest, dump: Path | None, caches: Caches | None) -> None:
        """Starts as many processes as will compile at once.

        Args:
            request: What will be compiled.
            dump: As `compile_model` takes it.
            caches: As `compile_model` takes it.
        """
        self._dump = dump
        self._caches = caches
        #: What was compiled while passes asked what it would cost.
        self._estimated: dict[Target, dict[bytes, Executable]] = {target: {} for target in (*request.targets, CPU)}
        self._jobs = [
            (bucket, target, libtpu)
            for bucket in request.programs()
            for target in request.targets
            for libtpu in ((None,) if target.platform == "cpu" else request.libtpus or (None,))
        ]
        # Each keeps a core busy, or more; with more of them they would wait for each other.
        at_once = os.cpu_count() or 1
        self._workers = {number: start_worker(job[1]) for number, job in enumerate(self._jobs[:at_once])}
        # One target leaves a core idle while passes compare two programs.
        chip = next((target for _, target, libtpu in self._jobs if target.chip and libtpu is None), None)
        self._spare = {chip: start_worker(chip)} if chip and len(self._jobs) < at_once else {}
        self._pool = ThreadPoolExecutor(max_workers=at_once)
        self._started: dict[int, Future[CompiledTarget]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for worker in (*self._workers.values(), *self._spare.values()):
            worker.close()

    def estimator(self, target: Target) -> AbstractContextManager[LibtpuEstimator | None]:
        """Returns who estimates what programs cost on a target, and leaves what it compiled whole for `start`."""
        cache = None if self._caches is None else self._caches.estimates
        return estimator_for(target, cache=cache, workers=self._idle_workers(target), made=self._estimated[target])

    def _idle_workers(self, target: Target) -> list[Worker]:
        """Processes that can compile for a target with the installed libtpu, and do nothing yet."""
        idle = [
            worker
            for number, worker in self._workers.items()
            if number not in self._started and self._jobs[number][1:] == (target, None)
        ][:1]
        idle += [self._spare[target]] if target in self._spare else []
        return [worker for worker in idle if worker.is_running]

    def start(self, bucket: Bucket, target: Target, program: OptimizedProgram) -> None:
        """Begins to compile a program, and returns at once."""
        for number, job in enumerate(self._jobs):
            if job[:2] == (bucket, target):
                self._started[number] = self._pool.submit(self._compile, number, program)

    def finish(self) -> tuple[CompiledTarget, ...]:
        """Waits until all is compiled.

        Raises:
            BackendError: A compiler refused a program.
            CrashError: One ended its process.
        """
        return tuple(self._started[number].result() for number in range(len(self._jobs)))

    def _compile(self, number: int, program: OptimizedProgram) -> CompiledTarget:
        bucket, target, libtpu = self._jobs[number]
        worker = self._workers.get(number)
        cache = None if self._caches is None else self._caches.executables
        executable = None if libtpu else self._estimated[target].pop(program.main, None)
        if executable is None:
            executable = compile_program(
                program.main,
                target,
                libtpu=libtpu,
                worker=worker if worker is not None and worker.is_running else None,
                cache=cache,
            )
        elif cache is not None:
            keep_executable(executable, program.main, cache)
        if self._dump is not None:
            name = ".".join(filter(None, (str(target), bucket_name(bucket), "hlo.txt")))
            with replacing(self._dump / name) as replacement:
                replacement.file.write(executable.hlo.encode())
        cycles = count_cycles(executable.hlo, target.chip)
        return CompiledTarget(bucket=bucket, executable=executable, cycles=cycles)
