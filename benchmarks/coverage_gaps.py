"""What tpuc does not compile, with the cause of each: strict, so that what starts to work has to leave the table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.coverage_results import CaseResult


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Cases that fail.

    Attributes:
        suite: Their suite.
        names: A pattern of their names.
        cases: A pattern of the cases.
        kind: What stands in the way.
        cause: Why, in words.
        example: A name and a case, for the test that the gap is still there.
    """

    suite: str
    names: str
    cases: str = ""
    kind: str
    cause: str
    example: tuple[str, str]

    def covers(self, result: CaseResult) -> bool:
        """Whether a case is one of them."""
        return (
            result.suite == self.suite
            and re.fullmatch(self.names, result.name) is not None
            and re.search(self.cases, result.case) is not None
        )


_DATA = "sizes that depend on data"
_SPARSE = "sparse tensors"
_DTYPE = "a dtype"
_LIBTPU = "libtpu"
GAPS: tuple[Gap, ...] = (
    Gap(
        suite="operators",
        names="masked_select|nonzero|unique|unique_consecutive",
        kind=_DATA,
        cause="The result has as many elements as the data say; `torch.nonzero_static` and `torch.where` do not.",
        example=("masked_select", "f32 0"),
    ),
    Gap(
        suite="operators",
        names="argwhere",
        cases=" [^3]$",  # The places of no elements need no data.
        kind=_DATA,
        cause="As of `nonzero`.",
        example=("argwhere", "f32 0"),
    ),
    Gap(
        suite="operators",
        names="bincount",
        kind=_DATA,
        cause="The result has one element more than the largest number; `scatter_add` into a known size does the same.",
        example=("bincount", "i64 0"),
    ),
    Gap(
        suite="operators",
        names="repeat_interleave",
        cases=" 3$",
        kind=_DATA,
        cause="Where a tensor says how often, with no `output_size`; with one, or with a number, it compiles.",
        example=("repeat_interleave", "f32 3"),
    ),
    Gap(
        suite="operators",
        names="tensor_split",
        cases=" [023]$",
        kind=_DATA,
        cause="Where a tensor says at which places to split; a list of numbers does not.",
        example=("tensor_split", "f32 0"),
    ),
    Gap(
        suite="operators",
        names="chalf",
        kind=_DTYPE,
        cause="XLA has no complex numbers of two f16.",
        example=("chalf", "f32 0"),
    ),
    Gap(
        suite="operators",
        names=r"sparse\.(sampled_addmm|mm\.reduce)|to_sparse",
        kind=_SPARSE,
        cause="XLA has dense tensors only.",
        example=("sparse.sampled_addmm", "f32 0"),
    ),
    Gap(
        suite="operators",
        names="istft",
        cases="^c128 [78]$",
        kind=_LIBTPU,
        cause="Two-sided: libtpu lays out the parts of a scattered c128 in another way than the whole, and gives up.",
        example=("istft", "c128 7"),
    ),
    Gap(
        suite="transformers",
        names="jetmoe",
        kind=_DATA,
        cause="Tokens are split by how many each expert gets, as Python numbers; other mixtures use `grouped_mm`.",
        example=("jetmoe", ""),
    ),
    Gap(
        suite="transformers",
        names="vits",
        kind=_DATA,
        cause="The speech is as long as the durations that it predicts.",
        example=("vits", ""),
    ),
    Gap(
        suite="diffusers",
        names="MochiTransformer3DModel",
        kind=_DATA,
        cause="Each text of a batch is cut to the length that its mask says, by `nonzero`.",
        example=("MochiTransformer3DModel", ""),
    ),
)


def unexplained(results: Iterable[CaseResult]) -> list[CaseResult]:
    """The cases that fail and that no gap covers."""
    return [result for result in results if result.is_bad and not any(gap.covers(result) for gap in GAPS)]


def closed(results: Iterable[CaseResult]) -> list[CaseResult]:
    """The cases that a gap covers and that do not fail."""
    return [result for result in results if result.outcome == "ok" and any(gap.covers(result) for gap in GAPS)]
