"""How fast a program starts: importing the runtime, and a whole run of MiniLM, against PyTorch.

    python -m benchmarks.start

Every time is that of a new process, from its start to its end, on files that are in the operating system's cache.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import numpy as np

import tpuc
from benchmarks.common import BENCH, ROOT, Column, Limit, Result, Row, alternate, publish, ratio_text, seconds_text
from tpuc.loader import load_model
from tpuc.packaging import to_numpy

ROUNDS = 9
#: What importing the runtime may cost of what importing PyTorch costs; and a run, of one in eager PyTorch.
IMPORT_LIMIT = 1 / 5
RUN_LIMIT = 1 / 3

#: The runtime imports its parts when they are used. This uses all that it exports, and the device that runs programs.
_EVERYTHING = "import tpuc.runtime as r; [getattr(r, name) for name in r.__all__]; r.open_device('cpu')"

_COLUMNS = (
    Column(key="what", title="process"),
    Column(key="seconds", title="median", text=seconds_text),
    Column(key="ratio", title="to PyTorch", text=ratio_text),
)


def compare(commands: Mapping[str, Sequence[str]], rounds: int) -> list[Row]:
    """Runs commands in turn; gives one row for each, with its time as a part of the last one's."""
    seconds = alternate(commands, rounds)
    reference = list(seconds.values())[-1]
    return [{"what": what, "seconds": each, "ratio": each / reference} for what, each in seconds.items()]


def imports() -> dict[str, list[str]]:
    """The commands that import."""
    python = sys.executable
    return {
        "python: nothing": [python, "-c", "pass"],
        "python: import tpuc.runtime": [python, "-c", "import tpuc.runtime"],
        "python: all of tpuc.runtime, its cpu device opened": [python, "-c", _EVERYTHING],
        "python: import torch": [python, "-c", "import torch"],
    }


def runs() -> dict[str, list[str]]:
    """The commands that run MiniLM on two sentences, once the artifact is compiled and the sentences are tokens."""
    model = ROOT / "models" / "minilm.py"
    artifact, tokens = BENCH / "minilm.bin", BENCH / "minilm.tokens.npz"
    BENCH.mkdir(parents=True, exist_ok=True)
    tpuc.compile(model, targets=["cpu"], output=artifact)
    np.savez(
        tokens, allow_pickle=False, **{name: to_numpy(tensor) for name, tensor in load_model(str(model)).kwargs.items()}
    )
    command = [sys.executable, "-m", "tpuc.cli", "run", str(artifact), "--input", str(tokens)]
    return {
        "tpuc run minilm.bin": command,
        "eager PyTorch, the same": [sys.executable, str(ROOT / "benchmarks" / "eager_minilm.py"), str(tokens)],
    }


def main() -> int:
    """Measures both."""
    imported = compare(imports(), ROUNDS)
    ran = compare(runs(), ROUNDS)
    limits = (
        Limit(what="import tpuc.runtime, of import torch", value=imported[1]["ratio"], limit=IMPORT_LIMIT),
        Limit(what="all of tpuc.runtime, of import torch", value=imported[2]["ratio"], limit=IMPORT_LIMIT),
        Limit(what="tpuc run of MiniLM, of eager PyTorch", value=ran[0]["ratio"], limit=RUN_LIMIT),
    )
    title = f"From the start of a process to its end; medians of {ROUNDS} runs in turn"
    return publish("start", Result(title=title, columns=_COLUMNS, rows=[*imported, *ran], limits=limits))


if __name__ == "__main__":
    sys.exit(main())
