from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuc.runtime.errors import InputError
from tpuc.runtime.sizes import SizeExpr, SizeRange

_NAMES = ("b", "s", "h")
_SIZES = st.fixed_dictionaries({name: st.integers(1, 40) for name in _NAMES})


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda part: f"({part[0]}){part[1]}({part[2]})")
    quotients = st.tuples(inner, st.integers(1, 9)).map(lambda part: f"({part[0]})//{part[1]}")
    return pairs | quotients


_TEXTS = st.recursive(st.sampled_from(_NAMES) | st.integers(0, 12).map(str), _grow, max_leaves=6)


@given(_TEXTS, _SIZES)
def test_an_expression_is_what_python_computes(text: str, sizes: dict[str, int]) -> None:
    assert SizeExpr.of(text).evaluate(sizes) == eval(text, {}, dict(sizes))


@given(_TEXTS)
def test_what_is_printed_is_read_as_the_same(text: str) -> None:
    assert SizeExpr.of(str(SizeExpr.of(text))) == SizeExpr.of(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("(h-3)//2+1", "(h-1)//2"),
        ("(h-1)//2", "(h+1)//2-1"),
        ("((h-1)//2)//2", "(h-1)//4"),
        ("(4*h+2)//8", "(2*h+1)//4"),
        ("(b+1)*(s-1)", "b*s+s-b-1"),
        ("s-s", "0"),
    ],
)
def test_equal_sizes_are_equal_objects(one: str, other: str) -> None:
    assert SizeExpr.of(one) == SizeExpr.of(other)


@given(_TEXTS, _TEXTS)
def test_a_product_is_divided_by_its_factors(one: str, other: str) -> None:
    product = SizeExpr.of(one) * SizeExpr.of(other)
    if SizeExpr.of(other) != SizeExpr.of(0):
        assert product.divide(SizeExpr.of(other)) == SizeExpr.of(one)


@pytest.mark.parametrize(("whole", "part"), [("b*s", "h"), ("3*s", "2"), ("s+1", "s"), ("s", "0")])
def test_what_does_not_divide_gives_nothing(whole: str, part: str) -> None:
    assert SizeExpr.of(whole).divide(SizeExpr.of(part)) is None


def test_names_are_those_inside_quotients_too() -> None:
    assert SizeExpr.of("b*((h-3)//2)").names == {"b", "h"}


def test_numbers_are_constants() -> None:
    assert [SizeExpr.of(text).constant for text in ("3*4-2", "s-s", "s")] == [10, 0, None]


def test_names_are_replaced_inside_quotients_too() -> None:
    assert SizeExpr.of("(h-3)//2+b").substitute({"h": SizeExpr.of("8*k")}) == SizeExpr.of("(8*k-3)//2+b")


@pytest.mark.parametrize("text", ["", "s/2", "s//t", "s//0", "f(s)", "s**2", "True", "1.5", "s t", "__import__('os')"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no size"):
        SizeExpr.of(text)


def test_a_range_is_printed_as_it_is_read() -> None:
    assert str(SizeRange.parse("seq=1..512")) == "seq=1..512"


@pytest.mark.parametrize("text", ["seq", "seq=1", "seq=1..", "=1..2", "1=1..2", "seq=-1..2", "s q=1..2"])
def test_other_ranges_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no range"):
        SizeRange.parse(text)
