"""Finding repeated layers in a program: parts that compute the same, each from what the one before gives.

Layers are found by what they compute, not by names or by the order of operations. Two operations are alike if their
names, attributes, result types and regions are the same. From the last operation of each layer, operands are followed
back side by side as long as they are alike. That gives the operations of a layer, each with its counterparts in the
others, and the leaves where following back ends:

- what a layer takes from the one before is carried;
- what is another value in each layer, but known before the first, is stacked: weights mostly;
- what is the same value in all layers is read where it is.

Candidates for last operations are those that have alike surroundings, a few steps back. Of candidates that cover about
as much of the program, the one wins that carries the fewest bytes from layer to layer: there one layer ends and the
next begins. Of those that hardly differ, the smallest last result wins: where the next layer begins with a sum over
what this one gives, as a norm does, the compiler computes both together, if both are in the loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from jaxlib.mlir import ir

from tpuc.passes.dataflow import Dataflow, Numbers, are_own
from tpuc.passes.main import Main
from tpuc.passes.rewrite import Tensor, op_name
from tpuc.passes.tensors import bytes_of, is_static

#: The values that are alike, one of each layer.
Row: TypeAlias = tuple[Tensor, ...]

#: How many steps back the surroundings of candidates must be alike: few steps miss differences, many miss the first
#: layers.
_DEPTHS = (2, 4, 8)
#: Where there may be two layers only, the surroundings of the first one are those of half of them. Then operations are
#: tried that are alike themselves, and up to so many of which one layer has.
_STRIDES = range(1, 7)
#: A candidate that covers this part of what the best one covers is as good.
_NEARLY = 0.75
#: And so is one that carries this part more.
_MORE_BYTES = 0.01
#: A layer has one of these; to loop over a few elementwise operations is not worth it.
_HEAVY = frozenset(f"stablehlo.{name}" for name in ("composite", "convolution", "custom_call", "dot_general", "while"))


@dataclass(frozen=True, kw_only=True)
class LayerOp:
    """An operation of a layer, with its counterparts in the others.

    Attributes:
        ops: The operation in each layer.
        reads: What it reads: its operands, then the values that its regions capture.
        is_own: Whether it belongs to the layer; otherwise it stands before it, and the layer repeats it, for free.
    """

    ops: tuple[ir.OpView, ...]
    reads: tuple[Row, ...]
    is_own: bool

    @property
    def results(self) -> list[Row]:
        """What it computes."""
        return [tuple(row) for row in zip(*(op.results for op in self.ops), strict=True)]


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What a layer takes from the one before.

    Attributes:
        reads: What each layer takes; the first one's comes from before the layers.
        yields: What each layer gives: `reads` of the next.
    """

    reads: Row
    yields: Row


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Repeated layers, the first one first.

    Attributes:
        ops: The operations of a layer, each after those that it reads; the last one is that of the whole layer.
        carried: What goes from layer to layer.
        stacked: What is another value in each layer, known before the first of them.
        shared: What is the same in all layers.
    """

    ops: tuple[LayerOp, ...]
    carried: tuple[Carried, ...]
    stacked: tuple[Row, ...]
    shared: tuple[Tensor, ...]

    @property
    def count(self) -> int:
        """How many layers there are."""
        return len(self.ops[0].ops)

    @property
    def own_ops(self) -> list[LayerOp]:
        """The operations that belong to a layer."""
        return [op for op in self.ops if op.is_own]

    @property
    def leaves(self) -> list[Tensor]:
        """All that the layers read from outside, each once."""
        stacked = (value for row in self.stacked for value in row)
        return list(dict.fromkeys((*(each.reads[0] for each in self.carried), *stacked, *self.shared)))

    def first(self, count: int) -> Layers:
        """Returns the first ones of the layers."""
        return Layers(
            ops=tuple(replace(op, ops=op.ops[:count], reads=tuple(row[:count] for row in op.reads)) for op in self.ops),
            carried=tuple(Carried(reads=each.reads[:count], yields=each.yields[:count]) for each in self.carried),
            stacked=tuple(row[:count] for row in self.stacked),
            shared=self.shared,
        )


def find_layers(main: Main, least: int) -> list[Layers]:
    """Finds repeated layers in `@main`.

    Args:
        main: `@main` of a module of static shapes.
        least: How many layers there must be, at least 2.

    Returns:
        Layers that share no operation, those that depend on others first.
    """
    program = Dataflow(main)
    found = list(_Finder(program, least).find())
    # Layers are taken as one now: what depends on others has all that they depend on, and more.
    found.sort(
        key=lambda layers: program.ancestors_of(program.results[layers.ops[-1][-1]][0]).bit_count(), reverse=True
    )
    return [layers.in_program(program) for layers in found]


class _Finder:
    """Looks for layers, those that cover most first."""

    def __init__(self, program: Dataflow, least: int) -> None:
        self._program = program
        self._least = least
        self._pairs: dict[Numbers, _Aligned | None] = {}

    def find(self) -> Iterator[_Aligned]:
        """Yields layers that share no operation."""
        candidates = [each for each in map(self._candidate, self._classes()) if each is not None]
        while candidates:
            best = _best(candidates)
            guesses = {each.members for each in best if each.layers is None}
            if guesses:
                measured = [self._measured(each) if each.members in guesses else each for each in candidates]
                candidates = [each for each in measured if each.coverage]
                continue
            chosen = max(best, key=lambda each: each.coverage)
            for layers in chosen.layers or ():
                self._program.take(layers.own_ops)
                yield layers
            untaken = (self._untaken(each) for each in candidates if each is not chosen)
            candidates = [each for each in untaken if len(each.members) >= 2]

    def _classes(self) -> Iterator[Numbers]:
        """Yields the results of operations of alike surroundings, enough of them to be those of layers."""
        seen: dict[int, list[Numbers]] = defaultdict(list)
        if self._least == 2:
            yield from self._strided()
        for depth, classes in enumerate(self._program.classes(max(_DEPTHS)), start=1):
            for ops in classes if depth in _DEPTHS else ():
                # The surroundings of the first layers may differ, one a step; they are found from those behind them.
                if len(ops) < max(2, self._least - depth) or not self._may_end_layer(ops[0]):
                    continue
                members = tuple(self._program.results[op][0] for op in ops)
                # Looking further back has cut off the first ones.
                if not any(other[-len(members) :] == members for other in seen[members[-1]]):
                    seen[members[-1]].append(members)
                    yield members

    def _strided(self) -> Iterator[Numbers]:
        """Yields the results of every first, second, ... of operations that are alike themselves."""
        for ops in self._program.classes_alone():
            if not self._may_end_layer(ops[0]):
                continue
            members = tuple(self._program.results[op][0] for op in ops)
            strided = (members[first::stride] for stride in _STRIDES for first in range(stride))
            yield from (each for each in strided if len(each) >= 2)

    def _may_end_layer(self, op: int) -> bool:
        results = self._program.results[op]
        return (
            len(results) == 1
            and not self._program.is_weight_only(results[0])
            and is_static(self._program.values[results[0]])
        )

    def _candidate(self, members: Numbers) -> _Candidate | None:
        """Looks at some of a class, for a guess; None if those that follow each other are no layers."""
        for place in sorted({max(1, len(members) * quarter // 4) for quarter in (1, 2, 3)}):
            pair = self._pair(*members[place - 1 : place + 1])
            if pair is not None:
                last = self._program.values[members[-1]]
                return _Candidate(
                    members=members,
                    # The first one may differ.
                    coverage=len(pair.own) * (len(members) - 1),
                    carried_bytes=pair.carried_bytes(self._program),
                    last_bytes=bytes_of(last),
                )
        return None

    def _measured(self, candidate: _Candidate) -> _Candidate:
        layers = self._all_layers(candidate.members)
        return replace(
            candidate,
            layers=tuple(layers),
            coverage=sum(len(each.own_ops) for each in layers),
            carried_bytes=max((each.carried_bytes(self._program) for each in layers), default=0),
        )

    def _untaken(self, candidate: _Candidate) -> _Candidate:
        """Forgets the members that others have taken, and what was measured with what they have taken."""
        members = tuple(value for value in candidate.members if not self._program.is_taken(self._owner(value)))
        measured = [op for layers in candidate.layers or () for op in layers.own_ops]
        if members == candidate.members and not any(map(self._program.is_taken, measured)):
            return candidate
        return replace(candidate, members=members, layers=None)

    def _all_layers(self, members: Numbers) -> list[_Aligned]:
        """The layers that members of a class are the last values of: those that are most, and others beside them."""
        found = [layers for layers in map(self._of_run, self._runs(members)) if layers is not None]
        apart: list[_Aligned] = []
        for layers in sorted(found, key=len, reverse=True):
            if all(layers.own_ops.isdisjoint(other.own_ops) for other in apart):
                apart.append(layers)
        return apart

    def _runs(self, members: Numbers) -> Iterator[list[int]]:
        """Yields members that are one layer after the other."""
        run = [members[0]]
        for value, following in pairwise(members):
            if self._pair(value, following) is None:
                yield run
                run = []
            run.append(following)
        yield run

    def _of_run(self, run: list[int]) -> _Aligned | None:
        """The layers of a run, with those before it whose surroundings differ; None if they are too few."""
        if len(run) < 2:
            return None
        while (first := self._before(run)) is not None:
            run = [first, *run]
        layers = self._align(tuple(run)) if len(run) >= self._least else None
        if layers is None and len(run) > self._least:  # The first may be like the second, but not like the others.
            return self._align(tuple(run[1:]))
        return layers

    def _before(self, run: Sequence[int]) -> int | None:
        """The last value of a layer before a run."""
        pair = self._pair(run[0], run[1])
        assert pair is not None, "a run is of pairs"
        for reads, yields in pair.carried:
            is_last = yields[0] == run[0] and self._program.owners[reads[0]] is not None
            if is_last and self._pair(reads[0], run[0]) is not None:
                return reads[0]
        return None

    def _pair(self, value: int, following: int) -> _Aligned | None:
        key = (value, following)
        if key not in self._pairs:
            self._pairs[key] = self._align(key)
        return self._pairs[key]

    def _align(self, run: Numbers) -> _Aligned | None:
        """The layers that end with these values, if they are alike and depend on each other in this order."""
        ancestors = [self._program.ancestors_of(value) for value in run]
        if not all(bits >> self._owner(value) & 1 for value, bits in zip(run, ancestors[1:], strict=False)):
            return None
        # Where the first layer begins, the others show.
        before = [0, *ancestors[:-1]]
        followed = self._follow_back(run, before)
        if followed is None:
            return None
        ops, leaves = followed
        return self._classify(ops, [row for row in ops if are_own(row, before)], leaves)

    def _follow_back(self, run: Numbers, before: Sequence[int]) -> tuple[list[Numbers], list[Numbers]] | None:
        """The operations of layers, each after those that it reads, and the leaves; None as soon as layers differ."""
        ends = [1 << self._owner(value) for value in run]
        found: dict[Numbers, None] = {}
        leaves: list[Numbers] = []
        seen: set[Numbers] = set()
        todo: list[tuple[Numbers, Numbers | None]] = [(run, None)]
        while todo:
            row, ops = todo.pop()
            if ops is not None:
                found[ops] = None
                continue
            if row in seen:
                continue
            seen.add(row)
            ops = self._program.alike(row, before)
            if ops is None:
                if any(map(self._is_inside, row[1:], before[1:], ends)):
                    return None
                leaves.append(row)
            elif ops not in found:
                todo.append((row, ops))
                todo.extend((read, None) for read in _across(self._program.reads, ops))
        # In the order of the last layer.
        return sorted(found, key=lambda ops: ops[-1]), leaves

    def _is_inside(self, value: int, before: int, end: int) -> bool:
        """Whether a value is made from what the layer before gives, which ends with this operation, and after it."""
        ancestors = self._program.ancestors_of(value)
        return bool(ancestors & end) and ancestors & ~before != 0

    def _classify(self, ops: Sequence[Numbers], own: Sequence[Numbers], leaves: Iterable[Numbers]) -> _Aligned | None:
        """Tells carried, stacked and shared leaves apart; None if one is none of these, or these are no layers."""
        if not any(op_name(self._program.ops[row[0]]) in _HEAVY for row in own):
            return None
        inside = {op for row in own for op in row}
        if any(map(self._program.is_taken, inside)):
            return None
        bits = sum(1 << op for op in inside)
        yielded: dict[int, list[Numbers]] = defaultdict(list)
        for row in (row for ops in own for row in _across(self._program.results, ops)):
            yielded[row[0]].append(row)
        carried, stacked, shared = [], [], []
        for leaf in leaves:
            depends = [bool(self._program.ancestors_of(value) & bits) for value in leaf]
            if depends[0] or len({self._program.values[value].type for value in leaf}) > 1:
                return None
            if len(set(leaf)) == 1:
                shared.append(leaf[0])
                continue
            source = next((row for row in yielded[leaf[1]] if row[:-1] == leaf[1:]), None)
            if source is not None:
                carried.append((leaf, source))
            elif not any(depends):
                stacked.append(leaf)
            else:
                return None
        return _Aligned(
            ops=ops, own=frozenset(own), own_ops=frozenset(inside), carried=carried, stacked=stacked, shared=shared
        )

    def _owner(self, value: int) -> int:
        owner = self._program.owners[value]
        assert owner is not None, "layers end with operations"
        return owner


def _across(lists: Sequence[Numbers], ops: Numbers) -> list[Numbers]:
    """What is said of alike operations, side by side."""
    return list(zip(*(lists[op] for op in ops), strict=True))


@dataclass(frozen=True, kw_only=True)
class _Aligned:
    """`Layers`, by numbers.

    Attributes:
        ops: The operations, each after those that it reads.
        own: Those that belong to the layers.
        own_ops: The same, all of all layers.
        carried: What layers take and give, of each value that is carried.
        stacked: As in `Layers`.
        shared: As in `Layers`.
    """

    ops: Sequence[Numbers]
    own: frozenset[Numbers]
    own_ops: frozenset[int]
    carried: Sequence[tuple[Numbers, Numbers]]
    stacked: Sequence[Numbers]
    shared: Sequence[int]

    def __len__(self) -> int:
        return len(self.ops[0])

    def carried_bytes(self, program: Dataflow) -> int:
        """Returns what goes from one layer to the next."""
        return sum(bytes_of(program.values[yields[0]]) for _, yields in self.carried)

    def in_program(self, program: Dataflow) -> Layers:
        """Returns the layers with the operations and values that the numbers stand for."""

        def row(numbers: Numbers) -> Row:
            return tuple(program.values[number] for number in numbers)

        return Layers(
            ops=tuple(
                LayerOp(
                    ops=tuple(program.ops[op] for op in ops),
                    reads=tuple(map(row, _across(program.reads, ops))),
                    is_own=ops in self.own,
                )
                for ops in self.ops
            ),
            carried=tuple(Carried(reads=row(reads), yields=row(yields)) for reads, yields in self.carried),
            stacked=tuple(map(row, self.stacked)),
            shared=row(tuple(self.shared)),
        )


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """Operations that may be the last ones of layers.

    Attributes:
        members: Their results.
        coverage: How many operations all layers have; a guess until they are known.
        carried_bytes: What goes from layer to layer; likewise.
        last_bytes: What each of the results has.
        layers: The layers, once they are known.
    """

    members: Numbers
    coverage: int
    carried_bytes: int
    last_bytes: int
    layers: tuple[_Aligned, ...] | None = None


def _best(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """Those that carry the fewest bytes of those that cover most, with the smallest last results first."""
    most = max(each.coverage for each in candidates)
    good = [each for each in candidates if each.coverage >= _NEARLY * most]
    most_bytes = (1 + _MORE_BYTES) * min(each.carried_bytes for each in good)
    return sorted((each for each in good if each.carried_bytes <= most_bytes), key=lambda each: each.last_bytes)
