from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuc.dims import (
    Dims,
    bucket_name,
    buckets_of,
    choose_buckets,
    largest_step,
    parse_buckets,
    parse_dims,
)
from tpuc.errors import RequestError
from tpuc.runtime.sizes import SizeExpr, SizeRange
from tpuc.shapes import parse_shapes

DIMS = parse_dims("batch=1..8 k=1..64 seq=8*k")


def test_ranges_and_names_that_stand_for_expressions() -> None:
    assert list(map(str, DIMS.ranges)) == ["batch=1..8", "k=1..64"]
    assert DIMS.derived == {"seq": SizeExpr.of("8*k")}


def test_shapes_get_expressions_of_sizes() -> None:
    (spec, value) = DIMS.resolve(parse_shapes("x=f32[batch,seq,seq+1,3] flag=true"))
    assert str(spec) == "x=f32[batch,8*k,8*k+1,3]"
    assert str(value) == "flag=True"


def test_equal_dimensions_have_one_size() -> None:
    dims = parse_dims("a=1..4 b=a")
    assert str(dims.resolve(parse_shapes("x=f32[a,b]"))[0]) == "x=f32[a,a]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no size has a range"),
        ("seq", "cannot read 'seq'"),
        ("seq=1..", "is no range"),
        ("seq=0..4", "a size is at least 1"),
        ("seq=5..4", "a size is at least 1"),
        ("seq=1..4 seq=1..5", "seq is given twice"),
        ("seq=2**k k=1..4", "is no size"),
    ],
)
def test_other_dims_are_refused(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_dims(text)


@pytest.mark.parametrize(
    ("dims", "shapes", "message"),
    [
        ("seq=1..4", "x=f32[batch,seq]", "it is not said what batch may be"),
        ("seq=1..4", "x=f32[4]", "no input has a dimension of the size seq"),
        ("seq=1..4", "x=f32[seq*seq]", "is no multiple of one size plus a number"),
        ("a=1..4 b=1..4", "x=f32[a+b]", "is no multiple of one size plus a number"),
    ],
)
def test_dims_that_do_not_fit_the_shapes(dims: str, shapes: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_dims(dims).resolve(parse_shapes(shapes))


def test_a_range_of_one_number_is_a_number() -> None:
    dims = parse_dims("a=1..4 b=2..2")
    assert str(dims.resolve(parse_shapes("x=f32[a,b]"))[0]) == "x=f32[a,2]"


def test_an_example_is_neither_one_nor_twice_the_same() -> None:
    assert parse_dims("a=1..8 b=1..8 c=1..2").example() == {"a": 3, "b": 4, "c": 2}


def test_buckets_are_given_by_either_name() -> None:
    assert list(map(str, parse_buckets("batch=1,8 seq=512,128", DIMS))) == ["batch=1,8", "k=16,64"]
    assert list(map(str, parse_buckets("k=16,64", DIMS))) == ["batch=8", "k=16,64"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time=1", "there is no size time"),
        ("batch=1..8", "is no list of sizes"),
        ("batch=1,9", "batch cannot be 9"),
        ("batch=0,8", "batch cannot be 0"),
        ("seq=100,512", "seq cannot be 100"),
        ("batch=1,4", "no bucket of batch has room for 8"),
    ],
)
def test_other_buckets_are_refused(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_buckets(text, DIMS)


def test_every_combination_is_a_bucket() -> None:
    buckets = buckets_of(DIMS.ranges, parse_buckets("batch=1,8 k=16,64", DIMS))
    assert [[str(each) for each in bucket] for bucket in buckets] == [
        ["batch=1..1", "k=1..16"],
        ["batch=1..1", "k=1..64"],
        ["batch=1..8", "k=1..16"],
        ["batch=1..8", "k=1..64"],
    ]
    assert bucket_name(buckets[1]) == "batch1.k64"


def test_without_sizes_there_is_one_program() -> None:
    assert buckets_of((), ()) == [()]
    assert bucket_name(()) == ""


def test_buckets_that_are_chosen() -> None:
    assert list(map(str, choose_buckets(parse_dims("seq=1..512").ranges))) == ["seq=4,8,16,32,64,128,256,512"]
    assert list(map(str, choose_buckets(parse_dims("batch=1..8 seq=1..512").ranges))) == [
        "batch=4,8",
        "seq=8,32,128,512",
    ]
    assert list(map(str, choose_buckets(parse_dims("seq=100..120").ranges))) == ["seq=120"]


_RANGE = st.tuples(st.integers(1, 60), st.integers(0, 4000)).map(
    lambda pair: SizeRange(name="s", minimum=pair[0], maximum=pair[0] + pair[1])
)


@given(st.lists(_RANGE, min_size=1, max_size=3))
def test_the_choice_has_room_for_all_and_few_programs(ranges: list[SizeRange]) -> None:
    named = tuple(
        SizeRange(name=name, minimum=each.minimum, maximum=each.maximum)
        for name, each in zip("abc", ranges, strict=False)
    )
    chosen = choose_buckets(named)
    assert len(buckets_of(named, chosen)) <= 8
    for each, buckets in zip(named, chosen, strict=True):
        assert buckets.bounds[-1] == each.maximum
        assert all(low < high for low, high in itertools.pairwise(buckets.bounds))


def test_what_a_choice_costs_at_most() -> None:
    dims = Dims(ranges=(SizeRange(name="s", minimum=1, maximum=512),), derived={})
    assert largest_step(dims.ranges, parse_buckets("s=64,512", dims)) == 64
    assert largest_step(dims.ranges, parse_buckets("s=4,16,64,512", dims)) == pytest.approx(512 / 65)
