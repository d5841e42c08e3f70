"""Source locations: for every node of an exported graph, the user's file, line and module path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch

from tpuc.lowerings.call import operator_name

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
#: Frames in these folders are not the user's.
_OURS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))


@dataclass(frozen=True, kw_only=True)
class SourceLocation:
    """Where in the user's code an operation comes from.

    Attributes:
        file: The file of the innermost frame outside PyTorch; "" where PyTorch recorded none.
        line: Its line, from 1; 0 where there is none.
        module: The path of the module whose forward ran: `layers.0.attn.q_proj`; "" for the model itself.
        operator: The operator's short name: `linear`.
    """

    file: str
    line: int
    module: str
    operator: str

    @property
    def name(self) -> str:
        """The name that the compiled program carries: `layers.0.attn.q_proj/linear`."""
        return f"{self.module}/{self.operator}" if self.module else self.operator

    @property
    def place(self) -> str:
        """`file:line`, or "" where there is none."""
        return f"{self.file}:{self.line}" if self.file else ""


def location_of(node: torch.fx.Node) -> SourceLocation:
    """Reads a node's location from what torch.export recorded."""
    file, line = user_frame(node.meta.get("stack_trace") or "")
    operator = operator_name(node.target).split(".")[1:2] if node.op == "call_function" else [node.name]
    return SourceLocation(file=file, line=line, module=module_path(node), operator="".join(operator) or node.name)


def user_frame(stack_trace: str) -> tuple[str, int]:
    """Returns the innermost frame outside PyTorch and tpuc, or the innermost of all, or ("", 0).

    Frames of code that has no file, such as what PyTorch makes of a branch, do not count.
    """
    frames = [(file, int(line)) for file, line in _FRAME.findall(stack_trace) if not file.startswith("<")]
    for file, line in reversed(frames):
        if not file.startswith(_OURS):
            return file, line
    return frames[-1] if frames else ("", 0)


def module_path(node: torch.fx.Node) -> str:
    """Returns the path of the innermost module around a node, or ""."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    # A module called twice is numbered by torch.export: layer@1.
    return re.sub(r"@\d+", "", path)
