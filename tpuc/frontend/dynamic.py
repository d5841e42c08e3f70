"""Exports a module with named sizes, and lowers it to a program that knows how it depends on them.

export with symbols --specialize--> a few static programs --lower--> StableHLO --generalize--> one dynamic program
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from jaxlib.mlir import ir
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from tpuc import mlir
from tpuc.errors import ExportError, InputError, RequestError
from tpuc.frontend import stablehlo
from tpuc.frontend.bodies import capture_for
from tpuc.frontend.capture import Capture, export, input_names
from tpuc.frontend.generalize import DynamicProgram, Inference, MisalignedError, generalize
from tpuc.frontend.locations import location_of
from tpuc.frontend.size_decisions import Decision, check_decisions, recorded_decisions, squeezed_sizes
from tpuc.frontend.specialize import specialize, symbol_values
from tpuc.lowerings.any_size import any_size
from tpuc.lowerings.platforms import Platform
from tpuc.lowerings.subgraphs import graphs_in
from tpuc.passes import run_passes
from tpuc.passes.convert_arith import ConvertArith
from tpuc.runtime.sizes import SizeExpr, SizeRange
from tpuc.runtime.spec import TensorSpec
from tpuc.targets import CPU
from tpuc.worker import Worker

#: Sizes that few tensors of a model have: what equals a size by chance would be taken for it.
_UNUSUAL = (11, 14, 17, 19, 22, 23, 26, 29, 31, 34, 37, 38, 41, 43, 46, 47, 53, 58, 59, 61, 62, 67)
#: Samples beyond one for each size: what is found from the first must hold at these too.
_SPARE_SAMPLES = 5
#: How many sizes of a range are considered as samples.
_TRIED = 128
#: How many sizes at each end of a range are tried.
_NEAR = 4
_SUGGESTION = re.compile(
    r"^\s*(?P<name>\w+) = (?:Dim\('\w+'(?:, min=(?P<min>\d+))?(?:, max=(?P<max>\d+))?\)|(?P<fixed>\d+)|(?P<other>.+))$",
    re.MULTILINE,
)
_DIVISIBLE = re.compile(r"inconsistencies were found:\s+Eq\(Mod\((?P<dimension>.+?), (?P<divisor>\d+)\), 0\)")
_ASSERTION = "aten._assert_scalar.default"
_PLACE = re.compile(r'"([^"]+)":(\d+):\d+')


@dataclass(frozen=True, kw_only=True)
class DynamicModel:
    """A module that was exported with named sizes.

    Attributes:
        program: The exported program, with symbols.
        dims: The dimensions of each input tensor, by its name.
        ranges: What the sizes may be.
        notes: What a user should know.
    """

    program: ExportedProgram
    dims: Mapping[str, tuple[SizeExpr, ...]]
    ranges: tuple[SizeRange, ...]
    notes: tuple[str, ...] = ()

    def shapes(self, sizes: Mapping[str, int]) -> list[tuple[int, ...] | None]:
        """Returns the shape of each input at some sizes; None for those that have no dimensions named."""
        return [
            tuple(dim.evaluate(sizes) for dim in self.dims[name]) if name in self.dims else None
            for name in input_names(self.program)
        ]

    def at(self, sizes: Mapping[str, int]) -> ExportedProgram:
        """Returns the program at some sizes."""
        return specialize(self.program, self.shapes(sizes))


@dataclass(frozen=True, kw_only=True)
class DynamicLowered:
    """A program of any size, before the passes.

    Attributes:
        programs: The program for each platform; where it is portable, for one that stands for all.
        is_portable: Whether all platforms share one program.
        captured: The module at one of the sizes.
        dims: The dimensions of inputs and outputs that vary, by `input:x` and `output:y`.
    """

    programs: Mapping[Platform, DynamicProgram]
    is_portable: bool
    captured: Capture
    dims: Mapping[str, tuple[SizeExpr, ...]]

    def module(self, platform: Platform, context: ir.Context, ranges: Sequence[SizeRange]) -> ir.Module:
        """Returns the program at the upper bound of ranges, annotated for `pad-dynamic`."""
        program = next(iter(self.programs.values())) if self.is_portable else self.programs[platform]
        return mlir.parse(mlir.to_bytecode(program.at(ranges)), context)


def export_dynamic(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    specs: Sequence[TensorSpec],
    ranges: Sequence[SizeRange],
) -> DynamicModel:
    """Exports a module with named sizes.

    Args:
        module: The module.
        args: Example positional inputs, whose shapes are those of the specs at some sizes.
        kwargs: Example keyword inputs, likewise.
        specs: The inputs that have named dimensions; one without a name is forward's first.
        ranges: What the sizes may be.

    Raises:
        RequestError: The module cannot take all of these sizes; the message says which it can.
        ExportError: The module cannot be exported at all.
    """
    parameters = list(inspect.signature(module.forward).parameters)
    named = {spec.name or parameters[0]: spec for spec in specs}
    symbols = {each.name: Dim(each.name, min=each.minimum, max=each.maximum) for each in ranges}
    dims = {name: tuple(map(SizeExpr.of, spec.dims)) for name, spec in named.items()}
    given = [*parameters[: len(args)], *kwargs]
    shapes = {name: _dynamic_shape(dims[name], symbols) if name in dims else None for name in given}
    try:
        with recorded_decisions() as decisions:
            program = export(module, args, kwargs, dynamic_shapes=shapes)
    except ExportError as error:
        raise _explained(error, ranges) from error
    model = DynamicModel(program=program, dims=dims, ranges=tuple(ranges))
    _check_assertions(model)
    decisions += squeezed_sizes(program)
    return replace(model, notes=tuple(_check_at_one(model, decisions, module, (args, kwargs))))


def _check_at_one(
    model: DynamicModel,
    decisions: Sequence[Decision],
    module: torch.nn.Module,
    inputs: tuple[tuple[Any, ...], Mapping[str, Any]],
) -> Iterator[str]:
    """Checks what forward decides by sizes of one, at an example's sizes with one of them, or all, made one.

    Yields:
        What a user should know.

    Raises:
        RequestError: Forward gives other results than the exported program.
    """
    args, kwargs = inputs
    positional = list(inspect.signature(module.forward).parameters)[: len(args)]
    given = {**dict(zip(positional, args, strict=True)), **kwargs}
    example: dict[str, int] = {}
    for name, dims in model.dims.items():
        for dim, number in zip(dims, given[name].shape, strict=True):
            size = dim.solve(number) if dim.linear is not None else None
            if dim.linear is not None and size is not None:
                example[dim.linear[0]] = size
    ones = [each.name for each in model.ranges if each.minimum == 1]
    for changed in (*([name] for name in ones), *([ones] if len(ones) > 1 else [])):
        sizes = example | dict.fromkeys(changed, 1)
        cut = {name: _cut(value, model.dims.get(name), sizes) for name, value in given.items()}
        smaller = tuple(cut[name] for name in positional), {name: cut[name] for name in kwargs}
        note = check_decisions(
            decisions, model.program, module, smaller, symbol_values(model.program, model.shapes(sizes))
        )
        if note is not None:
            yield note
            return


def _cut(value: Any, dims: Sequence[SizeExpr] | None, sizes: Mapping[str, int]) -> Any:
    """Cuts an input of an example to other sizes, none of which is larger."""
    return value if dims is None else value[tuple(slice(dim.evaluate(sizes)) for dim in dims)]


def lower_dynamic(model: DynamicModel, worker: Worker, platforms: Collection[Platform]) -> DynamicLowered:
    """Lowers a module at a few sizes, and finds out how the program depends on them.

    Args:
        model: The module, exported with named sizes.
        worker: A running `stablehlo.WORKER`.
        platforms: The platforms to lower for.

    Raises:
        ExportError: The program is another at other sizes; the user's line is named.
        UnsupportedOpError: Operators that cannot be lowered.
    """
    failure: MisalignedError | RuntimeError | None = None
    for samples in sample_sizes(model):
        try:
            return _lower_samples(model, samples, worker, platforms)
        except (MisalignedError, RuntimeError) as error:
            # A size may equal another number of the model by chance, or be too large for a table of it.
            failure = error
    assert failure is not None
    place = _PLACE.search(failure.where) if isinstance(failure, MisalignedError) else None
    raise ExportError(
        f"the program cannot be brought to one form for all sizes: {failure}",
        where=f"{place[1]}:{place[2]}" if place else None,
        hint="Give that dimension as a number.",
    ) from failure


def sample_sizes(model: DynamicModel) -> Iterator[list[dict[str, int]]]:
    """Yields choices of the sizes to lower at, the best first.

    Best are sizes unlike any other number, even out of the range. A model with a table for each of its places needs
    sizes in the range.
    """
    static = _static_sizes(model)
    count = len(model.ranges) + _SPARE_SAMPLES
    names = [each.name for each in model.ranges]
    for candidates in (_unusual, _inside_first, _inside_only):
        chosen: list[list[int]] = []
        taken = set(static)
        for each in model.ranges:
            order = list(dict.fromkeys(candidates(each)))
            fresh = [number for number in order if number not in taken]
            own = list(itertools.islice(itertools.cycle(dict.fromkeys([*fresh, *order])), count))
            chosen.append(own)
            taken.update(own)
        yield [dict(zip(names, numbers, strict=True)) for numbers in zip(*_shuffled(chosen), strict=True)]


def _unusual(allowed: SizeRange) -> list[int]:
    """Returns numbers that few tensors have as a dimension, those in the range first."""
    inside = [number for number in _UNUSUAL if allowed.minimum <= number <= allowed.maximum]
    return [*inside, *(number for number in _UNUSUAL if number > allowed.maximum), *_above(allowed.minimum)]


def _inside_first(allowed: SizeRange) -> list[int]:
    """Returns numbers in the range, unusual ones first, and then others."""
    return [*_inside_only(allowed), *_unusual(allowed)]


def _inside_only(allowed: SizeRange) -> list[int]:
    """Returns numbers in the range, unusual ones first; not one, at which programs take other forms."""
    inside = range(max(allowed.minimum, 2), allowed.maximum + 1)
    others = reversed(inside[:_TRIED])
    return [*(number for number in _UNUSUAL if number in inside), *others]


def _above(minimum: int) -> list[int]:
    return [minimum + number for number in _UNUSUAL]


def _shuffled(chosen: list[list[int]]) -> Iterator[list[int]]:
    """Turns each list by another amount, so that no two sizes grow together."""
    for turn, numbers in enumerate(chosen):
        yield numbers if turn % 2 == 0 else numbers[1::2] + numbers[::2]


def _static_sizes(model: DynamicModel) -> set[int]:
    """The dimensions that are numbers, of the model's weights and inputs."""
    sizes = {size for tensor in model.program.state_dict.values() for size in tensor.shape}
    return sizes | {dim.constant for dims in model.dims.values() for dim in dims if dim.constant is not None}


def _lower_samples(
    model: DynamicModel, samples: Sequence[Mapping[str, int]], worker: Worker, platforms: Collection[Platform]
) -> DynamicLowered:
    captures = [capture_for(model.at(sizes), platforms) for sizes in samples]
    captures = [replace(each, notes=(*model.notes, *each.notes)) for each in captures]
    with any_size():
        lowered = [stablehlo.lower(each, worker, platforms) for each in captures]
    is_portable = all(each.is_portable for each in lowered)
    inference = Inference(samples, _known_sizes(model))
    _check_numbers(model, samples, inference)
    programs: dict[Platform, DynamicProgram] = {}
    for platform in sorted(platforms)[: 1 if is_portable else None]:
        context = mlir.make_context()
        modules = [each.module(platform, context) for each in lowered]
        for module in modules:
            mlir.inline_composites(module)
            run_passes(module, (ConvertArith(),), CPU)
        programs[platform] = generalize(modules, inference)
    results = zip(captures[0].results, next(iter(programs.values())).result_dims, strict=True)
    dims = {f"input:{name}": found for name, found in model.dims.items()}
    dims |= {f"{result.kind}:{result.name}": found for result, found in results}
    captured = replace(captures[0], notes=(*model.notes, *captures[0].notes))
    return DynamicLowered(programs=programs, is_portable=is_portable, captured=captured, dims=dims)


def _known_sizes(model: DynamicModel) -> Iterator[SizeExpr]:
    """Yields the sizes that occur in the exported program, as far as they have a form that tpuc knows."""
    symbols = _symbols(model)
    for expression in dict.fromkeys(expression for _, expression in _numbers(model.program)):
        parsed = _parsed(expression)
        if parsed is not None and parsed.names <= symbols.keys():
            yield parsed.substitute(symbols)


def _parsed(expression: sympy.Basic) -> SizeExpr | None:
    """Returns an expression in tpuc's form, with torch.export's symbols; None if it has none, such as a maximum."""
    try:
        return SizeExpr.of(str(expression))
    except InputError:
        return None


def _numbers(program: ExportedProgram) -> Iterator[tuple[torch.fx.Node, sympy.Basic]]:
    """Yields the numbers that an exported program computes from sizes, with their nodes."""
    for graph in graphs_in(program.graph):
        for node in filter(_is_read, graph.nodes):
            for leaf in pytree.tree_leaves(node.meta.get("val")):
                for size in leaf.shape if isinstance(leaf, torch.Tensor) else [leaf]:
                    if isinstance(size, torch.SymInt | torch.SymBool):
                        yield node, size.node.expr


def _is_read(node: torch.fx.Node) -> bool:
    """Says whether more than assertions depends on a node that is a condition."""
    if not isinstance(node.meta.get("val"), torch.SymBool):
        return True
    return any(str(user.target) != _ASSERTION and _is_read(user) for user in node.users)


def _check_numbers(model: DynamicModel, samples: Sequence[Mapping[str, int]], inference: Inference) -> None:
    """Checks that what numbers of no form that tpuc knows are at the samples holds over the whole range.

    A maximum of two sizes is one of them at all samples, and may be the other at a size that is allowed.

    Raises:
        MisalignedError: It does not.
    """
    at_samples = [symbol_values(model.program, model.shapes(sizes)) for sizes in samples]
    ends = _near_ends(model.ranges)
    at_ends = [symbol_values(model.program, model.shapes(sizes)) for sizes in ends]
    for node, expression in {expression: (node, expression) for node, expression in _numbers(model.program)}.values():
        if _parsed(expression) is not None or not expression.free_symbols <= at_samples[0].keys():
            continue
        found = inference.expression(int(expression.subs(values)) for values in at_samples)
        if found is None:
            continue  # Where it is needed, it is missed.
        for sizes, values in zip(ends, at_ends, strict=True):
            if found.evaluate(sizes) != int(expression.subs(values)):
                place = location_of(node)
                shown = ", ".join(f"{name}={size}" for name, size in sizes.items())
                what = f"{expression} is {found} at the sizes tried, and not at {shown}"
                raise MisalignedError(what, f'"{place.file}":{place.line}:0')


def _near_ends(ranges: Sequence[SizeRange]) -> list[dict[str, int]]:
    """Returns the combinations of sizes at the ends of their ranges, and near them."""
    names = [each.name for each in ranges]
    return [dict(zip(names, sizes, strict=True)) for sizes in itertools.product(*map(_ends, ranges))]


def _symbols(model: DynamicModel) -> dict[str, SizeExpr]:
    """The name of each of torch.export's symbols, as far as an input has it for a dimension."""
    names = input_names(model.program)
    inputs = {node.name: node for node in model.program.graph.nodes if node.op == "placeholder"}
    found = {}
    for name, node_name in zip(names, model.program.graph_signature.user_inputs, strict=True):
        node = inputs.get(str(node_name))
        if node is None or name not in model.dims:
            continue
        for dim, size in zip(model.dims[name], node.meta["val"].shape, strict=True):
            if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                found[str(size.node.expr)] = dim
    return found


def _dynamic_shape(dims: Sequence[SizeExpr], symbols: Mapping[str, Any]) -> dict[int, Any]:
    shape = {}
    for at, dim in enumerate(dims):
        if dim.constant is not None:
            continue
        (name,) = dim.names
        offset = dim.evaluate({name: 0})
        factor = dim.evaluate({name: 1}) - offset
        shape[at] = symbols[name] if factor == 1 else factor * symbols[name]
        if offset:
            shape[at] = shape[at] + offset
    return shape


def _check_assertions(model: DynamicModel) -> None:
    """Checks what torch.export found that sizes must fulfil, at the ends of the ranges and near them.

    Raises:
        RequestError: It does not hold at a size that is allowed.
    """
    symbols = _symbols(model)
    combinations = _near_ends(model.ranges)
    for condition in _conditions(model.program.graph):
        if not {str(symbol) for symbol in condition.free_symbols} <= symbols.keys():
            continue
        for sizes in combinations:
            values = {symbol: symbols[str(symbol)].evaluate(sizes) for symbol in condition.free_symbols}
            if condition.subs(values) == sympy.false:
                shown = ", ".join(f"{name}={size}" for name, size in sizes.items())
                raise RequestError(f"forward cannot take {shown}: {condition} does not hold", hint="Give other --dims.")


def _conditions(graph: torch.fx.Graph) -> Iterator[Any]:
    """Yields the conditions on sizes that a graph asserts.

    That a size is not one is none: it means that nothing was broadcast along it, and nothing is.
    """
    for node in graph.nodes:
        if str(node.target) == _ASSERTION and isinstance(node.args[0], torch.fx.Node):
            condition = node.args[0].meta["val"]
            if isinstance(condition, torch.SymBool) and not isinstance(condition.node.expr, sympy.Ne):
                yield condition.node.expr


def _ends(allowed: SizeRange) -> list[int]:
    sizes = range(allowed.minimum, allowed.maximum + 1)
    return sorted({*sizes[:_NEAR], *sizes[-_NEAR:]})


def _explained(error: ExportError, ranges: Sequence[SizeRange]) -> ExportError | RequestError:
    """Turns torch.export's suggestions for the sizes into ours."""
    text = str(error.__cause__)
    given = " ".join(map(str, ranges))
    if divisible := _DIVISIBLE.search(text):
        # torch.export's symbols have names of its own; of several sizes it is not said which is meant.
        dimension = re.sub(r"\bs\d+\b", ranges[0].name, divisible["dimension"]) if len(ranges) == 1 else "a dimension"
        return RequestError(
            f"forward cannot take all of {given}: {dimension} must be a multiple of {divisible['divisor']}",
            hint="Let --dims say so: seq=8*k k=1..64",
        )
    if "Suggested fixes:" not in text and "Constraints violated" not in text:
        return error
    known = {each.name: each for each in ranges}
    fixes = []
    for match in _SUGGESTION.finditer(text.partition("Suggested fixes:")[2]):
        old = known.get(match["name"])
        if match["fixed"]:
            fixes.append(f"{match['name']} can only be {match['fixed']}")
        elif match["other"]:
            fixes.append(f"{match['name']}={match['other'].replace(' ', '')}")
        elif old is not None:
            allowed = replace(old, minimum=int(match["min"] or old.minimum), maximum=int(match["max"] or old.maximum))
            fixes.append(str(allowed))
    what = "; ".join(fixes) or " ".join(text.split())[:200]
    return RequestError(f"forward cannot take all of {given}: {what}", hint="Give such --dims.")
