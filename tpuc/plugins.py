"""Lowerings of a user's own: `@tpuc.lowering` over a JAX function, in the model's file or in a plugin.

    @tpuc.lowering("mylib::scale_rows")
    def scale_rows(x, scales):  # The operator's own signature, with JAX arrays for tensors.
        return x * scales[:, None]

A plugin is a module, or a file, that registers lowerings as it is imported. Those named by `--plugin` are imported, and
so are all that installed packages declare as entry points of the group `tpuc.lowerings`:

    [project.entry-points."tpuc.lowerings"]
    mylib = "mylib.tpu"
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from tpuc.errors import LoadError, RequestError
from tpuc.lowerings.platforms import PLATFORMS, Platform
from tpuc.lowerings.random import always
from tpuc.lowerings.registry import REGISTRY, Function, Lowering
from tpuc.user_code import run_file, user_code

#: The group of entry points whose modules are imported by themselves.
ENTRY_POINTS = "tpuc.lowerings"

_OPERATOR = re.compile(r"(\w+)::(\w+)(?:\.(\w+))?")


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A plugin that was imported.

    Attributes:
        name: What was asked for: a module's name or a file's path.
        sha256: Of the module's file; "" where it has none.
    """

    name: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name}@{self.sha256}"


def lowering(
    operator: str, *, platform: Platform | None = None, random: bool = False
) -> Callable[[Function], Function]:
    """Registers a JAX function as the lowering of an operator.

    The function has the operator's signature, with JAX arrays for tensors, and returns what the operator returns; the
    results are cast to the dtypes that PyTorch gives. It is traced at the shapes and dtypes of each call. Where the
    operator writes to arguments, their new values follow its results, in the order of the signature.

    Args:
        operator: The operator's name in PyTorch: `mylib::op`, or `mylib::op.overload`.
        platform: `tpu` or `cpu` for a function that serves just this one, such as a Pallas kernel; the operator's other
            lowering, or else its decomposition, serves the others. It sees no 64-bit types.
        random: Whether the operator draws random numbers; the function then takes JAX's random key first.

    Raises:
        RequestError: The name or the platform makes no sense, or the operator has a lowering already.
    """
    match = _OPERATOR.fullmatch(operator)
    if match is None:
        raise RequestError(f"{operator!r} names no operator", hint="Write 'mylib::op', as torch.library does.")
    if platform not in (None, *PLATFORMS):
        raise RequestError(f"unknown platform {platform!r}", hint=f"Known: {', '.join(PLATFORMS)}.")
    if random and platform:
        raise RequestError(f"{operator}: a lowering that draws random numbers is for all platforms")
    namespace, name, overload = match.groups(default="default")

    def register(function: Function) -> Function:
        REGISTRY.register(
            Lowering(
                operator=f"{namespace}.{name}.{overload}",
                function=function,
                why="a user's own",
                since="",
                platform=platform,
                random=always if random else None,
            )
        )
        return function

    return register


def load_plugins(names: Sequence[str] = ()) -> tuple[Plugin, ...]:
    """Imports the plugins that are named, and all that installed packages declare.

    Args:
        names: Modules that Python can import, or paths of .py files.

    Raises:
        LoadError: There is no such module or file, or it fails.
        RequestError: It registers a lowering that there is already.
    """
    declared = [entry.value for entry in entry_points(group=ENTRY_POINTS)]
    return tuple(map(_load, dict.fromkeys([*declared, *names])))


def _load(name: str) -> Plugin:
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise LoadError(f"there is no plugin {name}")
        module = run_file(Path(name), "plugin")
    else:
        with user_code(f"the plugin {name}"):
            module = importlib.import_module(name)
    path = Path(module.__file__ or "")
    return Plugin(name=name, sha256=hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
