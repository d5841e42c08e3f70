"""Writes what the coverage benchmark found: docs/coverage.md."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version

from benchmarks.common import markdown_table
from benchmarks.coverage_gaps import GAPS, Gap
from benchmarks.coverage_results import CaseResult

#: The suites in the order of the report, with what stands in the tables for them.
SUITES: Mapping[str, str] = {
    "operators": "operators (OpInfo)",
    "layers": "layers of torch.nn",
    "transformers": "architectures of transformers",
    "timm": "architectures of timm",
    "diffusers": "models of diffusers",
}
_PACKAGES = ("torch", "torch-mlir", "jaxlib", "libtpu", "transformers", "timm", "diffusers")

_HEAD = """\
# Coverage

How much of PyTorch tpuc compiles, written by `make coverage`. Do not edit.

Each case is exported with torch.export, compiled for the CPU, run there and compared with eager (f32: 1e-4 of the
largest element), and compiled for v5e with libtpu. An operator or a model counts as ok when all of its cases are.

- Operators are those of PyTorch's OpInfo database, with its own samples: the first four and four spread over the rest,
  in f32 (or the first dtype that an operator has), bf16, i64, bool and complex64.
- Layers of torch.nn are called as their documentation calls them.
- Models are small, with random weights.
- What draws random numbers is compared by shape and dtype.
"""


def report(results: Sequence[CaseResult], totals: Mapping[str, int]) -> str:
    """Writes the whole report.

    Args:
        results: What has been tried.
        totals: How many names each suite has.
    """
    versions = ", ".join(f"{package} {version(package)}" for package in _PACKAGES)
    parts = [
        _HEAD,
        f"Measured with {versions}.\n",
        "## In figures\n",
        markdown_table(_FIGURES, list(_figures(results, totals))),
        "Operators by dtype, in samples:\n",
        markdown_table(_BY_DTYPE, list(_by_dtype(results))),
        "## What is left\n",
        "A gap that closes is an error of `make coverage`, and of the test that tries its example.\n",
        markdown_table(("what", "cases", "in the way", "cause"), list(_gaps(results))),
        "## What torch.export refuses\n",
        _refused(results),
        "## Models and layers\n",
        *(_names(suite, results) for suite in SUITES if suite != "operators"),
    ]
    return "\n".join(parts)


_FIGURES = ("", "in all", "tried", "exported", "ok", "share", "wrong", "crashed", "other")


def _figures(results: Sequence[CaseResult], totals: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    for suite, title in SUITES.items():
        outcomes = {name: _outcome(cases) for name, cases in _by_name(suite, results).items()}
        counts = collections.Counter(outcomes.values())
        exported = len(outcomes) - counts["not exportable"]
        other = exported - counts["ok"] - counts["wrong"] - counts["crashed"]
        share = f"{counts['ok'] / exported:.1%}" if exported else "-"
        figures = (
            totals[suite],
            len(outcomes),
            exported,
            counts["ok"],
            share,
            counts["wrong"],
            counts["crashed"],
            other,
        )
        yield title, *map(str, figures)


_BY_DTYPE = ("dtype", "samples", "exported", "ok", "wrong", "crashed", "other")


def _by_dtype(results: Sequence[CaseResult]) -> Iterator[tuple[str, ...]]:
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for result in results:
        if result.suite == "operators":
            counts[result.case.partition(" ")[0]][result.outcome] += 1
    for dtype, outcomes in sorted(counts.items(), key=lambda item: -item[1].total()):
        exported = outcomes.total() - outcomes["not exportable"]
        other = exported - outcomes["ok"] - outcomes["wrong"] - outcomes["crashed"]
        figures = (outcomes.total(), exported, outcomes["ok"], outcomes["wrong"], outcomes["crashed"], other)
        yield dtype, *map(str, figures)


def _by_name(suite: str, results: Sequence[CaseResult]) -> dict[str, list[CaseResult]]:
    names: dict[str, list[CaseResult]] = collections.defaultdict(list)
    for result in results:
        if result.suite == suite:
            names[result.name].append(result)
    return dict(sorted(names.items()))


#: The worst first: what stands for several cases.
_WORST = ("crashed", "wrong", "failed", "unsupported", "ok", "not exportable")


def _outcome(cases: Sequence[CaseResult]) -> str:
    return min((case.outcome for case in cases), key=_WORST.index)


def _gaps(results: Sequence[CaseResult]) -> Iterator[tuple[str, ...]]:
    for gap in sorted(GAPS, key=lambda gap: (gap.kind, gap.suite, gap.names)):
        failing = [result for result in results if result.is_bad and gap.covers(result)]
        if failing:
            names = sorted({result.name for result in failing})
            yield f"{', '.join(f'`{name}`' for name in names)}", _cases(gap, failing), gap.kind, gap.cause


def _cases(gap: Gap, failing: Sequence[CaseResult]) -> str:
    if gap.suite != "operators":
        return gap.suite
    return ", ".join(sorted({result.case.partition(" ")[0] for result in failing}))


def _refused(results: Sequence[CaseResult]) -> str:
    lines = []
    for suite, title in SUITES.items():
        names = [f"`{name}`" for name, cases in _by_name(suite, results).items() if _outcome(cases) == "not exportable"]
        if names:
            lines.append(f"- {title}: {', '.join(names)}")
    return "\n".join(lines) + "\n"


def _names(suite: str, results: Sequence[CaseResult]) -> str:
    names = [f"`{name}`" for name, cases in _by_name(suite, results).items() if _outcome(cases) == "ok"]
    return f"{SUITES[suite].capitalize()} that are ok ({len(names)}): {', '.join(names)}.\n"
