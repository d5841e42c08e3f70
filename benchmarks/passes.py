"""What each pass buys: programs compiled with all passes, and without each of them in turn; writes docs/passes.md.

    python -m benchmarks.passes
    python -m benchmarks.passes --model minilm
    python -m benchmarks.passes --only-write    # after a change to the list of passes, without measuring

The figures are kept in docs/passes.json, which other models' stay in when one is measured again.
Nothing is run: what counts is what libtpu estimates for v5e, and the temporaries that it asks for. A program that comes
out of the passes as another has before is not compiled again, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

import click
import jax
import torch
from jaxlib.mlir import ir
from torch.export import export

import tpuc.passes
from benchmarks import examples
from benchmarks.common import BENCH, ROOT, Column, Result, ignore_known_warnings, markdown_table, publish
from tpuc import mlir
from tpuc.backend.caches import Caches
from tpuc.backend.compile import compile_in, start_worker
from tpuc.backend.estimate import LibtpuEstimator
from tpuc.errors import PassError, TpucError
from tpuc.fake import fake_weights
from tpuc.frontend import stablehlo
from tpuc.frontend.capture import capture
from tpuc.loader import load_model
from tpuc.passes import PASSES, PIPELINE, Pass, run_passes
from tpuc.passes.precision import MODES, Precision
from tpuc.program import take_apart
from tpuc.report.cycles import count_cycles
from tpuc.runtime.files import replacing
from tpuc.shapes import parse_shapes
from tpuc.targets import Target
from tpuc.worker import Worker

TARGET = Target.parse("v5e")
DOCUMENT = ROOT / "docs" / "passes.md"
FIGURES = ROOT / "docs" / "passes.json"
_KEPT = BENCH / "passes"
_PACKAGES = ("torch", "jaxlib", "libtpu")
#: The passes without which programs are measured; of precision all modes are.
_TAKEN_OUT = tuple(dict.fromkeys(each.name for each in PIPELINE if not isinstance(each, Precision)))


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model that passes are measured on.

    Attributes:
        name: What `--model` calls it.
        title: What it is, and where it is smaller than the one in models/.
        example: Makes it, with its inputs.
    """

    name: str
    title: str
    example: Callable[[], examples.Example]


def _zoo(symbol: str, shapes: str = "") -> Callable[[], examples.Example]:
    def make() -> examples.Example:
        loaded = load_model(
            str(ROOT / "models" / symbol), shapes=parse_shapes(shapes) if shapes else (), with_weights=False
        )
        assert isinstance(loaded.program, torch.nn.Module)
        names = inspect.signature(loaded.program.forward).parameters
        return loaded.program, {**dict(zip(names, loaded.args, strict=False)), **loaded.kwargs}

    return make


def _two_layers_of_bert() -> examples.Example:
    module, inputs = _zoo("bert_large.py")()
    module.encoder.layer = module.encoder.layer[:2]
    return module, inputs


MODELS = (
    Model(name="minilm", title="MiniLM, f32, 2 x 128 tokens", example=_zoo("minilm.py")),
    Model(name="bert", title="BERT-large, 2 of its 24 layers, f32, 1 x 128 tokens", example=_two_layers_of_bert),
    Model(
        name="llama",
        title="LLaMA-7B, 2 of its 32 layers, f32, 512 tokens",
        example=_zoo("llama_7b.py:two_layers", "input_ids=i64[1,512]"),
    ),
    Model(name="efficientnet", title="EfficientNet-Lite0, f32, batch 1", example=_zoo("efficientnet_lite0.py")),
    Model(name="resnet50", title="ResNet-50, f32, batch 1", example=_zoo("resnet50.py")),
    Model(name="recurrence", title="the gated recurrence, f32", example=_zoo("gated_recurrence.py")),
    Model(
        name="unet",
        title="SDXL's UNet at a tenth of its width, f32, 16 x 16",
        example=_zoo(
            "sdxl_unet.py:narrow",
            "sample=f32[1,4,16,16] timestep=i64[] encoder_hidden_states=f32[1,77,64] text_embeds=f32[1,64] "
            "time_ids=f32[1,6]",
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a program takes.

    Attributes:
        program: A hash of it.
        cycles: The estimate.
        temp_bytes: Temporaries in HBM.
        argument_bytes: Inputs and weights.
        fails: Why it could not be compiled; "" if it could.
    """

    program: str
    cycles: int = 0
    temp_bytes: int = 0
    argument_bytes: int = 0
    fails: str = ""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured of one model.

    Attributes:
        model: Its name.
        versions: Of what made and compiled the programs.
        whole: With all passes.
        without: Without each pass, by its name.
        precisions: In each precision, by the mode.
    """

    model: str
    versions: Mapping[str, str]
    whole: Figures
    without: Mapping[str, Figures] = field(default_factory=dict)
    precisions: Mapping[str, Figures] = field(default_factory=dict)


class Laboratory:
    """Compiles one model in many ways."""

    def __init__(self, model: Model, estimator: LibtpuEstimator, folder: Path) -> None:
        """Lowers the model.

        Args:
            model: The model.
            estimator: Answers passes that ask.
            folder: Where figures of programs are kept.
        """
        self._model = model
        self._estimator = estimator
        self._folder = folder
        self._lowered = _lower(model)
        self._compiler: Worker | None = None

    def measure(self, notify: Callable[[str], None]) -> Measured:
        """Compiles with all passes, without each of them, and in each precision."""
        whole = self._figures(PIPELINE)
        notify(f"{self._model.name}: {whole.cycles:,}")
        without = {}
        for name in _TAKEN_OUT:
            without[name] = self._figures([each for each in PIPELINE if each.name != name])
            notify(f"{self._model.name} without {name}: {without[name].fails or f'{without[name].cycles:,}'}")
        precisions = {}
        for mode in MODES:
            asked = [Precision(mode=mode) if isinstance(each, Precision) else each for each in PIPELINE]
            precisions[mode] = self._figures(asked)
            notify(f"{self._model.name} in {mode}: {precisions[mode].cycles:,}")
        self._close()
        versions = {package: version(package) for package in _PACKAGES}
        return Measured(model=self._model.name, versions=versions, whole=whole, without=without, precisions=precisions)

    def _figures(self, passes: Sequence[Pass]) -> Figures:
        with mlir.make_context() as context:
            module = self._lowered.module(TARGET.platform, context)
            try:
                run_passes(module, passes, TARGET, estimator=self._estimator)
                _strip(module)
                program = take_apart(module).main
            except (PassError, jax.errors.JaxRuntimeError):
                return Figures(program="", fails="a pass fails, or what is left is no portable StableHLO")
        key = hashlib.sha256(f"{TARGET} {version('libtpu')} ".encode() + program).hexdigest()[:32]
        kept = self._folder / f"{key}.json"
        if kept.is_file():
            return Figures(**json.loads(kept.read_bytes()))
        found = self._compile(program, key)
        with replacing(kept) as replacement:
            replacement.file.write(json.dumps(asdict(found)).encode())
        return found

    def _compile(self, program: bytes, key: str) -> Figures:
        if self._compiler is None:
            self._compiler = start_worker(TARGET)
        try:
            executable = compile_in(self._compiler, program, TARGET)
        except TpucError as error:
            self._close()
            return Figures(program=key, fails=error.what.splitlines()[0])
        return Figures(
            program=key,
            cycles=count_cycles(executable.hlo, TARGET.chip).total,
            temp_bytes=executable.memory["temp"],
            argument_bytes=executable.memory["argument"],
        )

    def _close(self) -> None:
        if self._compiler is not None:
            self._compiler.close()
            self._compiler = None


def _lower(model: Model) -> stablehlo.Lowered:
    module, inputs = model.example()
    with Worker(stablehlo.WORKER) as torch_mlir, fake_weights(module), torch.no_grad():
        return stablehlo.lower(capture(export(module, (), dict(inputs))), torch_mlir, {TARGET.platform})


def _strip(module: ir.Module) -> None:
    """Takes source locations away: programs that differ in them alone are the same."""
    mlir.run_pipeline(module, "strip-debuginfo")


def reasons() -> dict[str, list[str]]:
    """What passes/__init__.py says of the place of each pass in the pipeline, by the pass's name."""
    source = inspect.getsource(tpuc.passes)
    lines = re.findall(r"^    (\w+)\(.*?\),(?:  # (.*))?$", source, re.MULTILINE)
    classes = {each.__name__: name for name, each in PASSES.items()}
    found: dict[str, list[str]] = {name: [] for name in PASSES}
    for name, reason in lines:
        if name in classes and reason:
            found[classes[name]].append(reason)
    return found


def report(measured: Sequence[Measured]) -> str:
    """Writes the whole document."""
    models = [(model, each) for model in MODELS for each in measured if each.model == model.name]
    versions = {f"{package} {number}" for each in measured for package, number in each.versions.items()}
    parts = [
        _HEAD,
        f"Measured with {', '.join(sorted(versions))}.\n",
        markdown_table(
            ("column", "model", "cycles", "temporaries", "arguments"),
            [(model.name, model.title, f"{each.whole.cycles:,}", *_sizes(each.whole)) for model, each in models],
        ),
        "## The passes, in their order\n",
        markdown_table(("", "pass", "what it does", "why it stands there"), list(_passes())),
        "## What each buys\n",
        _BOUGHT,
        markdown_table(
            ("without", *(model.name for model, _ in models)),
            [(f"`{name}`", *(_cell(each.without.get(name), each.whole) for _, each in models)) for name in _TAKEN_OUT],
        ),
        "## What each precision buys\n",
        _PRECISIONS,
        markdown_table(
            ("precision", *(model.name for model, _ in models)),
            [
                (f"`{mode}`", *(_precision_cell(each.precisions.get(mode), each.whole) for _, each in models))
                for mode in MODES
            ],
        ),
    ]
    return "\n".join(parts)


_HEAD = """\
# The passes

What each pass does, why it stands where it does, and what it buys; written by `make bench-passes`. Do not edit.

All figures are libtpu's own estimates for one v5e; nothing was run. What a program prepares from weights before it runs
is not counted.
"""

_BOUGHT = """\
Cycles without the pass, as a multiple of those with all passes; then the temporaries that come to it or go, if they do.
`-`: the program is the same without it. More than 1 is what the pass buys. A pass that a later one takes the place of,
such as one of two that reshape, shows less here than it does.
"""

_PRECISIONS = """\
`--precision`, as a multiple of the cycles of `f32`, with the bytes of weights and inputs. What is fetched from HBM
while something else is computed does not stand in the compiler's estimate; what smaller weights save there comes on
top.
"""


def _passes() -> Iterator[tuple[str, ...]]:
    why = {name: list(found) for name, found in reasons().items()}
    for number, each in enumerate(PIPELINE, start=1):
        doc = type(each).__doc__ or ""
        reason = why[each.name].pop(0) if why[each.name] else ""
        yield str(number), f"`{each.name}`", " ".join(doc.split("\n\n")[0].split()), reason


def _cell(figures: Figures | None, whole: Figures) -> str:
    if figures is None:
        return "not measured"
    if figures.fails:
        return "does not compile"
    if figures.program == whole.program:
        return "-"
    text = f"{figures.cycles / whole.cycles:.3f}"
    more = figures.temp_bytes - whole.temp_bytes
    return text if abs(more) < 1 << 14 else f"{text}, {more / (1 << 20):+.1f} MiB"


def _precision_cell(figures: Figures | None, whole: Figures) -> str:
    if figures is None:
        return "not measured"
    if figures.fails:
        return "does not compile"
    return f"{figures.cycles / whole.cycles:.3f}, {figures.argument_bytes / (1 << 20):,.0f} MiB"


def _sizes(figures: Figures) -> tuple[str, str]:
    return f"{figures.temp_bytes / (1 << 20):.1f} MiB", f"{figures.argument_bytes / (1 << 20):,.0f} MiB"


def read_measured() -> list[Measured]:
    """Reads what has been measured, of all models."""
    if not FIGURES.is_file():
        return []
    found = []
    for fields in json.loads(FIGURES.read_bytes()):
        tables = {
            key: {name: Figures(**each) for name, each in fields[key].items()} for key in ("without", "precisions")
        }
        found.append(Measured(**{**fields, **tables, "whole": Figures(**fields["whole"])}))
    return found


def _keep(measured: Measured) -> None:
    """Puts figures of a model in the place of older ones."""
    others = [each for each in read_measured() if each.model != measured.model]
    with replacing(FIGURES) as replacement:
        replacement.file.write(json.dumps(list(map(asdict, [*others, measured])), indent=1).encode() + b"\n")


@click.command()
@click.option(
    "--model",
    "names",
    multiple=True,
    type=click.Choice([model.name for model in MODELS]),
    help="Only this model; may be given several times.",
)
@click.option("--only-write", is_flag=True, help="Write docs/passes.md from what was measured before.")
def main(names: Sequence[str], only_write: bool) -> None:
    """Measure every pass on every model."""
    ignore_known_warnings()
    _KEPT.mkdir(parents=True, exist_ok=True)
    chosen = [] if only_write else [model for model in MODELS if not names or model.name in names]
    with LibtpuEstimator(TARGET, cache=Caches.of_user().estimates) as estimator:
        for model in chosen:
            _keep(Laboratory(model, estimator, _KEPT).measure(lambda text: print(text, file=sys.stderr)))
    measured = read_measured()
    with replacing(DOCUMENT) as replacement:
        replacement.file.write(report(measured).encode())
    columns = (Column(key="pass", title="without"), *(Column(key=each.model, title=each.model) for each in measured))
    rows = [
        {"pass": name} | {each.model: _cell(each.without.get(name), each.whole) for each in measured}
        for name in _TAKEN_OUT
    ]
    sys.exit(publish("passes", Result(title="Cycles without each pass, v5e", columns=columns, rows=rows)))


if __name__ == "__main__":
    main()
