"""How much of PyTorch tpuc compiles, and whether the answers are right.

    python -m benchmarks.coverage run                      # all, in two processes; started again, it goes on
    python -m benchmarks.coverage run --names 'nn.functional.*pool' --verbose
    python -m benchmarks.coverage report                   # writes docs/coverage.md

Each case is exported, compiled for the CPU, run there and compared with eager, and compiled for v5e with libtpu.
"""

from __future__ import annotations

import itertools
import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Self

import click

from benchmarks.common import BENCH, ROOT
from benchmarks.coverage_gaps import closed, unexplained
from benchmarks.coverage_report import report
from benchmarks.coverage_results import CaseResult, read_results, to_lines
from tpuc.errors import CrashError
from tpuc.runtime.files import replacing
from tpuc.worker import Fields, Worker, WorkerFaultError

SUITES = ("operators", "layers", "transformers", "timm", "diffusers")
RESULTS = BENCH / "coverage.jsonl"
REPORT = ROOT / "docs" / "coverage.md"
#: A case that takes longer never ends.
_CASE_SECONDS = 600.0
#: Compiled programs and traced graphs pile up in a worker: after so many names it is made anew.
_NAMES_PER_WORKER = 100


class Pool:
    """Workers, each used by one thread at a time, and replaced when they die or have done enough."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._all: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self._all:
            worker.close()

    def call(self, fields: Fields, what: str) -> Fields:
        """Sends a request to this thread's worker.

        Raises:
            CrashError: The worker died or hung.
            WorkerFaultError: It raised.
        """
        return self._worker().call(fields, what=what, timeout=_CASE_SECONDS)[0]

    def start_name(self) -> None:
        """Tells that a new name begins."""
        self._local.names = getattr(self._local, "names", 0) + 1
        if self._local.names > _NAMES_PER_WORKER:
            self._worker().close()
            self._local.worker = None
            self._local.names = 1

    def _worker(self) -> Worker:
        worker: Worker | None = getattr(self._local, "worker", None)
        if worker is None or not worker.is_running:
            worker = Worker("benchmarks.coverage_worker", env={"PYTHONPATH": str(ROOT)})
            self._local.worker = worker
            self._all.append(worker)
        return worker


def run_name(pool: Pool, suite: str, name: str, choose: Callable[[list[str]], list[str]]) -> list[CaseResult]:
    """Runs the cases of a name that are chosen among all."""
    pool.start_name()
    try:
        listed = pool.call({"do": "list_cases", "suite": suite, "name": name}, f"the list of {name}'s cases")["cases"]
    except (CrashError, WorkerFaultError) as error:
        return [CaseResult(suite=suite, name=name, case="", outcome="crashed", detail=str(error))]
    todo = choose(listed)
    if suite != "operators":
        return [run_case(pool, suite, name, case) for case in todo]
    return _run_samples(pool, name, todo) or [
        result
        for _, samples in itertools.groupby(todo, key=lambda case: case.split()[0])
        for result in _run_dtype(pool, name, list(samples))
    ]


def _run_dtype(pool: Pool, name: str, samples: list[str]) -> list[CaseResult]:
    return _run_samples(pool, name, samples) or [run_case(pool, "operators", name, sample) for sample in samples]


def _run_samples(pool: Pool, name: str, samples: list[str]) -> list[CaseResult]:
    """Runs samples as one program; gives nothing if that is not ok, and it takes to run fewer to see why."""
    if len(samples) < 2 or run_case(pool, "operators", name, ", ".join(samples)).outcome != "ok":
        return []
    return [CaseResult(suite="operators", name=name, case=sample, outcome="ok") for sample in samples]


def run_case(pool: Pool, suite: str, name: str, case: str) -> CaseResult:
    """Runs one case."""
    try:
        verdict = pool.call({"do": "run", "suite": suite, "name": name, "case": case}, f"{name} {case}")
    except (CrashError, WorkerFaultError) as error:
        verdict = {"outcome": "crashed", "target": "cpu", "detail": str(error)}
    return CaseResult(suite=suite, name=name, case=case, **verdict)


def _names(pool: Pool, suite: str) -> list[str]:
    names: list[str] = pool.call({"do": "list_names", "suite": suite}, f"the list of {suite}")["names"]
    return names


def _run_all(
    pool: Pool, suites: tuple[str, ...], names: str, cases: str, output: Path | None, jobs: int, *, again: bool
) -> Iterator[CaseResult]:
    """Runs what has no result in the file yet, and appends each name's results as soon as they are there."""
    known = read_results(output) if output else []
    done = {(result.suite, result.name, result.case) for result in known if not (again and result.is_bad)}

    def run_rest(suite: str, name: str) -> list[CaseResult]:
        def choose(listed: list[str]) -> list[str]:
            return [case for case in listed if re.search(cases, case) and (suite, name, case) not in done]

        return run_name(pool, suite, name, choose)

    todo = [(suite, name) for suite in suites for name in _names(pool, suite) if re.search(names, name)]
    # What was begun comes last: most often nothing is left of it.
    begun = {(suite, name) for suite, name, _ in done}
    todo.sort(key=lambda item: item in begun)
    with ThreadPoolExecutor(max_workers=jobs) as threads:
        for finished in as_completed([threads.submit(run_rest, suite, name) for suite, name in todo]):
            results = finished.result()
            if output:
                output.parent.mkdir(parents=True, exist_ok=True)
                with output.open("a") as file:
                    file.write(to_lines(results))
            yield from results


@click.group()
def main() -> None:
    """Measure how much of PyTorch tpuc compiles."""


@main.command("run")
@click.option("--suite", "suites", multiple=True, type=click.Choice(SUITES), default=SUITES, help="Only this suite.")
@click.option("--names", default="", help="A pattern: only operators or models whose name it matches.")
@click.option("--cases", default="", help="A pattern: only cases that it matches, such as '^f32'.")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Results, of which those that are there are kept; a run of a part keeps none unless this is given.",
)
@click.option("--again", is_flag=True, help="Run what failed before once more.")
@click.option("--verbose", is_flag=True, help="Print every case that fails, not one a name.")
def run_command(
    suites: tuple[str, ...], names: str, cases: str, jobs: int, output: Path, again: bool, verbose: bool
) -> None:
    """Run the cases that have no result yet."""
    if output is None and not (names or cases):
        output = RESULTS
    told = ""
    bad = 0
    with Pool() as pool:
        for result in _run_all(pool, suites, names, cases, output, jobs, again=again):
            if result.is_bad:
                bad += 1
                if verbose or told != result.name:
                    print(result, flush=True)
                told = result.name
    print(f"{bad} cases failed")


@main.command("report")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, help="What `run` left.")
@click.option("--output", type=click.Path(path_type=Path), default=REPORT, help="The report.")
def report_command(results: Path, output: Path) -> None:
    """Write the report; fails where a case failed without a known cause, or a known gap has closed."""
    found = read_results(results)
    with Pool() as pool:
        totals = {suite: len(_names(pool, suite)) for suite in SUITES}
    with replacing(output) as replacement:
        replacement.file.write(report(found, totals).encode())
    faults = [f"fails without a cause in benchmarks/coverage_gaps.py: {result}" for result in unexplained(found)]
    faults += [f"works, and stands in benchmarks/coverage_gaps.py: {result}" for result in closed(found)]
    print("\n".join(faults) or f"{output} is written")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    sys.exit(main())
