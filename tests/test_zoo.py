"""The zoo: records, their report, and `make zoo` with a model that fails."""

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tpuc.errors import ArtifactError, RequestError
from tpuc.zoo import Agreement, ZooRecord, read_records, write_record, write_report

_ROOT = Path(__file__).parents[1]

_BUILT = ZooRecord(
    model="net",
    target="v5e",
    outcome="built",
    inputs=("x=f32[1,3]",),
    parameters=8,
    seconds={"load": 1.0, "compile": 2.5},
    executable_bytes=2048,
    memory={"argument": 1024, "output": 512, "alias": 256, "temp": 0, "code": 128},
    hbm_bytes=2816,
    estimated_cycles=1500,
    estimated_seconds=1e-6,
)
_FAILED = ZooRecord(model="bad", target="cpu", outcome="failed", reason="forward failed\n  at bad.py:7")

_MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)

def example_inputs():
    return (torch.ones(1, 3),)
"""


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tpuc.zoo", *arguments], capture_output=True, text=True)


def test_memory_counts_donated_state_once() -> None:
    assert _BUILT.memory_bytes == 1024 + 512 - 256 + 128


def test_an_agreement_holds_within_its_limit_and_if_the_check_is_equal() -> None:
    fields = {"output": "y", "error": 1e-5, "limit": 1e-4}
    assert Agreement(**fields).holds
    assert Agreement(**fields, check=True).holds
    assert not Agreement(**fields, check=False).holds
    assert not Agreement(**{**fields, "error": 2e-4}).holds
    assert not Agreement(**{**fields, "error": float("nan")}).holds


def test_a_record_comes_back(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    record = dataclasses.replace(_BUILT, agreement=Agreement(output="y", error=1e-7, limit=1e-4, check=True))
    write_record(record, tmp_path / "net" / "v5e.bin")
    assert read_records(tmp_path) == [record]


def test_a_record_of_success_and_one_of_failure_replace_each_other(tmp_path: Path) -> None:
    output = tmp_path / "cpu.bin"
    for record, name in ((_FAILED, "cpu.failed.json"), (_BUILT, "cpu.json"), (_FAILED, "cpu.failed.json")):
        write_record(record, output)
        assert [path.name for path in tmp_path.iterdir()] == [name]


def test_that_a_chip_is_too_small_is_a_result(tmp_path: Path) -> None:
    write_record(dataclasses.replace(_FAILED, outcome="does not fit"), tmp_path / "v2.bin")
    assert (tmp_path / "v2.json").is_file()


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    path = tmp_path / "net" / "cpu.json"
    for text in ("", "[]", "{}", '{"agreement": null, "colour": "red"}'):
        path.write_text(text)
        with pytest.raises(ArtifactError, match="not a record") as error:
            read_records(tmp_path)
        assert error.value.where == str(path)


def test_a_folder_without_records(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no records"):
        write_report(tmp_path)


def test_the_report_has_a_row_for_what_was_built_and_a_reason_for_the_rest(tmp_path: Path) -> None:
    for record in (_BUILT, _FAILED):
        (tmp_path / record.model).mkdir()
        write_record(record, tmp_path / record.model / f"{record.target}.bin")
    assert write_report(tmp_path) == [_FAILED, _BUILT]
    lines = (tmp_path / "REPORT.md").read_text().splitlines()
    assert (
        "| net | v5e | 8 | 3.5 s | 2.0 KiB | 128 B | 1.0 KiB | 0 B | 256 B | 50.0% | 1,500 | 0.001 ms | not run |"
        in lines
    )
    place = lines.index("- **bad for cpu**: failed")
    assert lines[place + 2 : place + 4] == ["      forward failed", "        at bad.py:7"]
    assert [each["model"] for each in json.loads((tmp_path / "REPORT.json").read_text())] == ["bad", "net"]


def test_the_report_command_fails_if_a_model_did(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    write_record(_BUILT, tmp_path / "net" / "v5e.bin")
    good = _run("report", str(tmp_path))
    assert (good.returncode, good.stdout) == (0, f"1 of 1 as they should be: {tmp_path / 'REPORT.md'}\n")
    write_record(_FAILED, tmp_path / "net" / "cpu.bin")
    bad = _run("report", str(tmp_path))
    assert bad.returncode == 1
    assert "failed: bad for cpu" in bad.stderr


def test_a_build_that_is_killed_has_failed(tmp_path: Path) -> None:
    model = tmp_path / "net.py"
    model.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    finished = _run("build", str(model), "--target", "cpu", "--output", str(tmp_path / "zoo" / "net" / "cpu.bin"))
    assert finished.returncode == 1
    assert "SIGKILL during load" in finished.stderr
    (record,) = read_records(tmp_path / "zoo")
    assert record.outcome == "failed"
    assert "did not finish" in record.reason


def test_make_builds_what_it_can_and_no_more_than_it_must(tmp_path: Path) -> None:
    # The project's makefile on other models; nothing is installed, and what it compiles with does not change.
    (tmp_path / "Makefile").symlink_to(_ROOT / "Makefile")
    models = tmp_path / "models"
    models.mkdir()
    (models / "good.py").write_text(textwrap.dedent(_MODEL))
    (models / "bad.py").write_text("raise ValueError('no weights here')\n")
    for name in ("pyproject.toml", "constraints.txt", ".installed"):
        (tmp_path / name).touch()

    first = _make(tmp_path, "zoo")
    assert first.returncode != 0
    assert "good for cpu: built" in first.stdout
    report = (tmp_path / "build" / "zoo" / "REPORT.md").read_text()
    assert "| good | cpu | 8 |" in report
    assert "ValueError: no weights here" in report

    second = _make(tmp_path, "zoo")
    assert second.returncode != 0
    assert "build models/good.py" not in second.stdout
    assert "build models/bad.py" in second.stdout

    (models / "bad.py").unlink()
    (tmp_path / "build" / "zoo" / "bad" / "cpu.failed.json").unlink()
    os.utime(models / "good.py")
    third = _make(tmp_path, "zoo/good")
    assert third.returncode == 0, third.stderr
    assert "good for cpu: built" in third.stdout


def _make(folder: Path, target: str) -> subprocess.CompletedProcess[str]:
    variables = (f"BIN={Path(sys.executable).parent}", "STAMP=.installed", "TARGETS=cpu", "ZOO_SOURCES=constraints.txt")
    # These tests may themselves be run by make.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--jobs=2", target, *variables]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
