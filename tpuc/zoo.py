"""The model zoo: models built for targets, and one report of what came out.

    python -m tpuc.zoo build models/minilm.py --target v5e --output build/zoo/minilm/v5e.bin
    python -m tpuc.zoo report build/zoo

`build` leaves a record beside the artifact: `v5e.json`, or `v5e.failed.json` after a failure. So a makefile whose
targets are the records builds again what failed. `report` merges the records of a folder into REPORT.md and
REPORT.json. `make zoo` does both for every model in models/.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import click

from tpuc.errors import ArtifactError, RequestError, TpucError
from tpuc.guard import Guard
from tpuc.report.summary import bytes_text
from tpuc.runtime.files import replacing

Outcome = Literal["built", "does not fit", "failed"]

_FAILED = ".failed.json"
_UNFINISHED = "the build did not finish; what it printed says why"
_COLUMNS = (
    "model",
    "target",
    "parameters",
    "compile",
    "executable",
    "code",
    "arguments",
    "temporaries",
    "outputs",
    "of HBM",
    "cycles",
    "time",
    "error against eager",
)
_LEGEND = """\
*compile*: all stages, from the file to the artifact. *executable*: in the artifact. *code*, *arguments*, *temporaries*
and *outputs*: in the target's memory. *cycles* and *time*: the TPU compiler's own estimate. *error against eager*: the
largest difference from eager PyTorch, relative to the largest value of the output, when the artifact was run on the
CPU; then whether the model's own check came out equal. A program for a TPU was compiled, not run."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How a program's outputs compare with those of eager PyTorch.

    Attributes:
        output: The output that is furthest from its limit, or beyond it.
        error: Its largest difference, relative to its largest value.
        limit: What is allowed of it.
        check: Whether the model's own check came out equal; None where it has none.
    """

    output: str
    error: float
    limit: float
    check: bool | None = None

    @property
    def holds(self) -> bool:
        """Whether the program does what eager does."""
        return self.error <= self.limit and self.check is not False

    def __str__(self) -> str:
        text = f"{self.error:.1e}"
        return text if self.check is None else f"{text}, check {'equal' if self.check else 'differs'}"


@dataclass(frozen=True, kw_only=True)
class ZooRecord:
    """What became of one model for one target.

    Attributes:
        model: The model's name: the stem of its file.
        target: The target.
        outcome: What became of it. `does not fit` is a result for a chip that the model is not meant for.
        reason: Why it was not built, or "".
        inputs: What the program takes.
        parameters: Elements of its parameters.
        seconds: How long each stage took.
        executable_bytes: Size of the executable in the artifact.
        memory: Bytes on the device, by kind: argument, output, alias, temp, code.
        hbm_bytes: HBM of the chip; None for the CPU.
        estimated_cycles: The TPU compiler's estimate; None where it makes none.
        estimated_seconds: The same at the chip's clock; None where that is not known.
        agreement: How it compares with eager; None where it was not run.
    """

    model: str
    target: str
    outcome: Outcome
    reason: str = ""
    inputs: tuple[str, ...] = ()
    parameters: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    executable_bytes: int = 0
    memory: dict[str, int] = field(default_factory=dict)
    hbm_bytes: int | None = None
    estimated_cycles: int | None = None
    estimated_seconds: float | None = None
    agreement: Agreement | None = None

    @property
    def memory_bytes(self) -> int:
        """Bytes on the device in all."""
        # Donated state is an argument and an output at once.
        taken = sum(self.memory[kind] for kind in ("argument", "output", "temp", "code"))
        return taken - self.memory["alias"]


def write_record(record: ZooRecord, output: Path) -> None:
    """Writes the record of an artifact beside it, in place of an older one.

    Args:
        record: The record.
        output: The artifact, whether it was built or not.
    """
    good, failed = output.with_suffix(".json"), output.with_suffix(_FAILED)
    path, other = (failed, good) if record.outcome == "failed" else (good, failed)
    _write(path, json.dumps(dataclasses.asdict(record), indent=2) + "\n")
    other.unlink(missing_ok=True)


def read_records(folder: Path) -> list[ZooRecord]:
    """Reads the records of a zoo, by model and target.

    Raises:
        RequestError: There are none.
        ArtifactError: One is damaged.
    """
    paths = sorted(folder.glob("*/*.json"))
    if not paths:
        raise RequestError(f"{folder} holds no records", hint="Build a model first: python -m tpuc.zoo build.")
    return sorted(map(_read_record, paths), key=lambda record: (record.model, record.target))


def _read_record(path: Path) -> ZooRecord:
    try:
        fields = json.loads(path.read_bytes())
        agreement, inputs = fields.pop("agreement"), fields.pop("inputs")
        return ZooRecord(**fields, inputs=tuple(inputs), agreement=Agreement(**agreement) if agreement else None)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArtifactError(f"not a record of the zoo: {error}", where=str(path), hint="Build it again.") from error


def write_report(folder: Path) -> list[ZooRecord]:
    """Merges the records of a zoo into REPORT.md and REPORT.json.

    Returns:
        The records.

    Raises:
        RequestError: There are none.
        ArtifactError: One is damaged.
    """
    records = read_records(folder)
    _write(folder / "REPORT.md", "\n".join(_markdown(records)) + "\n")
    _write(folder / "REPORT.json", json.dumps(list(map(dataclasses.asdict, records)), indent=2) + "\n")
    return records


def _markdown(records: Iterable[ZooRecord]) -> Iterator[str]:
    built = [record for record in records if record.outcome == "built"]
    rest = [record for record in records if record.outcome != "built"]
    yield from ("# The model zoo", "")
    yield f"| {' | '.join(_COLUMNS)} |"
    yield f"|---|---|{'---:|' * (len(_COLUMNS) - 2)}"
    for record in built:
        yield f"| {' | '.join(_cells(record))} |"
    yield from ("", _LEGEND)
    if rest:
        yield from ("", "## Not built", "")
    for record in rest:
        yield f"- **{record.model} for {record.target}**: {record.outcome}"
        yield from (f"      {line}".rstrip() for line in ("", *record.reason.splitlines(), ""))


def _cells(record: ZooRecord) -> Iterator[str]:
    memory = record.memory
    cycles, seconds = record.estimated_cycles, record.estimated_seconds
    yield record.model
    yield record.target
    yield f"{record.parameters:,}"
    yield f"{sum(record.seconds.values()):.1f} s"
    yield bytes_text(record.executable_bytes)
    yield bytes_text(memory["code"]) if record.hbm_bytes else "-"
    yield bytes_text(memory["argument"])
    yield bytes_text(memory["temp"])
    yield bytes_text(memory["output"] - memory["alias"])
    yield f"{record.memory_bytes / record.hbm_bytes:.1%}" if record.hbm_bytes else "-"
    yield f"{cycles:,}" if cycles else "-"
    yield f"{seconds * 1e3:.3g} ms" if seconds else "-"
    yield str(record.agreement) if record.agreement else "not run"


def _write(path: Path, text: str) -> None:
    with replacing(path) as replacement:
        replacement.file.write(text.encode())


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Build models for targets, and report what came out."""


@main.command("build")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--target", required=True, help="cpu, v5e, ...")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="The artifact; its record goes beside.")
def build_command(model: Path, target: str, output: Path) -> None:
    """Build MODEL, a .py file, for one target as its ZOO settings say, and compare it with eager on the cpu."""
    output.parent.mkdir(parents=True, exist_ok=True)
    guard = Guard(verbose=False, debug=False)
    sys.exit(guard.run(lambda: _build(model, target, output, guard)))


def _build(model: Path, target: str, output: Path, guard: Guard) -> None:
    from tpuc.zoo_build import build

    start = time.perf_counter()
    # If this process is ended, its record says so.
    write_record(ZooRecord(model=model.stem, target=target, outcome="failed", reason=_UNFINISHED), output)
    record = build(model, target, output, at=lambda stage: guard.at(f"{stage} of {model} for {target}"))
    write_record(record, output)
    if record.outcome == "failed":
        raise TpucError(f"{record.model} for {record.target} failed: {record.reason}")
    print(f"{record.model} for {record.target}: {record.outcome}, {time.perf_counter() - start:.0f} s")


@main.command("report")
@click.argument("folder", type=click.Path(path_type=Path))
def report_command(folder: Path) -> None:
    """Merge the records below FOLDER into its REPORT.md and REPORT.json; exit 1 if a model failed."""
    sys.exit(Guard(verbose=False, debug=False).run(lambda: _report(folder)))


def _report(folder: Path) -> None:
    records = write_report(folder)
    failed = [f"{record.model} for {record.target}" for record in records if record.outcome == "failed"]
    print(f"{len(records) - len(failed)} of {len(records)} as they should be: {folder / 'REPORT.md'}")
    if failed:
        raise TpucError(f"failed: {', '.join(failed)}", hint=f"{folder / 'REPORT.md'} gives the reasons.")


if __name__ == "__main__":
    main()
