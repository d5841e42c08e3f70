"""What forward decides by a size of one, which torch.export takes for a size like any other.

An `if` on a size becomes a condition on the sizes that an exported program serves, but not at one: torch.export takes
every named size for greater, so that `if x.shape[0] > 1` is settled, and a `squeeze` of that dimension drops nothing.
Here such decisions are found; where one would go the other way at a size that is allowed, forward and the program are
called with that size and compared.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from tpuc.errors import RequestError
from tpuc.frontend.locations import location_of

_TORCH = str(Path(torch.__file__).parent)
#: Where the comparison operators of sizes are, which say nothing of who asks.
_COMPARISONS = str(Path(torch.__file__))
_SQUEEZES = frozenset({"aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims"})
_ASSERTIONS = frozenset({"aten._assert_scalar.default", "aten.sym_constrain_range_for_size.default"})
#: How far results may be apart, absolute and relative: another way gives other numbers, not other roundings.
_TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A choice that was made by a size.

    Attributes:
        condition: What was asked, in torch.export's symbols.
        answer: What the exported program takes for the answer.
        place: The user's line, `file:line`; "" if it is not known.
    """

    condition: sympy.Basic
    answer: bool
    place: str

    def differs_at(self, values: Mapping[sympy.Symbol, int]) -> bool:
        """Whether the answer is another for these numbers of the symbols; of unknown symbols there is none."""
        return bool(self.condition.subs(values) == (sympy.false if self.answer else sympy.true))


@contextmanager
def recorded_decisions() -> Iterator[list[Decision]]:
    """Lists what code outside PyTorch decides by sizes while the block runs."""
    decisions: list[Decision] = []
    original: Any = torch.SymBool.__bool__

    def answer(self: torch.SymBool) -> bool:
        result: bool = original(self)
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename == _COMPARISONS:
            frame = frame.f_back
        if not frame.f_code.co_filename.startswith(_TORCH):
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            decisions.append(Decision(condition=self.node.expr, answer=result, place=place))
        return result

    with mock.patch.object(torch.SymBool, "__bool__", answer):
        yield decisions


def squeezed_sizes(program: ExportedProgram) -> Iterator[Decision]:
    """Yields, for each dimension that a program would drop if it were one, the decision that it is not."""
    for node in program.graph.nodes:
        if str(node.target) in _SQUEEZES:
            for _, size in _dropped(node):
                if isinstance(size, torch.SymInt):
                    condition = sympy.Eq(size.node.expr, 1)
                    yield Decision(condition=condition, answer=False, place=location_of(node).place)


def _dropped(node: torch.fx.Node) -> list[tuple[int, int | torch.SymInt]]:
    """Returns the dimensions that a squeeze drops where they are one, with their sizes."""
    source: Any = node.args[0]
    shape = source.meta["val"].shape
    wanted: Any = node.args[1] if len(node.args) > 1 else range(len(shape))
    return [(at % len(shape), shape[at]) for at in ([wanted] if isinstance(wanted, int) else wanted)]


def check_decisions(
    decisions: Sequence[Decision],
    program: ExportedProgram,
    module: torch.nn.Module,
    inputs: tuple[tuple[Any, ...], Mapping[str, Any]],
    values: Mapping[sympy.Symbol, int],
) -> str | None:
    """Checks what would be decided otherwise at some sizes by calling forward, and the program, with such inputs.

    Args:
        decisions: The decisions.
        program: The exported program.
        module: The module.
        inputs: Positional and keyword inputs of the sizes.
        values: The number of each symbol at the sizes.

    Returns:
        What to tell the user where it cannot be checked, since the module has no weights.

    Raises:
        RequestError: Forward gives other results than the program; the line of the first decision is named.
    """
    differing = [decision for decision in decisions if decision.differs_at(values)]
    if not differing:
        return None
    first = differing[0]
    if any(isinstance(leaf, FakeTensor) for leaf in pytree.tree_leaves((module.state_dict(), inputs))):
        where = f" at {first.place}" if first.place else ""
        return f"forward decides by a size of one{where}; without weights it is not checked what it does then"
    if not _agree(program, module, inputs):
        raise RequestError(
            "forward goes another way for a size of one",
            where=first.place or None,
            hint="Let that size begin at two in --dims, or write forward so that it has one form.",
        )
    return None


def _agree(
    program: ExportedProgram, module: torch.nn.Module, inputs: tuple[tuple[Any, ...], Mapping[str, Any]]
) -> bool:
    """Says whether forward and the exported program give the same; the module's state stays as it is."""
    with torch.no_grad():
        expected = pytree.tree_leaves(_called(module, inputs))
        results = pytree.tree_leaves(_run(program, inputs))
    if len(expected) != len(results):
        return False
    return all(_is_close(one, other) for one, other in zip(expected, results, strict=True))


def _called(module: torch.nn.Module, inputs: tuple[tuple[Any, ...], Mapping[str, Any]]) -> Any:
    args, kwargs = copy.deepcopy(inputs)
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return torch.func.functional_call(module, buffers, args, dict(kwargs))


def _run(program: ExportedProgram, inputs: tuple[tuple[Any, ...], Mapping[str, Any]]) -> list[Any]:
    """Runs an exported program; returns its outputs, without the state that it writes."""
    tensors = {**program.constants, **program.state_dict}
    given = iter(pytree.tree_leaves(copy.deepcopy(inputs)))
    signature = program.graph_signature
    arguments = [
        next(given) if spec.kind is InputKind.USER_INPUT else tensors[str(spec.target)]
        for spec in signature.input_specs
    ]
    # What the program writes to, it writes to a copy.
    arguments = [
        argument.clone() if spec.kind is InputKind.BUFFER else argument
        for argument, spec in zip(arguments, signature.input_specs, strict=True)
    ]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        results = _AsExported(program.graph_module).run(*arguments, enable_io_processing=False)
    kinds = [spec.kind for spec in signature.output_specs]
    return [result for result, kind in zip(results, kinds, strict=True) if kind is OutputKind.USER_OUTPUT]


class _AsExported(torch.fx.Interpreter):
    """Runs a graph at any size with what was decided when it was exported."""

    def run_node(self, n: torch.fx.Node) -> Any:
        """Skips the conditions that the decisions were recorded as; drops the dimensions that were dropped then."""
        if str(n.target) in _ASSERTIONS:
            return None
        if str(n.target) not in _SQUEEZES:
            return super().run_node(n)
        (x, *_), _ = self.fetch_args_kwargs_from_env(n)
        dropped = {at for at, size in _dropped(n) if isinstance(size, int) and size == 1}
        return x.reshape([size for at, size in enumerate(x.shape) if at not in dropped])


def _is_close(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return bool(one == other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
