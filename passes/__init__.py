"""The passes over StableHLO: every pass by name, the order they run in, and the text form of a pipeline."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence

from tpuc.errors import RequestError
from tpuc.passes.attention_kernel import AttentionKernel
from tpuc.passes.base import Estimator, Pass, PassContext, PassReport, run_passes
from tpuc.passes.convert_arith import ConvertArith
from tpuc.passes.cse import Cse
from tpuc.passes.expand_c128 import ExpandC128
from tpuc.passes.expand_composites import ExpandComposites
from tpuc.passes.expand_i64_division import ExpandI64Division
from tpuc.passes.expand_i64_products import ExpandI64Products
from tpuc.passes.fold_constants import FoldConstants
from tpuc.passes.fold_transpose import FoldTranspose
from tpuc.passes.fuse_affine import FuseAffine
from tpuc.passes.hoist_weights import HoistWeights
from tpuc.passes.merge_products import MergeProducts
from tpuc.passes.narrow_f64 import NarrowF64
from tpuc.passes.narrow_indices import NarrowIndices
from tpuc.passes.pad_dynamic import PadDynamic
from tpuc.passes.pad_to_tiles import PadToTiles
from tpuc.passes.precision import Precision
from tpuc.passes.recompose_activations import RecomposeActivations
from tpuc.passes.recompose_attention import RecomposeAttention
from tpuc.passes.recompose_norms import RecomposeNorms
from tpuc.passes.roll_layers import RollLayers
from tpuc.passes.scale_before_reduce import ScaleBeforeReduce
from tpuc.passes.simplify_arithmetic import SimplifyArithmetic
from tpuc.passes.simplify_shape import SimplifyShape
from tpuc.passes.space_to_depth import SpaceToDepth
from tpuc.passes.unbatch_dot import UnbatchDot
from tpuc.passes.weight_layout import WeightLayout
from tpuc.passes.width_to_channels import WidthToChannels

__all__ = [
    "PASSES",
    "PIPELINE",
    "READABLE",
    "Estimator",
    "Pass",
    "PassContext",
    "PassReport",
    "default_pipeline",
    "format_pipeline",
    "parse_pipeline",
    "run_passes",
]

#: What a compile runs, in order.
PIPELINE: tuple[Pass, ...] = (
    ConvertArith(),  # first: the others, and XLA, read static StableHLO only
    PadDynamic(),  # before all that would lose annotations
    FoldConstants(),  # before all that look for a constant: an epsilon in f64, a multiplication by one
    NarrowF64(),  # before cse: it goes by source locations, and equal operations of two locations become one
    ExpandC128(),  # before cse: it reads the parts of a number again and again
    Cse(),  # so that the others have less to go through
    NarrowIndices(),  # after cse: what is one value is narrowed once
    ExpandI64Division(),  # after narrow-indices: most that divides is an index, and fits into 32 bits
    ExpandI64Products(),  # after narrow-indices too: libtpu has products of 32 bits
    SimplifyArithmetic(),  # what computes nothing stands between operations that belong together
    UnbatchDot(),  # before simplify-shape, which turns the copy for a batch of one into a reshape
    SimplifyShape(),  # before fold-transpose: reshapes stand between transposes and products
    FoldTranspose(),  # after what simplifies: only transposes that are needed are moved to where they cost nothing
    RecomposeNorms(),  # after simplify-shape: statistics are copied to the elements by one broadcast, not by two
    RecomposeActivations(),  # after fold-constants and simplify-arithmetic: what is left is the function itself
    RecomposeAttention(),  # after recompose-norms: it goes by softmaxes, and by products of plain rows and columns
    ExpandComposites(),  # after recompose-attention; before all others, which look at plain operations
    Precision(),  # after expand-composites: it goes by what reduces; before all that asks what a program costs
    ScaleBeforeReduce(),  # after simplify-shape: it looks through one reshape, not through two
    SimplifyShape(),  # again: fold-transpose makes reshapes
    Cse(),  # the rules leave equal operations behind
    AttentionKernel(),  # after cse: queries and keys are rotated by the same tables, not by equal ones
    Cse(),  # each kernel lays out the same masks and tables anew
    FuseAffine(),  # after attention-kernel, which takes the scale of the queries itself
    MergeProducts(),  # after fuse-affine, which scales weights one by one; before pad-to-tiles: together they fill more
    PadToTiles(),  # late: what else a product would meet is settled
    WidthToChannels(),  # before space-to-depth, which would hide the first convolution from it
    SpaceToDepth(),  # late too: it asks what a convolution costs as it will be
    RollLayers(),  # after all that looks at one operation: each layer must have become what the others are
    WeightLayout(),  # before hoist-weights, which leaves reshapes and transposes of weights in the program
    HoistWeights(),  # last: the others look for patterns in what it takes away
)

#: What XLA cannot do without: it reads neither constants of arith nor sizes that vary.
READABLE: tuple[Pass, ...] = (ConvertArith(), PadDynamic())

#: Every pass, by its name.
PASSES: dict[str, type[Pass]] = {each.name: type(each) for each in PIPELINE}

_PASS = re.compile(r'\s*(?P<name>[\w-]+)(?:\{(?P<options>(?:[^"{}]|"(?:[^"\\]|\\.)*")*)\})?\s*(?:,|$)')
_OPTION = re.compile(r'\s*(?P<name>[\w-]+)=(?:(?P<word>[^\s,{}="]+)|(?P<string>"(?:[^"\\]|\\.)*"))(?:\s+|$)')


def default_pipeline(precision: str = "f32") -> str:
    """Returns the text of the pipeline that a compile runs.

    Args:
        precision: What the pass `precision` is to do; one of its modes.

    Raises:
        RequestError: There is no such mode.
    """
    asked = Precision(mode=precision)
    return format_pipeline([asked if isinstance(each, Precision) else each for each in PIPELINE])


def format_pipeline(passes: Sequence[Pass]) -> str:
    """Returns the text that `parse_pipeline` reads as these passes."""
    return ",".join(map(str, passes))


def parse_pipeline(text: str) -> tuple[Pass, ...]:
    """Reads passes in MLIR's form: `convert-arith,fold-constants{max-elements=64}`; no text is no passes.

    An option's value is a word, or a JSON string where a word does not do.

    Raises:
        RequestError: The text is not a pipeline, or a pass or an option is unknown, or a value is not of its type.
    """
    return tuple(_find(match["name"]).with_options(_parse_options(match)) for match in _match_all(_PASS, text))


def _find(name: str) -> type[Pass]:
    if name not in PASSES:
        near = difflib.get_close_matches(name, PASSES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise RequestError(f"unknown pass {name!r}", hint=f"{hint}Known: {', '.join(sorted(PASSES))}.")
    return PASSES[name]


def _parse_options(each: re.Match[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for match in _match_all(_OPTION, each["options"] or ""):
        if match["name"] in options:
            raise RequestError(f"pass {each['name']}: option {match['name']!r} is given twice")
        options[match["name"]] = match["word"] or json.loads(match["string"])
    return options


def _match_all(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    position = 0
    while text[position:].strip():
        match = pattern.match(text, position)
        if match is None:
            raise RequestError(
                f"cannot read {text[position:].strip()!r} in a pass pipeline",
                hint="Write passes as in: convert-arith,fold-constants{max-elements=64}",
            )
        yield match
        position = match.end()
