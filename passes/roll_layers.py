"""roll-layers: repeated layers become one loop over their stacked weights.

A compiler takes as long for each layer as for the first, and makes code for each. Of a loop it compiles one.

Before:

    %0 = stablehlo.dot_general %x, %w0, contracting_dims = [1] x [0]
           : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
    %1 = stablehlo.tanh %0 : tensor<8x64xf32>
    %2 = stablehlo.dot_general %1, %w1, contracting_dims = [1] x [0]
           : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
    %3 = stablehlo.tanh %2 : tensor<8x64xf32>
    ...

After:

    %0:2 = stablehlo.while(%layer = %zero, %h = %x) : tensor<i32>, tensor<8x64xf32>
      cond {
        %1 = stablehlo.compare LT, %layer, %count : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      } do {
        %1 = stablehlo.dynamic_slice %stack, %layer, %zero, %zero, sizes = [1, 64, 64]
               : (tensor<32x64x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x64x64xf32>
        %2 = stablehlo.reshape %1 : (tensor<1x64x64xf32>) -> tensor<64x64xf32>
        %3 = stablehlo.dot_general %h, %2, contracting_dims = [1] x [0]
               : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
        %4 = stablehlo.tanh %3 : tensor<8x64xf32>
        %5 = stablehlo.add %layer, %one : tensor<i32>
        stablehlo.return %5, %4 : tensor<i32>, tensor<8x64xf32>
      }

where %stack is made of %w0, %w1, ... before the program runs. `tpuc.passes.layers` says what layers are. What else is
read of them, hidden states or keys and values, is collected in the loop, and taken apart after it.

The rule: there are at least eight layers, and with a loop the program costs at most 3% more than with the layers one
by one, as the compiler estimates both. For that it compiles one of the layers, or two where that says too little, and
the program with the loop, which is what the compile needs in the end if the loop stays. Of a program with several loops
it compiles each by itself, equal ones once, and that may cost at most 3% more than its layers; so too of a loop that
stacks what is no weight, or whose turns give more than the last one does: what that moves stands outside of the loop.

Measured on v5p, in estimated cycles: the 32 layers of LLaMA-7B, bf16, 2048 tokens, become one: 131,343,621 become
128,051,308.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar, Literal, cast, get_args

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo

from tpuc import mlir
from tpuc.errors import RequestError
from tpuc.passes.base import LOOP, Estimator, Pass, PassContext
from tpuc.passes.dataflow import is_free
from tpuc.passes.hoist_weights import hoist_weights
from tpuc.passes.kept_apart import find_kept_apart
from tpuc.passes.layers import Layers, Row, find_layers
from tpuc.passes.main import Main, new_function
from tpuc.passes.rewrite import Rules, Tensor, captured_values, copy_with, defining_op
from tpuc.passes.tensors import reshape, splat_constant, tensor_type, zeros
from tpuc.passes.weight_only import Weights

RollMode = Literal["auto", "always", "never"]
#: A loop may cost this part more than the layers one by one.
_MOST_LOSS = 0.03
#: How many layers are compiled one by one for the comparison: one alone would not show what two have in common.
_COMPARED = 2
#: A loop that costs no more than this part of layers priced by one of them alone need not be compared with two, which
#: take twice as long to compile: two have less in common (1.3% of LLaMA-7B's on v5p, whose loop costs 0.936 of them).
_SURE = 0.95


@dataclass(frozen=True, kw_only=True)
class RollLayers(Pass):
    """Turns repeated layers into loops over stacked weights.

    Attributes:
        mode: Whether layers become a loop: `auto` where the compiler says that it costs little, `always` or `never`.
        least: How many layers there must be.
    """

    name: ClassVar[str] = "roll-layers"
    #: What it counts the layers that became loops under.
    LAYERS: ClassVar[str] = "rolled_layers"
    mode: str = "auto"
    least: int = 8

    def __post_init__(self) -> None:
        """Checks the options.

        Raises:
            RequestError: One has a value that it cannot have.
        """
        modes = get_args(RollMode)
        if self.mode not in modes:
            raise RequestError(f"pass {self.name}: mode={self.mode}", hint=f"It is {', '.join(modes)}.")
        if self.least < 2:
            raise RequestError(f"pass {self.name}: least={self.least}", hint="It takes two layers to make a loop.")

    def run(self, module: ir.Module, context: PassContext) -> Mapping[str, int]:
        """Rewrites a module in place."""
        if self.mode == "never" or (self.mode == "auto" and context.estimator is None):
            return {}
        main = Main(module)
        with module.context:
            found = find_layers(main, self.least)
            if not found:
                return {}
            if self.mode == "auto":
                assert context.estimator is not None
                found = _cheap_loops(main, found, self.least, context.estimator)
            _roll_all(main, found)
        return {"loops": len(found), self.LAYERS: sum(layers.count for layers in found)} if found else {}


def with_roll(passes: Sequence[Pass], mode: RollMode) -> tuple[Pass, ...]:
    """Returns passes of which roll-layers has this mode; `always` takes two layers already.

    Raises:
        RequestError: It is none of them.
    """
    if not any(isinstance(each, RollLayers) for each in passes):
        raise RequestError(f"roll {mode} is asked for, and the passes have no {RollLayers.name}")
    chosen = RollLayers(mode=mode, least=2) if mode == "always" else RollLayers(mode=mode)
    return tuple(chosen if isinstance(each, RollLayers) else each for each in passes)


def _cheap_loops(main: Main, found: list[Layers], least: int, estimator: Estimator) -> list[Layers]:
    """Those layers of which a program can have loops that cost little more than the layers one by one.

    Args:
        main: The program.
        found: All its layers.
        least: How many there are at least.
        estimator: Who says what programs cost.
    """
    if len(found) == 1 and not _moves_data(main, found[0]):
        return found if _costs_little_in_program(main, found[0], least, estimator) else []
    # Were one of several refused, all would have to be compiled again; and what a loop moves before it and after it
    # shows beside nothing else.
    kinds = _kinds(main, found)
    ones = [_prepared(_alone(main, kind[0].first(1))) for _, kind in kinds]
    loops = [_prepared(_with_loops(alone, least)) for alone, _ in kinds]
    cycles = estimator.cycles_of([*ones, *loops])
    cheap: list[Layers] = []
    for (_, kind), one, loop in zip(kinds, cycles[: len(ones)], cycles[len(ones) :], strict=True):
        if one is not None and loop is not None and _pays(main, kind[0], one, loop, None, estimator):
            cheap += kind
    return [layers for layers in found if layers in cheap]


def _costs_little_in_program(main: Main, layers: Layers, least: int, estimator: Estimator) -> bool:
    """Whether the program's only layers can be a loop, by what that costs in the program."""
    # With its loop the program is what will be compiled, if the loop stays: it need not be compiled again.
    pending = estimator.loops_of(_with_loops(mlir.copy(main.module), least))
    one = _cycles_alone(main, layers, 1, estimator)
    costs = pending.result()
    loop = None if costs is None else costs.loops.get("0")
    if costs is None or loop is None or one is None:
        return False
    return _pays(main, layers, one, loop, costs.total, estimator)


def _pays(main: Main, layers: Layers, one: int, loop: int, total: int | None, estimator: Estimator) -> bool:
    """Whether a loop costs little more than layers, by what one costs, or two where that says too little.

    Args:
        main: The program.
        layers: The layers.
        one: What the first one costs by itself.
        loop: What the loop costs.
        total: What the program costs that has the loop, if what else is in it counts.
        estimator: Who says what programs cost.
    """
    if loop <= _SURE * layers.count * one:
        return True
    two = _cycles_alone(main, layers, _COMPARED, estimator)
    return two is not None and _costs_little(loop, layers.count * two / _COMPARED, total)


def _moves_data(main: Main, layers: Layers) -> bool:
    """Whether a loop over layers takes what is stacked while the program runs, or gives what must be taken apart."""
    weights = Weights(main)
    last = [layers.count - 1]
    return not all(weights.is_weight_only(value) for row in layers.stacked for value in row) or any(
        numbers != last for _, numbers in _read_outside(main, layers, _replaced_by_loop(main, layers))
    )


def _kinds(main: Main, found: Sequence[Layers]) -> list[tuple[ir.Module, list[Layers]]]:
    """Those layers together that are as many and compute the same, with the program that they are by themselves."""
    kinds: dict[str, tuple[ir.Module, list[Layers]]] = {}
    for layers in found:
        module = _alone(main, layers)
        mlir.run_pipeline(module, "strip-debuginfo")
        kinds.setdefault(mlir.to_text(module), (module, []))[1].append(layers)
    return list(kinds.values())


def _cycles_alone(main: Main, layers: Layers, count: int, estimator: Estimator) -> int | None:
    """What the first ones of layers cost by themselves."""
    return estimator.cycles_of([_prepared(_alone(main, layers.first(count)))])[0]


def _costs_little(loop: float, layers: float, total: float | None = None) -> bool:
    """Whether a loop costs little more than layers one by one, of what they cost, or of the program that has it."""
    loss = loop - layers
    whole = layers if total is None else total - loss
    return loss <= _MOST_LOSS * whole


def _with_loops(module: ir.Module, least: int) -> ir.Module:
    """Makes loops of all layers of a program."""
    main = Main(module)
    _roll_all(main, find_layers(main, least))
    return module


def _prepared(module: ir.Module) -> ir.Module:
    """A program whose weights are prepared before it runs."""
    Rules().apply(module)
    hoist_weights(module)
    return module


def _alone(main: Main, layers: Layers) -> ir.Module:
    """Makes a program of copies of layers, which takes what they read and returns what others read of them."""
    weights = Weights(main)
    leaves = layers.leaves
    names = [f"{'weight' if weights.is_weight_only(leaf) else 'input'}:{number}" for number, leaf in enumerate(leaves)]
    read = _read_outside(main, layers, _replaced_by_loop(main, layers))
    results = list(dict.fromkeys(row[number] for row, numbers in read for number in numbers))
    with ir.Location.unknown():
        module = ir.Module.create()
        types = [leaf.type for leaf in leaves]
        function = new_function(module, "main", types, names, [result.type for result in results])
    copied: dict[Tensor, Tensor] = dict(zip(leaves, function.block.arguments, strict=True))
    done: set[Tensor] = set()  # by the first results of what was copied
    with ir.InsertionPoint(function.block):
        for number in range(layers.count):
            for op in layers.ops:
                original = op.ops[number]
                if original.results[0] in done:
                    continue  # It belongs to another layer, or to none.
                copy = copy_with(original, [copied[row[number]] for row in op.reads])
                done.add(original.results[0])
                copied.update(zip(original.results, copy.results, strict=True))
        with ir.Location.unknown():
            func.ReturnOp([copied[result] for result in results])
    return module


def _replaced_by_loop(main: Main, layers: Layers) -> set[Tensor]:
    """The first results of operations that a loop takes the place of: all of the layers but what is free after it."""
    inside = {op.results[0] for each in layers.own_ops for op in each.ops}
    carried = [each.yields for each in layers.carried]
    free = [each for each in layers.own_ops if is_free(each.ops[0]) and each.results[0] not in carried]
    for each in reversed(free):
        for op in each.ops:
            if _is_read_outside(op.results[0], inside, main):
                inside.remove(op.results[0])
    return inside


def _read_outside(main: Main, layers: Layers, inside: Set[Tensor]) -> list[tuple[Row, list[int]]]:
    """What others read of operations inside a loop: each value, and of which layers."""
    found = []
    for row in (row for op in layers.own_ops for row in op.results):
        numbers = [number for number, value in enumerate(row) if _is_read_outside(value, inside, main)]
        found += [(row, numbers)] if numbers else []
    return found


def _is_read_outside(value: Tensor, inside: Set[Tensor], main: Main) -> bool:
    op = defining_op(value)
    if op is None or op.results[0] not in inside:
        return False
    return any(_first_result(_in_block(use.owner, main)) not in inside for use in value.uses)


def _in_block(op: ir.OpView | ir.Operation, main: Main) -> ir.Operation:
    """The operation of `@main` that an operation is, or is inside of."""
    inner = op.operation
    while (parent := inner.parent) is not None and parent != main.op.operation:
        inner = parent
    return inner


def _first_result(op: ir.OpView | ir.Operation) -> Tensor | None:
    return op.results[0] if len(op.results) else None


def _roll_all(main: Main, found: Sequence[Layers]) -> None:
    """Replaces layers by loops, each named by its number."""
    for number, layers in enumerate(found):
        _roll(main, layers, str(number))
    Rules().apply(main.module)  # What was made of each weight is made of their stack now.


def _roll(main: Main, layers: Layers, name: str) -> None:
    """Replaces layers by a loop."""
    inside = _replaced_by_loop(main, layers)
    outside = _read_outside(main, layers, inside)
    last = layers.ops[-1].ops[-1]
    _move_readers(main, inside, last)
    with last.location, ir.InsertionPoint(last):
        loop = _Loop(layers, outside, name)
        for row, numbers in outside:
            for number in numbers:
                row[number].replace_all_uses_with(loop.result(row, number))
    for op in reversed(list(main.block.operations)):
        if _first_result(op) in inside:
            op.erase()


def _move_readers(main: Main, inside: Set[Tensor], last: ir.OpView) -> None:
    """Moves what reads of operations, and stands between them, behind the last one."""
    operations = list(main.block.operations)
    end = next(number for number, op in enumerate(operations) if _first_result(op) == last.results[0])
    read: set[Tensor] = set()
    for op in operations[:end]:
        is_inside = _first_result(op) in inside
        if is_inside or any(value in read for value in (*op.operands, *captured_values(op))):
            read.update(op.results)
            if not is_inside:
                op.move_before(operations[end + 1])


class _Loop:
    """A loop over layers, and its results."""

    def __init__(self, layers: Layers, outside: Sequence[tuple[Row, list[int]]], name: str) -> None:
        """Builds the loop at the current place.

        Args:
            layers: The layers.
            outside: What others read of them.
            name: What the loop is called.
        """
        self._layers = layers
        last = [layers.count - 1]
        carried = [each.yields for each in layers.carried]
        #: What only the last layer is asked for need not be collected.
        final = [row for row, numbers in outside if numbers == last and row not in carried]
        self._collected = [row for row, numbers in outside if numbers != last]
        self._carried = [*carried, *final]
        initial = [each.reads[0] for each in layers.carried]
        # Zeros, which will be overwritten.
        initial += [zeros(row[0].type) for row in final]
        initial += [zeros(_stack_type(row, layers.count)) for row in self._collected]
        counter = _number(0)
        self._stacks = [_stack(row) for row in layers.stacked]
        types = [each.type for each in (counter, *initial)]
        loop = stablehlo.WhileOp(types, [counter, *initial])
        loop.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get({LOOP: ir.StringAttr.get(name)})
        for region in loop.regions:
            region.blocks.append(*types, arg_locs=[ir.Location.current] * len(types))
        with ir.InsertionPoint(loop.cond.blocks[0]):
            number = loop.cond.blocks[0].arguments[0]
            is_inside = stablehlo.compare(number, _number(layers.count), stablehlo.ComparisonDirectionAttr.get("LT"))
            stablehlo.return_([is_inside])
        with ir.InsertionPoint(loop.body.blocks[0]):
            stablehlo.return_(self._body(*loop.body.blocks[0].arguments))
        self._results = list(loop.results)[1:]

    def result(self, row: Row, number: int) -> Tensor:
        """Returns what a layer gives, after the loop."""
        if row in self._carried and number == self._layers.count - 1:
            return self._results[self._carried.index(row)]
        collected = self._results[len(self._carried) + self._collected.index(row)]
        shape = collected.type.shape
        first, end = [number, *[0] * (len(shape) - 1)], [number + 1, *shape[1:]]
        return reshape(stablehlo.slice(collected, first, end, [1] * len(shape)), shape[1:])

    def _body(self, number: Tensor, *arguments: Tensor) -> list[Tensor]:
        """Builds one layer, and returns what the next one takes."""
        layers = self._layers
        kept_apart = find_kept_apart(layers, [*self._carried, *self._collected])
        values: dict[Row, Tensor] = {(value,) * layers.count: value for value in layers.shared}
        values |= {each.reads: argument for each, argument in zip(layers.carried, arguments, strict=False)}
        values |= {row: _take(stack, number) for row, stack in zip(layers.stacked, self._stacks, strict=True)}
        for op in layers.ops:
            copy = copy_with(op.ops[0], [values[row] for row in op.reads])
            values.update(zip(op.results, copy.results, strict=True))
            for row in kept_apart.intersection(op.results):
                values[row] = cast(Tensor, stablehlo.optimization_barrier([values[row]]))
        collections = arguments[len(self._carried) :]
        return [
            stablehlo.add(number, _number(1)),
            *(values[row] for row in self._carried),
            *(_put(values[row], into, number) for row, into in zip(self._collected, collections, strict=True)),
        ]


def _number(value: int) -> Tensor:
    type_ = tensor_type([], ir.IntegerType.get_signless(32))
    return splat_constant(ir.IntegerAttr.get(type_.element_type, value), type_)


def _stack_type(row: Row, count: int) -> ir.RankedTensorType:
    return tensor_type([count, *row[0].type.shape], row[0].type.element_type)


def _stack(row: Row) -> Tensor:
    return stablehlo.concatenate([reshape(value, [1, *value.type.shape]) for value in row], 0)


def _take(stack: Tensor, number: Tensor) -> Tensor:
    """Builds what a stack holds for a layer."""
    shape = stack.type.shape
    return reshape(stablehlo.dynamic_slice(stack, _place(number, shape), [1, *shape[1:]]), shape[1:])


def _put(value: Tensor, collection: Tensor, number: Tensor) -> Tensor:
    """Builds a collection with the value of a layer in it."""
    shape = collection.type.shape
    return stablehlo.dynamic_update_slice(collection, reshape(value, [1, *shape[1:]]), _place(number, shape))


def _place(number: Tensor, shape: Sequence[int]) -> list[Tensor]:
    return [number, *(_number(0) for _ in shape[1:])]
