"""Imports an exported graph into MLIR's torch dialect, with a call in place of each operator that is ours.

An operator that torch-mlir converts stays an operation of the torch dialect. Any other becomes

    %0 = torch_c.to_builtin_tensor %x : !torch.vtensor<[2,8],f32> -> tensor<2x8xf32>
    %1 = func.call @body.3(%0) : (tensor<2x8xf32>) -> tensor<2x8xf32>
    %2 = torch_c.from_builtin_tensor %1 : tensor<2x8xf32> -> !torch.vtensor<[2,8],f32>

which torch-mlir's pipelines carry through untouched, and whose body is linked afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch_mlir import ir
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras.fx_importer import ContextCache, FxImporter, GraphNodeImporter
from torch_mlir.passmanager import PassManager

from tpuc.frontend.locations import location_of
from tpuc.lowerings.call import OpCall, TensorMeta
from tpuc.lowerings.evaluate import call_of

#: A module that imports nothing, for the pass below.
_EMPTY = "module {}"


@dataclass(kw_only=True)
class Imported:
    """A graph in the torch dialect.

    Attributes:
        text: The module, with locations.
        bodies: For each function that is called and not defined, the call that it is the body of.
    """

    text: str
    bodies: dict[str, OpCall] = field(default_factory=dict)


def import_graph(graph: torch.fx.Graph, is_native: Callable[[OpCall], bool]) -> Imported:
    """Imports a functional graph whose weights are placeholders.

    Args:
        graph: The graph; its nodes have fake tensors of static shape as `meta["val"]`.
        is_native: Whether torch-mlir converts a call itself.
    """
    context = _make_context()
    importer = _Importer(context, is_native)
    importer.import_stateless_graph(graph)
    _declare(importer)
    text = importer.module.operation.get_asm(enable_debug_info=True, binary=False)
    return Imported(text=text, bodies=importer.bodies)


def _make_context() -> ir.Context:
    context = ir.Context()
    torch_dialect.register_dialect(context)
    with context:
        # The torch_c dialect exists only once a pass that needs it has run.
        pipeline = PassManager.parse("builtin.module(torch-func-backend-type-conversion-for-stablehlo)")
        pipeline.run(ir.Module.parse(_EMPTY).operation)
    return context


#: Unsigned integers that torch-mlir's own table lacks, by their width.
_UNSIGNED = {torch.uint16: 16, torch.uint64: 64}


class _Cache(ContextCache):
    """Gives each node the user's frame under the module's name, in place of the whole stack; knows all dtypes."""

    def dtype_to_type(self, dtype: torch.dtype) -> ir.Type:
        if dtype not in _UNSIGNED:
            return super().dtype_to_type(dtype)
        with self._c:
            return ir.IntegerType.get_unsigned(_UNSIGNED[dtype])

    def get_node_location(self, node: torch.fx.Node) -> ir.Location:
        location = location_of(node)
        with self._c:
            if not location.file:
                return ir.Location.name(location.name)
            return ir.Location.name(location.name, ir.Location.file(location.file, location.line, 0))


class _NodeImporter(GraphNodeImporter):
    """Imports one graph; a node that torch-mlir does not convert becomes a call."""

    def _import_torch_op_overload(self, loc: ir.Location, node: torch.fx.Node, concrete_target: Any = None) -> None:
        if concrete_target is not None or self.fx_importer.is_native(call_of(node)):
            super()._import_torch_op_overload(loc, node, concrete_target)
        else:
            self._import_call(loc, node)

    def _import_hop(self, loc: ir.Location, node: torch.fx.Node, hop: Any) -> None:
        self._import_call(loc, node)

    def _import_call(self, loc: ir.Location, node: torch.fx.Node) -> None:
        call = call_of(node)
        name = self.fx_importer.body_name(call)
        operands = [arg for arg in pytree.tree_leaves((node.args, node.kwargs)) if _is_tensor(arg)]
        with loc, ir.InsertionPoint(self._b):
            values = [
                _create(
                    "torch_c.to_builtin_tensor", [self.fx_importer.builtin_type(meta)], [self.resolve_node_value(arg)]
                )
                for arg, meta in zip(operands, call.tensors, strict=True)
            ]
            results = ir.Operation.create(
                "func.call",
                results=[self.fx_importer.builtin_type(meta) for meta in call.outputs],
                operands=[value.result for value in values],
                attributes={"callee": ir.FlatSymbolRefAttr.get(name)},
            ).results
            vtensors = [
                _create(
                    "torch_c.from_builtin_tensor", [self._cc.get_vtensor_type(meta.shape, meta.dtype)], [result]
                ).result
                for result, meta in zip(results, call.outputs, strict=True)
            ]
        if isinstance(call.results, TensorMeta):
            self.bind_node_value(node, vtensors[0])
            return
        self._multi_result_nodes.add(node)
        rest = iter(vtensors)
        for index, result in enumerate(call.results):
            if isinstance(result, TensorMeta):
                self.bind_node_value(node, next(rest), index)


class _Importer(FxImporter):
    """An importer that knows which calls are torch-mlir's, and collects the bodies of the others."""

    def __init__(self, context: ir.Context, is_native: Callable[[OpCall], bool]) -> None:
        super().__init__(context=context, graph_node_importer_cls=_NodeImporter)
        self._cc = _Cache(context, py_attr_tracker=self._py_attr_tracker)
        self.is_native = is_native
        self.bodies: dict[str, OpCall] = {}
        self._names: dict[str, str] = {}

    def body_name(self, call: OpCall) -> str:
        """Returns the function that is the body of a call; equal calls share one."""
        signature = call.signature()
        name = self._names.get(signature)
        if name is None:
            name = f"{call.operator}.{len(self.bodies)}"
            self._names[signature] = name
            self.bodies[name] = call
        return name

    def builtin_type(self, meta: TensorMeta) -> ir.Type:
        """Returns the builtin tensor type of a tensor: `tensor<2x8xf32>`."""
        element = _signless(self._cc.dtype_to_type(meta.dtype))
        return ir.RankedTensorType.get(meta.shape, element, loc=ir.Location.unknown(self._c))


def _signless(element: ir.Type) -> ir.Type:
    # The torch dialect's si64 is the builtin i64; unsigned types keep their sign.
    if isinstance(element, ir.IntegerType) and element.is_signed:
        return ir.IntegerType.get_signless(element.width)
    return element


def _create(name: str, results: list[ir.Type], operands: list[ir.Value]) -> ir.Operation:
    return ir.Operation.create(name, results=results, operands=operands)


def _is_tensor(arg: Any) -> bool:
    return isinstance(arg, torch.fx.Node) and isinstance(arg.meta.get("val"), torch.Tensor)


def _declare(importer: _Importer) -> None:
    with importer.module.context, ir.Location.unknown(), ir.InsertionPoint.at_block_begin(importer.module.body):
        for name, call in importer.bodies.items():
            inputs = [importer.builtin_type(meta) for meta in call.tensors]
            outputs = [importer.builtin_type(meta) for meta in call.outputs]
            ir.Operation.create(
                "func.func",
                regions=1,
                attributes={
                    "sym_name": ir.StringAttr.get(name),
                    "sym_visibility": ir.StringAttr.get("private"),
                    "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, outputs)),
                },
            )
