"""Size expressions: dimensions that are computed from named sizes, such as `seq`, `2*seq-1`, `(height-3)//2+1`.

An expression is kept as a polynomial with integer coefficients over *atoms*: names, and quotients that round down.
Quotients are reduced, so that equal sizes are equal objects in all the cases that shapes of tensors give rise to:
`(h-3)//2+1`, `(h-1)//2` and `(h+1)//2-1` are one.
"""

from __future__ import annotations

import ast
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from tpuc.runtime.errors import InputError

_RANGE = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<minimum>\d+)\.\.(?P<maximum>\d+)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class SizeRange:
    """The numbers that a named size may be.

    Attributes:
        name: The size's name: `seq`.
        minimum: The least of them.
        maximum: The greatest.
    """

    name: str
    minimum: int
    maximum: int

    @classmethod
    def parse(cls, text: str) -> SizeRange:
        """Reads `seq=1..512`.

        Raises:
            InputError: The text has another form.
        """
        match = _RANGE.fullmatch(text.strip())
        if match is None:
            raise InputError(f"{text!r} is no range of sizes", hint="Write name=least..greatest: seq=1..512.")
        return cls(name=match["name"], minimum=int(match["minimum"]), maximum=int(match["maximum"]))

    def __str__(self) -> str:
        return f"{self.name}={self.minimum}..{self.maximum}"


@dataclass(frozen=True)
class Quotient:
    """`numerator // divisor`, rounded down; the divisor is at least 2."""

    numerator: SizeExpr
    divisor: int

    def __str__(self) -> str:
        text = str(self.numerator)
        return f"{text}//{self.divisor}" if text.isidentifier() else f"({text})//{self.divisor}"


Atom: TypeAlias = "str | Quotient"
#: A product of atoms, in the order of their texts; () is one.
Monomial: TypeAlias = tuple[Atom, ...]


@dataclass(frozen=True)
class SizeExpr:
    """A sum of integer multiples of monomials.

    Attributes:
        terms: Monomials with their coefficients, none of which is zero, highest degree first.
    """

    terms: tuple[tuple[Monomial, int], ...]

    @classmethod
    def of(cls, value: int | str | SizeExpr) -> SizeExpr:
        """Makes an expression of a number or of a text.

        Raises:
            InputError: The text is no size expression.
        """
        if isinstance(value, SizeExpr):
            return value
        if isinstance(value, int):
            return _from_terms({(): value})
        return _parse(value)

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = "".join(_print_term(monomial, factor) for monomial, factor in self.terms)
        return text.removeprefix("+")

    def __add__(self, other: int | SizeExpr) -> SizeExpr:
        terms = defaultdict(int, self.terms)
        for monomial, factor in SizeExpr.of(other).terms:
            terms[monomial] += factor
        return _from_terms(terms)

    def __sub__(self, other: int | SizeExpr) -> SizeExpr:
        return self + SizeExpr.of(other) * -1

    def __mul__(self, other: int | SizeExpr) -> SizeExpr:
        terms: dict[Monomial, int] = defaultdict(int)
        for left, factor in self.terms:
            for right, other_factor in SizeExpr.of(other).terms:
                terms[tuple(sorted((*left, *right), key=str))] += factor * other_factor
        return _from_terms(terms)

    def __floordiv__(self, divisor: int) -> SizeExpr:
        """Divides by a positive number and rounds down."""
        if divisor == 1:
            return self
        whole = _from_terms({monomial: factor // divisor for monomial, factor in self.terms})
        rest = _from_terms({monomial: factor % divisor for monomial, factor in self.terms})
        return whole + _quotient(rest, divisor)

    @property
    def constant(self) -> int | None:
        """The number that this is, or None if it depends on a size."""
        if not self.terms:
            return 0
        (monomial, factor), *rest = self.terms
        return factor if not rest and not monomial else None

    @property
    def linear(self) -> tuple[str, int, int] | None:
        """The name, a and b of `a*name+b` with a positive `a`; None if this is no such expression."""
        if len(self.names) != 1:
            return None
        (name,) = self.names
        factors = dict(self.terms)
        offset, factor = factors.pop((), 0), factors.pop((name,), 0)
        return (name, factor, offset) if not factors and factor > 0 else None

    def solve(self, number: int) -> int | None:
        """Finds the size for which a linear expression is a number; None if there is none.

        Raises:
            ValueError: The expression is not linear in one name.
        """
        if self.linear is None:
            raise ValueError(f"{self} is not linear in one size")
        _, factor, offset = self.linear
        size, rest = divmod(number - offset, factor)
        return None if rest else size

    @property
    def names(self) -> frozenset[str]:
        """The sizes that this depends on."""
        atoms = {atom for monomial, _ in self.terms for atom in monomial}
        direct = {atom for atom in atoms if isinstance(atom, str)}
        return frozenset(direct.union(*(atom.numerator.names for atom in atoms if isinstance(atom, Quotient))))

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """Computes the number for these sizes.

        Raises:
            KeyError: A size is not among them.
        """
        return sum(
            factor * math.prod(_evaluate_atom(atom, sizes) for atom in monomial) for monomial, factor in self.terms
        )

    def substitute(self, values: Mapping[str, SizeExpr]) -> SizeExpr:
        """Puts expressions in the places of names; names without one stay."""
        total = SizeExpr.of(0)
        for monomial, factor in self.terms:
            product = SizeExpr.of(factor)
            for atom in monomial:
                product = product * _substitute_atom(atom, values)
            total = total + product
        return total

    def divide(self, other: SizeExpr) -> SizeExpr | None:
        """Divides, if nothing remains.

        Returns:
            The quotient, or None if `other` does not divide this as a polynomial.
        """
        if not other.terms:
            return None
        lead, lead_factor = other.terms[0]
        rest, quotient = self, SizeExpr.of(0)
        while rest.terms:
            monomial, factor = rest.terms[0]
            missing = _without(monomial, lead)
            if missing is None or factor % lead_factor:
                return None
            step = _from_terms({missing: factor // lead_factor})
            quotient = quotient + step
            rest = rest - step * other
        return quotient


def _from_terms(terms: Mapping[Monomial, int]) -> SizeExpr:
    kept = [(monomial, factor) for monomial, factor in terms.items() if factor]
    # A graded order: what division needs.
    return SizeExpr(tuple(sorted(kept, key=lambda term: (-len(term[0]), [str(atom) for atom in term[0]]))))


def _quotient(numerator: SizeExpr, divisor: int) -> SizeExpr:
    """Builds a quotient of a numerator whose coefficients are all less than the divisor."""
    if numerator.constant is not None:
        return SizeExpr.of(numerator.constant // divisor)
    common = math.gcd(divisor, *(factor for monomial, factor in numerator.terms if monomial))
    if common > 1:
        # Every part but the constant is a multiple: what the constant has beyond one is rounded away.
        reduced = _from_terms({monomial: factor // common for monomial, factor in numerator.terms})
        return reduced // (divisor // common)
    varying = [(monomial, factor) for monomial, factor in numerator.terms if monomial]
    match varying:
        case [((Quotient(numerator=inner, divisor=first),), 1)]:
            shift = sum(factor for monomial, factor in numerator.terms if not monomial)
            return (inner + shift * first) // (first * divisor)
    return _from_terms({(Quotient(numerator, divisor),): 1})


def _without(monomial: Monomial, part: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in part:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _evaluate_atom(atom: Atom, sizes: Mapping[str, int]) -> int:
    return sizes[atom] if isinstance(atom, str) else atom.numerator.evaluate(sizes) // atom.divisor


def _substitute_atom(atom: Atom, values: Mapping[str, SizeExpr]) -> SizeExpr:
    if isinstance(atom, str):
        return values.get(atom, _from_terms({(atom,): 1}))
    return atom.numerator.substitute(values) // atom.divisor


def _print_term(monomial: Monomial, factor: int) -> str:
    if not monomial:
        return f"{factor:+}"
    sign = "+" if factor > 0 else "-"
    parts = [str(atom) for atom in monomial]
    if factor != 1 or len(parts) > 1:
        parts = [f"({part})" if "//" in part else part for part in parts]
    if abs(factor) != 1:
        parts.insert(0, str(abs(factor)))
    return sign + "*".join(parts)


_OPERATORS: Mapping[type[ast.operator], Callable[[SizeExpr, SizeExpr], SizeExpr]] = {
    ast.Add: SizeExpr.__add__,
    ast.Sub: SizeExpr.__sub__,
    ast.Mult: SizeExpr.__mul__,
}


@cache
def _parse(text: str) -> SizeExpr:
    try:
        return _read(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        raise InputError(
            f"{text!r} is no size", hint="Write a number, a name, or what +, -, * and // make of them: (h-3)//2+1."
        ) from None


def _read(node: ast.expr) -> SizeExpr:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return SizeExpr.of(number)
        case ast.Name(id=name):
            return _from_terms({(name,): 1})
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _read(operand) * -1
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=ast.Constant(value=int(divisor))) if divisor > 0:
            return _read(left) // divisor
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _OPERATORS[type(operator)](_read(left), _read(right))
    raise ValueError(node)
