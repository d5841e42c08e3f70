"""What became of each case of the coverage benchmark, and the file that keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """What became of one case; see `benchmarks.against_eager.Verdict`.

    Attributes:
        suite: Which suite it is of.
        name: The operator or model.
        case: The sample: `f32 0`; "" for a model.
        outcome: What happened.
        target: Where it failed.
        detail: Why.
    """

    suite: str
    name: str
    case: str
    outcome: str
    target: str = ""
    detail: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether torch.export takes the case and tpuc fails on it."""
        return self.outcome not in ("ok", "not exportable")

    def __str__(self) -> str:
        where = f" on {self.target}" if self.target else ""
        return f"{self.name} {self.case}: {self.outcome}{where}: {self.detail[:300]}"


def read_results(path: Path) -> list[CaseResult]:
    """Reads what runs left, the newest of each case; a last line that was cut off is dropped.

    That the cases of a name could not be listed is forgotten once they have been.
    """
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    results = [CaseResult(**json.loads(line)) for line in lines if line.endswith("\n")]
    newest: dict[tuple[str, str, str], CaseResult] = {}
    for result in results:
        newest.pop((result.suite, result.name, ""), None)
        newest[result.suite, result.name, result.case] = result
    return list(newest.values())


def to_lines(results: Iterable[CaseResult]) -> str:
    """Writes results as lines of JSON."""
    return "".join(json.dumps(asdict(result)) + "\n" for result in results)
