"""Runs Python files of the user's: models and plugins. Whatever they raise becomes a `LoadError` at their line."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from tpuc.errors import LoadError, TpucError
from tpuc.frontend.locations import user_frame


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Turns whatever the user's code raises into a `LoadError`, and leaves tpuc's own errors alone.

    Args:
        what: What the code is, as an error would put it: `running model.py`.
    """
    try:
        yield
    except TpucError:
        raise
    except (Exception, SystemExit) as error:  # Anything at all may come out of a user's file.
        frames = traceback.extract_tb(error.__traceback__)
        trace = "\n".join(f'File "{frame.filename}", line {frame.lineno}' for frame in frames)
        file, line = user_frame(trace)
        if isinstance(error, SyntaxError) and error.filename:
            file, line = error.filename, error.lineno or 0
        raise LoadError(f"{what} failed: {type(error).__name__}: {error}", where=f"{file}:{line}") from error


def run_file(path: Path, kind: str) -> ModuleType:
    """Runs a Python file as a module under a name of its own; its folder leads `sys.path` from now on.

    Args:
        path: The file.
        kind: What it is, for its name: `model`.

    Raises:
        LoadError: The file fails.
    """
    path = path.resolve()
    name = f"tpuc_{kind}_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and torch.export look a class's module up by name.
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    with user_code(f"running {path.name}"):
        spec.loader.exec_module(module)
    return module
