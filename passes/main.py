"""The frame of a program: what each argument of `@main` is, and the functions that prepare some of them.

Every argument of `@main` carries `tpuc.argument = "<kind>:<name>"`. A tensor that is computed from weights alone has a
private function of its own, whose arguments are those weights; `@main` takes what it returns as `prepared:<name>`,
where `<name>` is the function's:

    func.func public @main(%x: tensor<8xf32> {tpuc.argument = "input:x"},
                           %s: tensor<8xf32> {tpuc.argument = "prepared:prepare.0"}) -> tensor<8xf32> { ... }
    func.func private @prepare.0(%w: tensor<8xf32> {tpuc.argument = "weight:w"}) -> tensor<8xf32> { ... }
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from tpuc.passes.rewrite import Tensor, op_name

#: The attribute of an argument that says what it is.
ARGUMENT = "tpuc.argument"
_PREPARE = "prepare."


def name_of(function: ir.OpView | ir.Operation) -> str:
    """Returns a function's name."""
    return ir.StringAttr(function.attributes["sym_name"]).value


class Function:
    """A function, with its arguments and what is said of them.

    Attributes:
        op: The function.
        block: Its only block.
    """

    def __init__(self, op: ir.OpView) -> None:
        self.op = op
        self.block = op.regions[0].blocks[0]

    @property
    def attributes(self) -> list[dict[str, ir.Attribute]]:
        """What each argument carries."""
        if "arg_attrs" not in self.op.attributes:
            return [{} for _ in self.block.arguments]
        found = ir.ArrayAttr(self.op.attributes["arg_attrs"])
        return [_as_dict(ir.DictAttr(attributes)) for attributes in found]

    @property
    def argument_names(self) -> list[str]:
        """What each argument is, `<kind>:<name>`; "" where nothing is said."""
        return [ir.StringAttr(each[ARGUMENT]).value if ARGUMENT in each else "" for each in self.attributes]

    @property
    def result_types(self) -> list[ir.Type]:
        """The types of what it returns."""
        return list(ir.FunctionType(ir.TypeAttr(self.op.attributes["function_type"]).value).results)

    def arguments_of(self, *kinds: str) -> list[Tensor]:
        """Returns the arguments of these kinds."""
        names = self.argument_names
        return [
            argument
            for argument, name in zip(self.block.arguments, names, strict=True)
            if name.partition(":")[0] in kinds
        ]

    def add_arguments(self, types: Sequence[ir.Type], names: Sequence[str]) -> list[Tensor]:
        """Adds arguments after the others.

        Args:
            types: The type of each.
            names: What each is, `<kind>:<name>`.
        """
        attributes = self.attributes
        added = [self.block.add_argument(type_, self.op.location) for type_ in types]
        attributes += [{ARGUMENT: ir.StringAttr.get(name, self.op.context)} for name in names]
        self._update(attributes)
        return cast("list[Tensor]", added)

    def erase_arguments(self, is_erased: Callable[[Tensor, str], bool]) -> None:
        """Erases arguments that nobody reads.

        Args:
            is_erased: Whether an argument, of which it is told what it is, goes.
        """
        attributes, names = self.attributes, self.argument_names
        for number in reversed(range(len(names))):
            if is_erased(self.block.arguments[number], names[number]):
                self.block.erase_argument(number)
                del attributes[number]
        self._update(attributes)

    def remove_attribute(self, name: str) -> None:
        """Removes an attribute from all arguments."""
        self._update([{key: value for key, value in each.items() if key != name} for each in self.attributes])

    def set_result_attribute(self, number: int, name: str, value: ir.Attribute) -> None:
        """Sets an attribute of one result."""
        attributes: list[dict[str, ir.Attribute]] = [{} for _ in self.result_types]
        if "res_attrs" in self.op.attributes:
            attributes = [_as_dict(ir.DictAttr(each)) for each in ir.ArrayAttr(self.op.attributes["res_attrs"])]
        attributes[number][name] = value
        with self.op.context:
            self.op.attributes["res_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(each) for each in attributes])

    def _update(self, attributes: Sequence[dict[str, ir.Attribute]]) -> None:
        with self.op.context:
            inputs = [argument.type for argument in self.block.arguments]
            self.op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, self.result_types))
            self.op.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(each) for each in attributes])


def _as_dict(attributes: ir.DictAttr) -> dict[str, ir.Attribute]:
    return {each.name: each.attr for each in map(attributes.__getitem__, range(len(attributes)))}


class Main(Function):
    """The function `@main` of a module.

    Attributes:
        module: The module.
    """

    def __init__(self, module: ir.Module) -> None:
        super().__init__(next(op for op in module.body.operations if name_of(op) == "main"))
        self.module = module

    def preparations(self) -> list[Function]:
        """Returns the functions that prepare tensors, by their order in the module."""
        return [Function(op) for op in self.module.body.operations if name_of(op).startswith(_PREPARE)]

    def erase_unused_weights(self) -> None:
        """Erases the weights and the prepared tensors that nobody reads."""

        def is_unused(argument: Tensor, name: str) -> bool:
            return name.startswith(("weight:", "prepared:")) and not any(True for _ in argument.uses)

        self.erase_arguments(is_unused)


def is_in_main(op: ir.OpView) -> bool:
    """Says whether an operation is of the program itself, and not of what a composite or a preparation stands for."""
    parent = op.operation.parent
    while parent is not None and op_name(parent) != "func.func":
        parent = parent.operation.parent
    return parent is not None and name_of(parent) == "main"


def new_preparation(main: Main, types: Sequence[ir.Type], names: Sequence[str], result: ir.Type) -> Function:
    """Adds a function that prepares a tensor, with no operations yet.

    Args:
        main: `@main` of the module.
        types: The types of its sources.
        names: What each source is, `<kind>:<name>`.
        result: The type of the tensor.
    """
    taken = {name_of(op) for op in main.module.body.operations}
    name = next(name for number in range(len(taken) + 1) if (name := f"{_PREPARE}{number}") not in taken)
    with main.op.location:
        return new_function(main.module, name, types, names, [result], visibility="private")


def new_function(
    module: ir.Module,
    name: str,
    types: Sequence[ir.Type],
    names: Sequence[str],
    results: Sequence[ir.Type],
    *,
    visibility: str = "public",
) -> Function:
    """Adds a function with no operations yet, at the current location.

    Args:
        module: The module.
        name: The function's name.
        types: The types of its arguments.
        names: What each argument is, `<kind>:<name>`.
        results: The types of its results.
        visibility: `public` or `private`.
    """
    with ir.InsertionPoint(module.body):
        # jaxlib's types do not tell of the constructor that its dialects have.
        op: Any = cast(Any, func.FuncOp)(name, (list(types), list(results)), visibility=visibility)
        op.add_entry_block()
        op.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [ir.DictAttr.get({ARGUMENT: ir.StringAttr.get(name)}) for name in names]
        )
    return Function(op)
