"""Every operator that PyTorch tags as core has a way to StableHLO."""

import torch

import tpuc.lowerings  # noqa: F401  Registers every lowering.
from tpuc.lowerings.evaluate import decomposition_of
from tpuc.lowerings.registry import REGISTRY

#: Rewritten before a graph is lowered: by `tpuc.lowerings.strided` and `tpuc.frontend.data_dependence`.
_REWRITTEN = {"aten.as_strided.default", "aten._local_scalar_dense.default"}


def _core() -> list[torch._ops.OpOverload]:
    """The operators tagged as core, but for those that write to an argument: functionalization replaces them."""
    names = [name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    parts = [name.partition(".") for name in names]
    overloads = [getattr(getattr(torch.ops.aten, name), overload or "default") for name, _, overload in parts]
    return [each for each in overloads if torch.Tag.core in each.tags and not each._schema.is_mutable]


def test_core_operators() -> None:
    core = _core()
    assert len(core) > 180
    missing = [
        str(operator)
        for operator in core
        if REGISTRY.get(str(operator)) is None
        and decomposition_of(operator) is None
        and str(operator) not in _REWRITTEN
    ]
    assert missing == []
