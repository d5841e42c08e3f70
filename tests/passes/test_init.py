"""The text form of pipelines, and the pipeline that a compile runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuc.errors import RequestError
from tpuc.passes import PASSES, PIPELINE, Pass, default_pipeline, format_pipeline, parse_pipeline
from tpuc.passes.convert_arith import ConvertArith
from tpuc.passes.cse import Cse
from tpuc.passes.fold_constants import FoldConstants


def test_the_default_pipeline_is_its_own_text() -> None:
    assert parse_pipeline(default_pipeline()) == PIPELINE


def test_every_pass_of_the_pipeline_has_a_name() -> None:
    assert {each.name for each in PIPELINE} == set(PASSES)
    assert PASSES["cse"] is Cse


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("", ()),
        ("  ", ()),
        ("cse", (Cse(),)),
        ("convert-arith,cse", (ConvertArith(), Cse())),
        (" convert-arith , cse ", (ConvertArith(), Cse())),
        ("cse,", (Cse(),)),
        ("cse{}", (Cse(),)),
        ("fold-constants{max-elements=64},cse", (FoldConstants(max_elements=64), Cse())),
        ('fold-constants{ max-elements="64" }', (FoldConstants(max_elements=64),)),
        ("fold-constants,fold-constants{max-elements=1024}", (FoldConstants(), FoldConstants())),
    ],
)
def test_parse(text: str, passes: tuple[Pass, ...]) -> None:
    assert parse_pipeline(text) == passes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fold-transposes", "unknown pass 'fold-transposes'\n  did you mean fold-transpose? Known: attention-kernel"),
        ("qqq", "unknown pass 'qqq'\n  Known: attention-kernel"),
        (",cse", "cannot read ',cse' in a pass pipeline"),
        ("cse,,cse", "cannot read ',cse' in a pass pipeline"),
        ("cse cse", "cannot read 'cse cse' in a pass pipeline"),
        ("cse{", "cannot read 'cse{' in a pass pipeline"),
        ("cse}", "cannot read 'cse}' in a pass pipeline"),
        ("builtin.module(cse)", r"cannot read 'builtin.module(cse)' in a pass pipeline"),
        ("fold-constants{max-elements}", "cannot read 'max-elements' in a pass pipeline"),
        ("fold-constants{max-elements=}", "cannot read 'max-elements=' in a pass pipeline"),
        ("fold-constants{max-elements=1 max-elements=2}", "option 'max-elements' is given twice"),
        ("fold-constants{max-elements=many}", "max-elements=many is not of type int"),
        ("fold-constants{most=1}", "has no option 'most'\n  It has: max-elements."),
    ],
)
def test_bad_text(text: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_pipeline(text)
    assert message in str(caught.value)


@given(st.lists(st.one_of(st.just(Cse()), st.builds(FoldConstants, max_elements=st.integers()))))
def test_text_and_passes_say_the_same(passes: list[Pass]) -> None:
    assert parse_pipeline(format_pipeline(passes)) == tuple(passes)
