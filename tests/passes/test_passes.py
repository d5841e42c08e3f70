"""Every pass on the cases of its `.mlir` file, which are golden and differential tests at once.

A file's first line says what is run: `// RUN: tpuc opt --passes '...' %s | filecheck %s`, with `--target` where the
pass asks for one. Its cases are separated by `// -----`. Each case is evaluated before and after the pass on random
inputs and compared, and what the pass printed is checked against the case's CHECK lines. In a case

- `// EXACT` asks for the same bits, on NaN, infinities and zeros of both signs;
- `// TOLERANCE: 1e-3` allows a larger relative difference than 1e-6;
- a function `@reference` is what `@main` is compared with, where nothing can evaluate `@main` as it came;
- `// SIZES: seq=3` gives a program that was padded its true sizes; `@reference` is the program at these sizes. What
  is padding of an input is NaN, or else out of range.
"""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from filecheck.matcher import Matcher
from filecheck.options import Options
from jaxlib.mlir import ir

import tpuc.passes
from tpuc import mlir
from tpuc.backend.estimate import LibtpuEstimator
from tpuc.passes import PASSES, parse_pipeline, run_passes
from tpuc.passes.main import Main, name_of
from tpuc.passes.rewrite import nested_ops
from tpuc.runtime.cache import Cache
from tpuc.runtime.dtypes import Array
from tpuc.targets import Target

from .evaluation import cut_and_spoil, evaluate, function, has_function, make_inputs

FOLDER = Path(__file__).parent
#: Modules of the package that are not passes.
FRAME = {
    "__init__",
    "axes",
    "base",
    "bf16_storage",
    "composites",
    "dataflow",
    "integer_ranges",
    "kept_apart",
    "layers",
    "main",
    "padding",
    "padding_elementwise",
    "padding_indices",
    "padding_linalg",
    "padding_moves",
    "padding_reductions",
    "padding_regions",
    "padding_rules",
    "padding_windows",
    "rewrite",
    "rotary",
    "rows",
    "size_values",
    "static_values",
    "tensors",
    "trial",
    "weight_only",
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case of a file.

    Attributes:
        passes: The pipeline's text.
        target: The target's name.
        text: The module, with its CHECK lines.
        number: Its place in the file, which seeds its inputs.
    """

    passes: str
    target: str
    text: str
    number: int

    @property
    def is_exact(self) -> bool:
        return "// EXACT" in self.text

    @property
    def sizes(self) -> dict[str, int]:
        match = re.search(r"// SIZES: (.+)", self.text)
        pairs = [pair.split("=") for pair in match[1].split()] if match else []
        return {name: int(size) for name, size in pairs}

    @property
    def tolerance(self) -> float:
        match = re.search(r"// TOLERANCE: (\S+)", self.text)
        return float(match[1]) if match else 1e-6


def _cases() -> list[object]:
    cases: list[object] = []
    for path in sorted(FOLDER.glob("*.mlir")):
        run, _, text = path.read_text().partition("\n")
        words = shlex.split(run.removeprefix("// RUN: tpuc opt ").partition(" %s")[0])
        options = dict(zip(words[::2], words[1::2], strict=True))
        for number, part in enumerate(text.split("// -----")):
            case = Case(
                passes=options["--passes"], target=options.get("--target", "cpu"), text=part.strip(), number=number
            )
            cases.append(pytest.param(case, id=f"{path.stem}-{number}"))
    return cases


@pytest.fixture(scope="module")
def estimators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, LibtpuEstimator]]:
    """Libtpu's estimates for the chips that cases name."""
    folder = tmp_path_factory.mktemp("estimates")
    with LibtpuEstimator(Target.parse("v5e"), cache=Cache(folder, "estimate")) as v5e:
        yield {"v5e": v5e}


@pytest.mark.parametrize("case", _cases())
def test_case(case: Case, tmp_path: Path, estimators: Mapping[str, LibtpuEstimator]) -> None:
    assert "CHECK" in case.text
    with mlir.make_context() as context:
        module = mlir.parse(case.text, context)
        inputs = make_inputs(module, case.number, special=case.is_exact)
        name = "reference" if has_function(module, "reference") else "main"
        cut = cut_and_spoil(inputs, module) if case.sizes else inputs
        before = evaluate(module, cut, name)
        given = dict(zip(Main(module).argument_names, inputs, strict=True))
        inputs += [np.array(size, np.int32) for size in case.sizes.values()]
        locations = _locations(module)
        run_passes(
            module,
            parse_pipeline(case.passes),
            Target.parse(case.target),
            estimator=estimators.get(case.target),
            dump=tmp_path,
        )
        after = evaluate(module, inputs if "" in given else _arguments(module, given))
    for old, new in zip(before, after, strict=True):
        _assert_same(old, new[tuple(map(slice, old.shape))] if case.sizes else new, case)
    assert _locations(module) <= locations, "an operation has lost its source location"
    _assert_checks(case, mlir.to_text(module), tmp_path)


def _arguments(module: ir.Module, given: Mapping[str, Array]) -> list[Array]:
    """What `@main` takes after the passes, which may have taken arguments away and prepared others."""
    prepared = {
        f"prepared:{name_of(function.op)}": evaluate(
            module, [given[name] for name in function.argument_names], name_of(function.op)
        )[0]
        for function in Main(module).preparations()
    }
    return [{**given, **prepared}[name] for name in Main(module).argument_names]


def _assert_same(old: Array, new: Array, case: Case) -> None:
    assert (old.dtype, old.shape) == (new.dtype, new.shape)
    if old.dtype.name == "bfloat16":  # No number to NumPy.
        old, new = old.astype(np.float32), new.astype(np.float32)
    if not case.is_exact and np.issubdtype(old.dtype, np.inexact):
        np.testing.assert_allclose(new, old, rtol=case.tolerance, atol=case.tolerance)
        return
    np.testing.assert_array_equal(new, old)
    if np.issubdtype(old.dtype, np.floating):
        np.testing.assert_array_equal(np.signbit(new[new == 0]), np.signbit(old[old == 0]))


def _locations(module: ir.Module) -> set[str]:
    # What a composite stands for has none: it takes the composite's.
    return {str(op.location) for op in nested_ops(function(module, "main"))}


def _assert_checks(case: Case, printed: str, folder: Path) -> None:
    (folder / "case.mlir").write_text(case.text)
    (folder / "printed.mlir").write_text(printed)
    options = Options(match_filename=str(folder / "case.mlir"), input_file=str(folder / "printed.mlir"))
    failed = Matcher.from_opts(options).run()
    assert not failed, f"the CHECK lines do not match:\n{printed}"


def test_every_pass_is_one_file_with_one_test() -> None:
    files = {path.stem for path in Path(tpuc.passes.__file__).parent.glob("*.py")} - FRAME
    assert files == {name.replace("-", "_") for name in PASSES}
    assert files == {path.stem for path in FOLDER.glob("*.mlir")}


@pytest.mark.parametrize("name", sorted(PASSES))
def test_names_agree(name: str) -> None:
    each = PASSES[name]
    stem = name.replace("-", "_")
    assert each.__module__ == f"tpuc.passes.{stem}"
    assert each.__name__ == "".join(word.capitalize() for word in name.split("-"))
    assert each.name == name
    run, *_ = (FOLDER / f"{stem}.mlir").read_text().splitlines()
    passes = run.removeprefix("// RUN: tpuc opt --passes '").partition("' ")[0]
    assert name in {each.name for each in parse_pipeline(passes)}


@pytest.mark.parametrize("name", sorted(PASSES))
def test_documentation_shows_the_ir(name: str) -> None:
    documentation = str(importlib.import_module(PASSES[name].__module__).__doc__)
    assert documentation.startswith(f"{name}: ")
    before, after = documentation.index("\nBefore:\n"), documentation.index("\nAfter:\n")
    assert before < after
