"""Every operator that PyTorch tags as core has a way to StableHLO."""

import torch

import tpuc.lowerings  # noqa: F401  Registers every lowering.
from tpuc.lowerings.evaluate import decomposition_of
from tpuc.lowerings.registry import REGISTRY

#: Rewritten before a graph is lowered: by `tpuc.lowerings.strided` and `tpuc.frontend.data_dependence`.
_REWRITTEN = {"aten.as_strided.default", "aten._local_scalar_dense.default"}


def _core() -> list[torch._ops.OpOverload]:
    packets = [getattr(torch.ops.aten, name) for name in dir(torch.ops.aten)]
    overloads = [
        getattr(packet, name)
        for packet in packets
        if isinstance(packet, torch._ops.OpOverloadPacket)
        for name in packet.overloads()
    ]
    return [overload for overload in overloads if torch.Tag.core in overload.tags]


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
