"""The rules of `pad-dynamic`: for each operation, what keeps padding away from elements.

A rule gets an operation at the bound and says where the elements of its results are. It may change operands in place,
or build other operations and return their values as `Replaced`; where neither is exact, it raises `Refusal`. The rules
are in `padding_elementwise`, `padding_reductions`, `padding_windows`, `padding_moves`, `padding_indices`,
`padding_linalg` and `padding_regions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from jaxlib.mlir import ir

from tpuc.passes.axes import Layout
from tpuc.passes.padding import Padding, Refusal, Replaced
from tpuc.passes.rewrite import nested_ops, op_name

Rule: TypeAlias = "Callable[[Any, Padding], Sequence[Layout] | Replaced]"

#: The rule for each operation, by its name.
RULES: dict[str, Rule] = {}

#: Operations whose regions are blocks of a program.
_WITH_RULES_INSIDE = ("stablehlo.while", "stablehlo.case", "stablehlo.if")


def on(*ops: type[ir.OpView] | str) -> Callable[[Rule], Rule]:
    """Registers a rule for operations: classes of the bindings, or names."""

    def register(rule: Rule) -> Rule:
        for op in ops:
            RULES[op if isinstance(op, str) else op.OPERATION_NAME] = rule  # type: ignore[attr-defined]
        return rule

    return register


def apply_rules(block: Any, padding: Padding) -> None:
    """Applies the rules to the operations of a block, in order."""
    outer, padding.scope = padding.scope, padding.new_scope()
    for op in list(block.operations):
        is_known = len(op.results) and op.results[0] in padding.layouts
        if not is_known and op_name(op) != "stablehlo.return":
            with op.location, ir.InsertionPoint(op):
                _apply(op, padding)
    padding.scope = outer


def _apply(op: Any, padding: Padding) -> None:
    expected = padding.result_dims(op)
    rule = RULES.get(op_name(op)) if padding.is_concerned(op) else None
    try:
        _check_inside(op)
        with padding.all_numbers_read(op):
            found = padding.unconcerned(op) if rule is None else rule(op, padding)
        padding.check(found.layouts if isinstance(found, Replaced) else found, expected)
    except Refusal as refusal:
        padding.refused.append((f"{op_name(op)}: {refusal}", str(op.location)))
        # Go on, to find the others.
        found = [padding.dense(result, dims) for result, dims in zip(op.results, expected, strict=True)]
    if not isinstance(found, Replaced):
        padding.layouts.update(zip(op.results, found, strict=True))
        return
    for result, value in zip(list(op.results), found.values, strict=True):
        result.replace_all_uses_with(value)
    padding.layouts.update(zip(found.values, found.layouts, strict=True))
    op.operation.erase()


def _check_inside(op: Any) -> None:
    """Checks that nothing depends on sizes in what an operation applies to elements, which no rule looks at."""
    if op_name(op) in _WITH_RULES_INSIDE:
        return
    for inner in nested_ops(op)[1:]:
        if any(name.startswith("tpuc.") for name in inner.attributes):
            raise Refusal("what it computes from elements depends on the sizes")
