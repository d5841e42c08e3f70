from __future__ import annotations

import pytest

from tpuc.passes.axes import Axis, Factor, Layout, dense, join, regroup
from tpuc.runtime.sizes import SizeExpr

#: The bounds of the sizes.
BOUNDS = {"b": 8, "s": 128}


def factor(text: str) -> Factor:
    size = SizeExpr.of(text)
    return Factor(size.evaluate(BOUNDS), size)


def axis(*texts: str) -> Axis:
    return Axis.of(*map(factor, texts))


def regrouped(layout: Layout, *dims: str) -> Layout | None:
    sizes = list(map(SizeExpr.of, dims))
    return regroup(layout, [size.evaluate(BOUNDS) for size in sizes], sizes)


def test_a_number_becomes_part_of_the_factor_before_it() -> None:
    assert axis("s", "64") == axis("64*s")
    assert axis("64", "s") != axis("64*s")
    assert axis("2", "32", "s", "1") == axis("64", "s")


def test_what_an_axis_says_of_itself() -> None:
    merged = axis("b", "s")
    assert (merged.bound, str(merged.size)) == (1024, "b*s")
    assert merged.is_padded
    assert not merged.is_contiguous
    assert merged.contiguous == axis("b*s")
    assert axis("s", "64").is_contiguous
    assert not axis("64").is_padded


def test_the_axis_that_is_not_free_wins() -> None:
    free = Axis(axis("b*s").factors, is_free=True)
    assert join([free, axis("b", "s")]) == axis("b", "s")
    assert join([free, free]) == free


@pytest.mark.parametrize(
    ("layout", "dims", "expected"),
    [
        (("b", "s", "64"), ("b*s", "64"), (("b", "s"), ("64",))),
        (("b", "s", "64"), ("b", "64*s"), (("b",), ("s", "64"))),
        (("b", "s", "64"), ("b", "s", "4", "16"), (("b",), ("s",), ("4",), ("16",))),
        (("b", "s", "64"), ("b", "16*s", "4"), (("b",), ("16*s",), ("4",))),
        (("b", "1", "s"), ("b", "s", "1"), (("b",), ("s",), ())),
        (("64*s",), ("s", "64"), (("s",), ("64",))),
        (("b",), ("1", "b"), ((), ("b",))),
    ],
)
def test_reshapes_that_merge_and_split(
    layout: tuple[str, ...], dims: tuple[str, ...], expected: tuple[tuple[str, ...], ...]
) -> None:
    assert regrouped(tuple(map(axis, layout)), *dims) == tuple(axis(*texts) for texts in expected)


def test_a_merged_dimension_is_split_where_it_was_merged() -> None:
    merged = regrouped((axis("b"), axis("s"), axis("64")), "64*b*s")
    assert merged == (axis("b", "s", "64"),)
    assert merged is not None
    assert regrouped(merged, "b", "s", "64") == (axis("b"), axis("s"), axis("64"))


@pytest.mark.parametrize(
    ("layout", "dims"),
    [
        (("64", "s"), ("s", "64")),
        (("64*s",), ("64", "s")),
        (("b*s",), ("b", "s")),
        (("2*s",), ("s", "2", "1", "1", "3")),
    ],
)
def test_reshapes_that_move_elements(layout: tuple[str, ...], dims: tuple[str, ...]) -> None:
    assert regrouped(tuple(map(axis, layout)), *dims) is None


def test_dense_layouts_have_one_factor_a_dimension() -> None:
    assert dense([128, 1], [SizeExpr.of("s"), SizeExpr.of(1)]) == (axis("s"), Axis(()))
