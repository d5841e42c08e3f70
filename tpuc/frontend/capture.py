"""Captures a PyTorch module with torch.export, as a functional graph and a signature.

Weights and state become leading arguments, in the graph's own order: `(weights and state..., inputs...) ->
(state..., outputs...)`.
"""

from __future__ import annotations

import inspect
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.fx.experimental._config
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from tpuc.dtypes import DTYPE_NAMES
from tpuc.errors import ExportError
from tpuc.frontend.data_dependence import numbers_to_tensors, refuse_dynamic_sizes
from tpuc.frontend.locations import user_frame
from tpuc.frontend.randomness import add_seed
from tpuc.frontend.size_forms import SizeForms
from tpuc.frontend.structure import Node, constant, describe, key_name, leaf_paths, path_text
from tpuc.lowerings.call import TensorMeta, operator_name
from tpuc.lowerings.registry import REGISTRY
from tpuc.lowerings.strided import rewrite_as_strided
from tpuc.lowerings.subgraphs import graphs_in

Origin = Literal["parameter", "buffer", "constant", ""]

_ORIGINS: dict[InputKind, Origin] = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}
#: Operators that check and compute nothing; export has already checked what they say at these shapes.
ASSERTIONS = frozenset(
    {
        "aten._assert_async.msg",
        "aten._assert_scalar.default",
        "aten._assert_tensor_metadata.default",
        "aten._linalg_check_errors.default",
        "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
    }
)
_DATA_DEPENDENT = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
)
#: Operators that write to an argument although their schema does not say so.
_UNDECLARED_WRITES = frozenset({"aten.batch_norm.default", "aten.instance_norm.default"})
#: Operators that give a tensor another size.
_RESIZES = frozenset({"aten.resize_.default", "aten.resize_as_.default"})
#: An operator whose schema says that it writes, and which only drops the gradient.
_HARMLESS = frozenset({"aten.detach_.default"})


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of the captured graph.

    Attributes:
        kind: `weight`, `state` (a buffer that forward writes to), `input`, or `seed` (that of all random numbers).
        name: The weight's or buffer's name in the module, or the input's.
        meta: Shape and dtype.
        origin: What a weight is in the module; "" for inputs.
        persistent: Whether the module's state_dict has it.
        tensor: The value of a weight or the initial value of state, possibly fake; None for inputs.
        aliases: Other names of the same tensor in the state_dict (tied weights).
    """

    kind: Literal["weight", "state", "input", "seed"]
    name: str
    meta: TensorMeta
    origin: Origin = ""
    persistent: bool = True
    tensor: torch.Tensor | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Result:
    """One result of the captured graph: the new value of `state`, or an `output`."""

    kind: Literal["state", "output"]
    name: str
    meta: TensorMeta


@dataclass(frozen=True, kw_only=True)
class Capture:
    """A module as a functional graph.

    Attributes:
        graph: The graph: a placeholder for each argument, and a tuple of the results.
        arguments: What each placeholder is.
        results: What each result is.
        input_structure: {"args": ..., "kwargs": ...}, as `tpuc.runtime.structure` describes them.
        output_structure: The outputs' structure, likewise.
        positional_names: Forward's names of the positional inputs.
        parameters: Elements of all parameters.
        notes: What a user should know, such as an input that forward writes to.
    """

    graph: torch.fx.Graph
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    input_structure: Node
    output_structure: Node
    positional_names: tuple[str, ...]
    parameters: int
    notes: tuple[str, ...]


def export(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    dynamic_shapes: Mapping[str, Any] | None = None,
) -> ExportedProgram:
    """Runs torch.export on a module.

    Args:
        module: The module.
        args: Example positional inputs.
        kwargs: Example keyword inputs.
        dynamic_shapes: For each input the dimensions that are symbols, as torch.export takes them.

    Raises:
        ExportError: The inputs do not fit forward's signature, forward fails on them, or it depends on data in a way
            that a static program cannot.
    """
    _check_binding(module, args, kwargs)
    args, kwargs = _separate(args, dict(kwargs))
    try:
        with torch.no_grad(), nullcontext() if dynamic_shapes is None else _symbolic():
            return torch.export.export(
                module,
                args,
                kwargs,
                dynamic_shapes=None if dynamic_shapes is None else dict(dynamic_shapes),
                strict=False,
                # What a size must fulfil stays in the graph, and is checked over the whole range.
                prefer_deferred_runtime_asserts_over_guards=dynamic_shapes is not None,
            )
    except Exception as error:  # Whatever the user's forward raises.
        raise _export_error(error, f"Given: {_given(module, args, kwargs)}") from error


@contextmanager
def _symbolic() -> Iterator[None]:
    """Keeps sizes symbols where torch.export would ask for their numbers."""
    # Where torch asks only to take a short cut for a size of one, the general way is as good.
    settings: Any = torch.fx.experimental._config  # It gets its methods when it is imported.
    with settings.patch(backed_size_oblivious=True), SizeForms():
        yield


def _separate(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Gives tensors that share memory a copy each: torch.export takes the sizes of one that others view as unknown."""
    tensors = pytree.tree_leaves((args, kwargs))
    readers = Counter(_memory(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor))
    separate: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map_only(
        torch.Tensor, lambda tensor: tensor.clone() if readers[_memory(tensor)] > 1 else tensor, (args, kwargs)
    )
    return separate


def _memory(tensor: torch.Tensor) -> int:
    # A sparse tensor has no storage of its own.
    return int(tensor.untyped_storage()._cdata) if tensor.layout == torch.strided else id(tensor)


def capture(program: ExportedProgram) -> Capture:
    """Makes an exported program functional, and describes its arguments and results.

    Raises:
        ExportError: The program holds what an artifact cannot, such as a custom object.
        UnsupportedOpError: Operators whose results have sizes that depend on the data.
    """
    refuse_dynamic_sizes(program.graph)
    for each in graphs_in(program.graph):
        _size_at_once(each)
    # Decomposing traces the whole program again, and so makes it functional; most programs can do without.
    if any(map(_must_be_traced_again, graphs_in(program.graph))):
        program = program.run_decompositions({})
    graph = program.graph
    for each in graphs_in(graph):
        _erase_assertions(each)
    numbers_to_tensors(graph)
    _flatten_results(graph)
    for each in graphs_in(graph):
        rewrite_as_strided(each)
    names = input_names(program)
    written = {
        spec.target
        for spec in program.graph_signature.output_specs
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)
    }
    arguments, leaves = _arguments(program, names, written)
    results, output_leaves, notes = _results(program)
    if add_seed(graph):
        arguments.append(Argument(kind="seed", name="seed", meta=TensorMeta(shape=(), dtype=torch.int64)))
    assert program.call_spec.in_spec is not None
    assert program.call_spec.out_spec is not None
    inputs = describe(program.call_spec.in_spec, leaves, "the inputs")
    return Capture(
        graph=graph,
        arguments=tuple(arguments),
        results=tuple(results),
        input_structure={"args": inputs["tuple"][0], "kwargs": inputs["tuple"][1]},
        output_structure=describe(program.call_spec.out_spec, output_leaves, "the outputs"),
        positional_names=tuple(_forward_names(program)[: len(inputs["tuple"][0]["tuple"])]),
        parameters=sum(
            argument.tensor.numel()
            for argument in arguments
            if argument.origin == "parameter" and argument.tensor is not None
        ),
        notes=tuple(notes),
    )


def _must_be_traced_again(graph: torch.fx.Graph) -> bool:
    """Whether a graph holds what may write to its arguments, or what is gone once it is traced: vmap and autocast."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        name = operator_name(node.target)
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            if REGISTRY.get(name) is None:
                return True
        elif getattr(node.target, "__module__", "").startswith("torch._functorch."):
            return True
        schema = getattr(node.target, "_schema", None)
        if name in _UNDECLARED_WRITES or (schema is not None and schema.is_mutable and name not in _HARMLESS):
            return True
    return False


def _size_at_once(graph: torch.fx.Graph) -> None:
    """Makes a tensor that is empty, and then resized, of its size at first: functionalization cannot resize."""
    for node in list(graph.nodes):
        if node.op != "call_function" or operator_name(node.target) not in _RESIZES:
            continue
        made = node.args[0]
        if operator_name(made.target) != "aten.empty.memory_format" or len(made.users) > 1 or made.meta["val"].numel():
            continue
        made.args = (list(node.meta["val"].shape),)
        made.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(made)
        graph.erase_node(node)


def _erase_assertions(graph: torch.fx.Graph) -> None:
    for node in list(graph.nodes):
        if node.op == "call_function" and str(node.target) in ASSERTIONS:
            graph.erase_node(node)
    graph.eliminate_dead_code()


def _flatten_results(graph: torch.fx.Graph) -> None:
    """Gives an operator with a list among its results (`histogramdd`) flat ones: torch-mlir knows one level."""
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, tuple | list):
            continue
        if any(isinstance(result, tuple | list) for result in value):
            leaves, spec = pytree.tree_flatten(value)
            node.meta["val"] = tuple(leaves)
            _take_from(node, node, pytree.tree_unflatten(range(len(leaves)), spec))


def _take_from(root: torch.fx.Node, node: torch.fx.Node, numbers: Any) -> None:
    """Lets every tensor that is taken from a nested result be taken from the flat one."""
    for user in list(node.users):
        number = numbers[user.args[1]]
        if isinstance(number, int):
            user.args = (root, number)
        else:
            _take_from(root, user, number)
            root.graph.erase_node(user)


def _arguments(
    program: ExportedProgram, names: list[str], written: set[str | None]
) -> tuple[list[Argument], list[Node]]:
    """Describes the placeholders, erases those that carry nothing, and gives each leaf of the inputs its node."""
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    aliases = _aliases(program)
    arguments: list[Argument] = []
    leaves: list[Node] = []
    count = 0
    for spec in program.graph_signature.input_specs:
        node = placeholders[spec.arg.name]
        if spec.kind is InputKind.USER_INPUT:
            name = names[len(leaves)]
            if isinstance(spec.arg, ConstantArgument):
                leaves.append(constant(spec.arg.value, f"the input {name}"))
                program.graph.erase_node(node)
                continue
            arguments.append(Argument(kind="input", name=name, meta=TensorMeta.of(node.meta["val"])))
            leaves.append(count)
            count += 1
            continue
        if spec.kind not in _ORIGINS or not isinstance(spec.arg, TensorArgument) or spec.target is None:
            raise ExportError(
                f"the program takes {spec.arg.name}, a {spec.kind.name.lower()}",
                hint="Only tensors, numbers, bools, texts and None can be arguments of a compiled program.",
            )
        if not node.users and spec.target not in written:
            program.graph.erase_node(node)
            continue
        arguments.append(
            Argument(
                kind="state" if spec.target in written else "weight",
                name=spec.target,
                meta=TensorMeta.of(node.meta["val"]),
                origin=_ORIGINS[spec.kind],
                persistent=spec.target in program.state_dict,
                tensor=_value(program, spec.target),
                aliases=aliases.get(spec.target, ()),
            )
        )
    return arguments, leaves


def _results(program: ExportedProgram) -> tuple[list[Result], list[Node], list[str]]:
    """Describes the results, drops those that are no tensors, and gives each leaf of the outputs its node."""
    output = next(node for node in reversed(program.graph.nodes) if node.op == "output")
    specs = program.graph_signature.output_specs
    assert program.call_spec.out_spec is not None
    names = iter(_output_names(program.call_spec.out_spec))
    results: list[Result] = []
    kept: list[torch.fx.Node] = []
    leaves: list[Node] = []
    notes: list[str] = []
    count = 0
    for spec, value in zip(specs, output.args[0], strict=True):
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            notes.append(f"forward writes to its input {spec.target!r}; a compiled program leaves its inputs alone")
            continue
        name = next(names) if spec.kind is OutputKind.USER_OUTPUT else str(spec.target)
        if isinstance(spec.arg, ConstantArgument):
            leaves.append(constant(spec.arg.value, f"the output {name}"))
            continue
        meta = TensorMeta.of(value.meta["val"])
        if spec.kind is OutputKind.USER_OUTPUT:
            results.append(Result(kind="output", name=name, meta=meta))
            leaves.append(count)
            count += 1
        elif spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
            results.append(Result(kind="state", name=name, meta=meta))
        else:
            raise ExportError(f"the program returns {name}, a {spec.kind.name.lower()}, which is no tensor")
        kept.append(value)
    output.args = (tuple(kept),)
    program.graph.eliminate_dead_code()
    return results, leaves, notes


def _value(program: ExportedProgram, name: str) -> torch.Tensor:
    value = program.state_dict.get(name)
    if value is None:
        value = program.constants[name]
    if not isinstance(value, torch.Tensor):
        raise ExportError(f"the module's {name} is a {type(value).__name__}, not a tensor")
    return value


def _aliases(program: ExportedProgram) -> dict[str, tuple[str, ...]]:
    """For each name in the state_dict, the other names of the same tensor (tied weights)."""
    groups: dict[int, list[str]] = {}
    for name, tensor in program.state_dict.items():
        groups.setdefault(id(tensor), []).append(name)
    return {
        name: tuple(other for other in names if other != name)
        for names in groups.values()
        if len(names) > 1
        for name in names
    }


def input_names(program: ExportedProgram) -> list[str]:
    """Returns the names of the inputs' leaves: forward's parameter, then the path below it: `batch.mask[0]`."""
    spec = program.call_spec.in_spec
    assert spec is not None
    positional = _forward_names(program)
    names = []
    for group, first, *rest in leaf_paths(spec):
        name = positional[first.idx] if group.idx == 0 else key_name(first)
        names.append(name + path_text(rest))
    return names


def _forward_names(program: ExportedProgram) -> list[str]:
    """Forward's parameter names, in the order of the inputs; a program saved without them has its own."""
    signature = program.module_call_graph[0].signature
    return list((signature.forward_arg_names if signature else None) or map(str, program.graph_signature.user_inputs))


def _output_names(spec: pytree.TreeSpec) -> list[str]:
    """Names the leaves of the outputs by the path to them: `logits`, `output[0]`; a single tensor is `output`."""
    names = []
    for path in leaf_paths(spec):
        text = path_text(path)
        names.append(text[1:] if text.startswith(".") else f"output{text}")
    return names


def _check_binding(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Compares the inputs given with the parameters of forward, by name."""
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ExportError(
            f"the inputs do not fit forward{signature}: {error}",
            hint=f"Given: {len(args)} positional" + (f", and {', '.join(kwargs)} by name." if kwargs else "."),
        ) from error


def _given(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The inputs by name, with dtypes and shapes: `x=f32[4,9], flag=True`."""
    inputs = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    return ", ".join(f"{name}={_shown(value)}" for name, value in inputs.items())


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{DTYPE_NAMES[value.dtype]}[{','.join(map(str, value.shape))}]"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_shown(item)}' for key, item in value.items())}}}"
    return repr(value)


def _export_error(error: Exception, hint: str) -> ExportError:
    """Says in short why torch.export failed, and at which of the user's lines."""
    frames = traceback.extract_tb(error.__traceback__)
    trace = "".join(f'File "{frame.filename}", line {frame.lineno}' + "\n" for frame in frames)
    file, line = user_frame(trace)
    data_dependent = isinstance(error, _DATA_DEPENDENT)
    reason = _first_lines(str(error)) or type(error).__name__
    if data_dependent:
        return ExportError(
            f"forward depends on the values of its tensors, which a compiled program cannot: {reason}",
            where=f"{file}:{line}" if file else None,
            hint="Write the choice with torch.where or torch.cond, or compute the size from shapes.",
        )
    return ExportError(
        f"forward failed on the example inputs: {type(error).__name__}: {reason}",
        where=f"{file}:{line}" if file else None,
        hint=hint,
    )


def _first_lines(text: str) -> str:
    """The first sentence of torch.export's long explanations."""
    paragraph = text.strip().split("\n\n")[0]
    return " ".join(line.strip() for line in paragraph.splitlines())[:300]
