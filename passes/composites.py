"""Building and reading composites, which `tpuc.lowerings.composites` gives their meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.lowerings.composites import Attribute, lower_composite
from tpuc.passes.base import PassContext
from tpuc.passes.fold_constants import FoldConstants
from tpuc.passes.main import Function
from tpuc.passes.rewrite import Tensor, defining_op, op_name
from tpuc.passes.simplify_arithmetic import SimplifyArithmetic
from tpuc.passes.simplify_shape import SimplifyShape
from tpuc.passes.tensors import shape_struct
from tpuc.targets import CPU

#: What brings functions that JAX lowers to the form that the program has when composites are built.
_SIMPLIFYING = (FoldConstants(), SimplifyArithmetic(), SimplifyShape())


class Composites:
    """Builds composites; those of one kind share the function that says what they stand for."""

    def __init__(self, module: ir.Module) -> None:
        """Begins with a module, whose functions keep their names."""
        self._module = module
        self._taken = set(mlir.functions(module))
        self._functions: dict[tuple[object, ...], ir.OpView] = {}

    def build(self, name: str, operands: Sequence[Tensor], **attributes: Attribute) -> Tensor:
        """Builds a composite of one result at the current insertion point and location.

        Args:
            name: Which; one of `tpuc.lowerings.composites.COMPOSITES`.
            operands: What it takes, of bf16, f32 or bool.
            attributes: How it computes.
        """
        function = self._function(name, operands, attributes)
        composite = ir.Operation.create(
            "stablehlo.composite",
            results=Function(function).result_types,
            operands=list(operands),
            attributes={
                "name": ir.StringAttr.get(name),
                "composite_attributes": ir.DictAttr.get({key: _encode(value) for key, value in attributes.items()}),
                "decomposition": ir.FlatSymbolRefAttr.get(ir.StringAttr(function.attributes["sym_name"]).value),
                "version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1),
            },
        )
        return cast(Tensor, composite.results[0])

    def _function(self, name: str, operands: Sequence[Tensor], attributes: dict[str, Attribute]) -> ir.OpView:
        """The function that a composite names, at the end of the module."""
        kind = (name, *(str(operand.type) for operand in operands), str(attributes))
        if kind not in self._functions:
            source = lower_composite(name, *map(shape_struct, operands), **attributes)
            parsed = mlir.parse(source, self._module.context)  # An operation does not keep its module alive.
            for each in _SIMPLIFYING:
                each.run(parsed, PassContext(target=CPU))
            with ir.InsertionPoint(self._module.body):
                function = mlir.functions(parsed)["main"].operation.clone().opview
            numbered = (f"{name}.{number}" for number in range(len(self._taken) + 1))
            symbol = next(each for each in numbered if each not in self._taken)
            self._taken.add(symbol)
            function.attributes["sym_name"] = ir.StringAttr.get(symbol)
            function.attributes["sym_visibility"] = ir.StringAttr.get("private")
            self._functions[kind] = function
        return self._functions[kind]


def _encode(value: Attribute) -> ir.Attribute:
    match value:
        case bool():
            return ir.BoolAttr.get(value)
        case float():
            return ir.FloatAttr.get(ir.F64Type.get(), value)
        case str():
            return ir.StringAttr.get(value)
        case _:
            integer = ir.IntegerType.get_signless(64)
            return ir.ArrayAttr.get([ir.IntegerAttr.get(integer, each) for each in value])


def is_composite(op: ir.OpView | ir.Operation, name: str) -> bool:
    """Says whether an operation is a composite of this name."""
    return op_name(op) == "stablehlo.composite" and ir.StringAttr(op.attributes["name"]).value == name


def made_by(value: ir.Value[Any], name: str) -> ir.OpView | None:
    """Returns the composite that made a value if it has this name, else None."""
    op = defining_op(value)
    return op if op is not None and is_composite(op, name) else None


def composite_attributes(composite: ir.OpView | ir.Operation) -> ir.DictAttr:
    """Returns the attributes that a composite computes by."""
    return ir.DictAttr(composite.attributes["composite_attributes"])


def dimensions_of(composite: ir.OpView | ir.Operation) -> list[int]:
    """Returns the dimensions that a norm or a softmax reduces."""
    return [ir.IntegerAttr(each).value for each in ir.ArrayAttr(composite_attributes(composite)["dimensions"])]
