"""The TPU compiler's own estimate of a program's cycles, read from the optimized HLO.

libtpu writes `estimated_cycles` beside each operation it schedules. An operation in a loop counts as often as the
loop runs; of a conditional's branches the dearest counts.

A Mosaic kernel carries no estimate, but what it computes and what it reads and writes, if its author says so. It is
counted at twice the time of its roofline, max(FLOPs / peak, bytes / bandwidth), and apart. For the roofline, see
Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model for Multicore Architectures"
(CACM 2009). A kernel that says nothing is counted as such, never silently as zero.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpuc.targets import Chip

_COMPUTATION = re.compile(r"^(ENTRY )?%(\S+) \(.*\{\s*$")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_KERNEL = 'custom_call_target="tpu_custom_call"'
_KERNEL_COST = re.compile(r'"cost_estimate":\{"flops":"(\d+)",.*?"bytes_accessed":"(\d+)"')
#: How far behind its roofline a kernel is taken to be.
_KERNEL_SLOWNESS = 2
_COPY = re.compile(r"= \S+ (?:copy|transpose)\(")
_WHILE = re.compile(r" while\(.*?condition=%([^\s,]+), body=%([^\s,]+)")
_LOOP_NAME = re.compile(r'frontend_attributes=\{[^}]*?tpuc\.loop="([^"]*)"')
_TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_BOUND = re.compile(r"= s32\[\]\S* constant\((\d+)\)")
_BRANCHES = re.compile(r" conditional\(.*branch_computations=\{([^}]*)\}")
_CALL = re.compile(r" call\(.*to_apply=%([^\s,]+)")
_CALLEE = re.compile(r"calls=%([^\s,]+)")


@dataclass(frozen=True, kw_only=True)
class Cycles:
    """What a program costs, by the compiler's estimate.

    Attributes:
        estimated: Cycles of all operations that carry an estimate.
        operations: How many do, each once, however often its loop runs.
        kernels: Mosaic kernels that run, which carry none.
        kernel_cycles: Twice the cycles of the kernels' rooflines.
        uncounted_kernels: Kernels that `kernel_cycles` says nothing of: they do not tell what they do, or the chip's
            clock is not known.
        copies: Copies and transposes that run.
        unknown_loops: Loops whose count could not be read; their bodies count once.
    """

    estimated: int = 0
    operations: int = 0
    kernels: int = 0
    kernel_cycles: int = 0
    uncounted_kernels: int = 0
    copies: int = 0
    unknown_loops: int = 0

    @property
    def total(self) -> int:
        """Estimated cycles and those of kernels."""
        return self.estimated + self.kernel_cycles

    def __add__(self, other: Cycles) -> Cycles:
        return Cycles(
            estimated=self.estimated + other.estimated,
            operations=self.operations + other.operations,
            kernels=self.kernels + other.kernels,
            kernel_cycles=self.kernel_cycles + other.kernel_cycles,
            uncounted_kernels=self.uncounted_kernels + other.uncounted_kernels,
            copies=self.copies + other.copies,
            unknown_loops=self.unknown_loops + other.unknown_loops,
        )

    def times(self, count: int) -> Cycles:
        """What `count` runs of it cost."""
        return Cycles(
            estimated=self.estimated * count,
            operations=self.operations,
            kernels=self.kernels * count,
            kernel_cycles=self.kernel_cycles * count,
            uncounted_kernels=self.uncounted_kernels * count,
            copies=self.copies * count,
            unknown_loops=self.unknown_loops,
        )


def count_cycles(hlo: str, chip: Chip | None = None) -> Cycles:
    """Sums the estimates over an optimized HLO module.

    Args:
        hlo: The module as text.
        chip: What it was compiled for, whose peaks give kernels their rooflines.
    """
    return _Program(hlo, chip).entry()


def count_with_loops(hlo: str, chip: Chip | None = None) -> tuple[Cycles, dict[str, Cycles]]:
    """Sums the estimates over an optimized HLO module, and over loops in it.

    Args:
        hlo: The module as text.
        chip: As for `count_cycles`.

    Returns:
        The sum, and that of each loop with all its turns, by the name that its frontend attribute `tpuc.loop` gives.
    """
    program = _Program(hlo, chip)
    return program.entry(), program.named_loops()


class _Program:
    def __init__(self, hlo: str, chip: Chip | None) -> None:
        self._chip = chip
        self._computations: dict[str, list[str]] = {}
        self._costs: dict[str, Cycles] = {}
        self._entry = ""
        lines: list[str] | None = None
        for line in hlo.splitlines():
            if start := _COMPUTATION.match(line):
                lines = self._computations.setdefault(start.group(2), [])
                if start.group(1):
                    self._entry = start.group(2)
            elif line.startswith("}"):
                lines = None
            elif lines is not None:
                lines.append(line)

    def entry(self) -> Cycles:
        return self._cost(self._entry)

    def named_loops(self) -> dict[str, Cycles]:
        return {
            name.group(1): self._line(line)
            for lines in self._computations.values()
            for line in lines
            if " while(" in line and (name := _LOOP_NAME.search(line))
        }

    def _cost(self, name: str) -> Cycles:
        if name not in self._costs:
            self._costs[name] = sum(map(self._line, self._computations.get(name, [])), Cycles())
        return self._costs[name]

    def _line(self, line: str) -> Cycles:
        estimate = _CYCLES.search(line)
        own = Cycles(
            estimated=int(estimate.group(1)) if estimate else 0,
            operations=1 if estimate else 0,
            copies=1 if _COPY.search(line) else 0,
        )
        if _KERNEL in line:
            return own + self._kernel(line)
        if loop := _WHILE.search(line):
            condition, body = loop.groups()
            count = self._trip_count(line, condition)
            return own + self._cost(body).times(count or 1) + Cycles(unknown_loops=0 if count else 1)
        if branches := _BRANCHES.search(line):
            costs = [self._cost(branch.strip().lstrip("%")) for branch in branches.group(1).split(",")]
            return own + max(costs, key=lambda cost: cost.total)
        if call := _CALL.search(line):
            return own + self._cost(call.group(1))
        return own

    def _kernel(self, line: str) -> Cycles:
        cost = _KERNEL_COST.search(line)
        if cost is None or self._chip is None or self._chip.clock_hz is None:
            return Cycles(kernels=1, uncounted_kernels=1)
        flops, accessed = map(int, cost.groups())
        # f32 too: what is not asked for more precision is multiplied as bf16.
        seconds = max(flops / self._chip.peak_flops_per_second["bf16"], accessed / self._chip.hbm_bytes_per_second)
        return Cycles(kernels=1, kernel_cycles=round(_KERNEL_SLOWNESS * seconds * self._chip.clock_hz))

    def _trip_count(self, line: str, condition: str) -> int:
        """A counted loop's bound: as the compiler says, or from its condition, `compare(i, constant(N)), LT`."""
        if known := _TRIP_COUNT.search(line):
            return int(known.group(1))
        todo, seen, bounds = [condition], set(), [0]
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            for inner in self._computations.get(name, []):
                bounds += map(int, _BOUND.findall(inner))
                todo += _CALLEE.findall(inner)
        return max(bounds)
