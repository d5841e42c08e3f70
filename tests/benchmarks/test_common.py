"""What the benchmarks share: tables, limits, and running commands in turn."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.common import (
    Column,
    Limit,
    Result,
    alternate,
    count_text,
    publish,
    ratio_text,
    run_quietly,
    seconds_text,
)

_RESULT = Result(
    title="Two ways",
    columns=(Column(key="way", title="how"), Column(key="cycles", title="cycles", text=count_text)),
    rows=({"way": "ours", "cycles": 1234}, {"way": "theirs"}),
    limits=(Limit(what="ours", value=1234, limit=1500, unit="cycles"),),
)


def test_a_result_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert publish("two", _RESULT, tmp_path / "bench") == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line.split() for line in lines] == [
        ["Two", "ways"],
        ["how", "cycles"],
        ["ours", "1,234"],
        ["theirs", "-"],
        ["kept:", "ours:", "1,234", "of", "at", "most", "1,500", "cycles"],
    ]
    written = json.loads((tmp_path / "bench" / "two.json").read_text())
    assert written["rows"] == [{"way": "ours", "cycles": 1234}, {"way": "theirs"}]
    assert written["limits"] == [{"what": "ours", "value": 1234, "limit": 1500, "unit": "cycles"}]


def test_a_limit_that_is_not_kept_is_said_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limit = Limit(what="import", value=0.25, limit=0.2)
    result = Result(title="t", columns=_RESULT.columns, rows=_RESULT.rows, limits=[*_RESULT.limits, limit])
    assert publish("two", result, tmp_path) == 1
    assert "NOT KEPT: import: 0.25 of at most 0.2\n" in capsys.readouterr().out


def test_figures_as_text() -> None:
    assert [seconds_text(each) for each in (12.34, 1.234, 0.1234)] == ["12.3 s", "1.23 s", "123 ms"]
    assert ratio_text(1 / 3) == "0.33x"
    assert count_text(638162) == "638,162"


def test_commands_run_in_turn(tmp_path: Path) -> None:
    log = tmp_path / "log"
    commands = {
        name: [sys.executable, "-c", f"open({str(log)!r}, 'a').write({name!r}); import time; time.sleep({seconds})"]
        for name, seconds in (("a", 0.0), ("b", 0.5))
    }
    seconds = alternate(commands, 3)
    assert log.read_text() == "ababab"
    assert list(seconds) == ["a", "b"]
    assert seconds["b"] > 0.5
    assert seconds["a"] > 0


def test_a_command_that_fails_is_heard(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_quietly([sys.executable, "-c", "print('out')"]) == "out\n"
    with pytest.raises(subprocess.CalledProcessError):
        run_quietly([sys.executable, "-c", "raise SystemExit('no such model')"])
    assert capsys.readouterr().err == "no such model\n"
