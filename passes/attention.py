"""Building composites of attention, which `tpuc.lowerings.attention` gives their meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.lowerings.attention import ATTENTION, lower_attention
from tpuc.passes.rewrite import Tensor
from tpuc.passes.tensors import shape_struct, tensor_type


class AttentionComposites:
    """Builds composites; those of one kind share the function that says what they stand for."""

    def __init__(self, module: ir.Module) -> None:
        """Begins with a module, whose functions keep their names."""
        self._module = module
        self._taken = set(mlir.functions(module))
        self._sources: dict[tuple[object, ...], tuple[str, bytes]] = {}

    def build(self, operands: Sequence[Tensor], *, is_causal: bool, scale: float) -> Tensor:
        """Builds a composite at the current insertion point and location.

        Args:
            operands: Queries, keys and values of one dtype, f32 or bf16, and a mask or none; see `attention`.
            is_causal: Whether position i sees positions up to i only.
            scale: What the scores are multiplied with.

        Returns:
            [batch, heads, L, Ev], of the dtype of the queries.
        """
        query, _, value = operands[:3]
        composite = ir.Operation.create(
            "stablehlo.composite",
            results=[tensor_type([*query.type.shape[:-1], value.type.shape[-1]], query.type.element_type)],
            operands=list(operands),
            attributes={
                "name": ir.StringAttr.get(ATTENTION),
                "composite_attributes": ir.DictAttr.get(
                    {
                        "is_causal": ir.BoolAttr.get(is_causal),
                        "scale": ir.FloatAttr.get(ir.F64Type.get(), scale),
                    }
                ),
                "decomposition": ir.FlatSymbolRefAttr.get(self._name(operands, is_causal, scale)),
                "version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1),
            },
        )
        return cast(Tensor, composite.results[0])

    def add_functions(self) -> None:
        """Adds the functions that the composites built so far name to the module."""
        with self._module.context, ir.InsertionPoint(self._module.body):
            for name, source in self._sources.values():
                parsed = mlir.parse(source, self._module.context)  # An operation does not keep its module alive.
                function = mlir.functions(parsed)["main"].operation.clone()
                function.attributes["sym_name"] = ir.StringAttr.get(name)
                function.attributes["sym_visibility"] = ir.StringAttr.get("private")

    def _name(self, operands: Sequence[Tensor], is_causal: bool, scale: float) -> str:
        kind = (*(str(operand.type) for operand in operands), is_causal, scale)
        if kind not in self._sources:
            name = next(
                name for number in range(len(self._taken) + 1) if (name := _numbered(number)) not in self._taken
            )
            self._taken.add(name)
            shapes = [shape_struct(operand) for operand in operands]
            self._sources[kind] = (name, lower_attention(*shapes, is_causal=is_causal, scale=scale))
        return self._sources[kind][0]


def _numbered(number: int) -> str:
    return f"{ATTENTION}.{number}"
