"""The skeleton of a lowering that is missing, for the user to fill in."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from tpuc.dtypes import DTYPE_NAMES
from tpuc.lowerings.call import OpCall, TensorMeta


def skeleton_of(call: OpCall) -> str:
    """Writes the lowering of a call's operator without its body.

    Returns:
        Python source, such as

            @tpuc.lowering("mylib::scale")
            def scale(x, factors, *, offset=0.0):
                # x=f32[2,3] factors=f32[2]
                return ...  # f32[2,3]

        or "" for what is no operator with a schema.
    """
    target = call.target
    if not isinstance(target, torch._ops.OpOverload):
        return ""
    schema = target._schema
    overload = f".{schema.overload_name}" if schema.overload_name else ""
    name = schema.name.partition("::")[2]
    given = dict(zip((argument.name for argument in schema.arguments), call.args, strict=False)) | call.kwargs
    tensors = " ".join(f"{name}={_shown(value)}" for name, value in given.items() if _holds_tensor(value))
    return "\n".join(
        [
            f'@tpuc.lowering("{schema.name}{overload}")',
            f"def {name.lstrip('_')}({_parameters(schema)}):",
            *([f"    # {tensors}"] if tensors else []),
            f"    return ...  # {_shown(call.results)}",
        ]
    )


def _parameters(schema: Any) -> str:
    parts = []
    after_star = False
    for argument in schema.arguments:
        if argument.kwarg_only and not after_star:
            parts.append("*")
            after_star = True
        parts.append(f"{argument.name}={argument.default_value!r}" if argument.has_default_value() else argument.name)
    return ", ".join(parts)


def _holds_tensor(value: Any) -> bool:
    return any(isinstance(leaf, TensorMeta) for leaf in pytree.tree_leaves(value))


def _shown(value: Any) -> str:
    if isinstance(value, TensorMeta):
        return f"{DTYPE_NAMES[value.dtype]}[{','.join(map(str, value.shape))}]"
    if isinstance(value, list | tuple):
        parts = ", ".join(map(_shown, value))
        return f"[{parts}]" if isinstance(value, list) else f"({parts})"
    return repr(value)
