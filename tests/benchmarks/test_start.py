"""Comparing how processes start."""

import sys

from benchmarks.common import run_quietly
from benchmarks.start import compare, imports


def test_times_are_held_against_the_last_command() -> None:
    sleep = "import time; time.sleep({})"
    rows = compare({name: [sys.executable, "-c", sleep.format(name)] for name in ("0", "1")}, rounds=1)
    assert [row["what"] for row in rows] == ["0", "1"]
    assert rows[0]["ratio"] == rows[0]["seconds"] / rows[1]["seconds"] < 1
    assert rows[1]["ratio"] == 1


def test_the_commands_that_import_work() -> None:
    for command in imports().values():
        run_quietly(command)
