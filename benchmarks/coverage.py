"""How much of PyTorch tpuc compiles, and whether the answers are right.

    python benchmarks/coverage.py --ops 'nn.functional.*pool' --verbose
    python benchmarks/coverage.py --output build/coverage.jsonl     # all; started again, goes on where it was

Each operator of PyTorch's OpInfo database is exported, compiled for the CPU and compared with eager.
"""

from __future__ import annotations

import collections
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.opinfo import Runner, SampleResult, dtypes_of, operators


@click.command()
@click.option("--ops", default="", help="A pattern: only operators whose name it matches.")
@click.option("--first-dtype-only", is_flag=True, help="Only f32, or the first dtype that an operator has.")
@click.option("--output", type=click.Path(path_type=Path), help="A file for the results, one JSON a line.")
@click.option("--verbose", is_flag=True, help="Print every sample that is not ok.")
def main(ops: str, first_dtype_only: bool, output: Path | None, verbose: bool) -> None:
    """Run OpInfo samples through tpuc."""
    done = _done(output)
    runner = Runner()
    results: list[SampleResult] = []
    for name, op in operators().items():
        if not re.search(ops, name) or name in done:
            continue
        found = [
            result
            for dtype in (dtypes_of(op)[:1] if first_dtype_only else dtypes_of(op))
            for result in runner.run(name, op, dtype)
        ]
        results += found
        if output:
            with output.open("a") as file:
                file.writelines(json.dumps(asdict(result)) + "\n" for result in found)
        bad = [result for result in found if result.outcome not in ("ok", "not exportable")]
        if bad:
            print(f"{name}: {len(bad)} of {len(found)} not ok: {_text(bad[0])}", flush=True)
        for result in bad if verbose else ():
            print(f"    {_text(result)}", flush=True)
    runner.close()
    _print_totals(results)


def _text(result: SampleResult) -> str:
    return f"{result.dtype}[{result.index}] {result.outcome}: {result.detail[:300]}"


def _done(output: Path | None) -> set[str]:
    if output is None or not output.exists():
        return set()
    return {json.loads(line)["operator"] for line in output.read_text().splitlines()}


def _print_totals(results: list[SampleResult]) -> None:
    by_operator = collections.defaultdict(list)
    for result in results:
        by_operator[result.operator].append(result.outcome)
    exportable = {name: outcomes for name, outcomes in by_operator.items() if set(outcomes) != {"not exportable"}}
    ok = sum(set(outcomes) <= {"ok", "not exportable"} for outcomes in exportable.values())
    print(f"{ok} of {len(exportable)} exportable operators ok; {len(by_operator) - len(exportable)} not exportable")
    print(dict(collections.Counter(result.outcome for result in results)))


if __name__ == "__main__":
    main()
