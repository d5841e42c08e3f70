"""The manifest of an artifact: what its programs take, hold and return, and how they were made.

The types here are the manifest; `decode_manifest` and `encode_manifest` turn them from and to JSON. A dataclass is an
object with a key for each field, a tuple is an array; a key that is missing takes the field's default, and one that
is unknown is an error, like everything else that does not fit. FORMAT.md says where the manifest stands in the file.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tpuc.runtime.dtypes import DTYPES
from tpuc.runtime.errors import ArtifactError, InputError
from tpuc.runtime.sizes import SizeExpr, SizeRange
from tpuc.runtime.spec import TensorSpec
from tpuc.runtime.structure import InputStructure, Node, leaves, node_from_json, node_to_json

Platform = Literal["cpu", "tpu"]
#: What a program's argument is. A seed is i64 without dimensions, from which all random numbers are derived. A size is
#: i32 without dimensions: what a named size truly is in this call.
ArgumentKind = Literal["weight", "prepared", "state", "input", "seed", "size"]
ResultKind = Literal["state", "output"]
WeightsMode = Literal["embed", "external", "none"]
WeightOrigin = Literal["parameter", "buffer", "constant"]


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """The model that was compiled.

    Attributes:
        name: A short name.
        source: What `tpuc compile` was given, so that it can be given again: `model.py:Net`.
        parameters: How many numbers its weights hold.
    """

    name: str
    source: str
    parameters: int


@dataclass(frozen=True, kw_only=True)
class WeightInfo:
    """One weight.

    Attributes:
        name: Its name in the model: `layers.0.attn.q_proj.weight`.
        dtype: Its element type.
        dims: Its dimensions.
        section: The section that holds it, in the artifact or, with `weights_mode` external, in the weights file;
            None if whoever loads the artifact must bring it.
        origin: What it is in the model.
        persistent: Whether a checkpoint of the model holds it.
    """

    name: str
    dtype: str
    dims: tuple[int, ...]
    section: str | None
    origin: WeightOrigin
    persistent: bool = True

    @property
    def spec(self) -> TensorSpec:
        """The weight as a tensor spec."""
        return TensorSpec(name=self.name, dtype=self.dtype, dims=self.dims)


@dataclass(frozen=True, kw_only=True)
class PreparedInfo:
    """One tensor that is computed from weights alone: when the artifact is made, or else when it is loaded.

    Attributes:
        name: Its name, which no weight has.
        dtype: Its element type.
        dims: Its dimensions.
        program: The section of the portable StableHLO that computes it.
        sources: The weights that this program takes, in order.
        section: The section that holds the value; None if it is computed when the artifact is loaded.
    """

    name: str
    dtype: str
    dims: tuple[int, ...]
    program: str
    sources: tuple[str, ...]
    section: str | None

    @property
    def spec(self) -> TensorSpec:
        """The prepared tensor as a tensor spec."""
        return TensorSpec(name=self.name, dtype=self.dtype, dims=self.dims)


@dataclass(frozen=True, kw_only=True)
class StateInfo:
    """One tensor that the program changes from call to call.

    Attributes:
        name: Its name in the model: `cache.keys`.
        dtype: Its element type.
        dims: Its dimensions.
        section: The section that holds its first value.
    """

    name: str
    dtype: str
    dims: tuple[int, ...]
    section: str

    @property
    def spec(self) -> TensorSpec:
        """The state as a tensor spec."""
        return TensorSpec(name=self.name, dtype=self.dtype, dims=self.dims)


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of a program.

    Attributes:
        kind: What it is.
        name: Which one.
    """

    kind: ArgumentKind
    name: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """One result of a program.

    Attributes:
        kind: A new value of a state, or an output.
        name: Which one.
    """

    kind: ResultKind
    name: str


@dataclass(frozen=True, kw_only=True)
class ProgramInfo:
    """One program in portable StableHLO.

    Attributes:
        section: The section that holds it.
        serves: The targets (`v5e`) and platforms (`tpu`) that it was made for; `any` stands for all others.
        arguments: What it takes, in order.
        results: What it returns, in order.
        masks: How many masks keep padding from what it computes.
        products: How many matrix products and convolutions it has, by the dtype that they multiply and the precision
            that the compiler is asked for: `{"bf16 default": 96, "f32 highest": 2}`. Kernels are not counted.
    """

    section: str
    serves: tuple[str, ...]
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    masks: int = 0
    products: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ExecutableInfo:
    """One compiled executable.

    Attributes:
        section: The section that holds it.
        program: The section of the program that it was compiled from.
        target: What it was compiled for: `cpu`, `v5e`.
        platform: The platform of that target.
        compiler: The exact build that made it: `{"jaxlib": "0.10.2"}`, `{"platform_version": "..."}`; see
            `Device.compiler`. Keys that a device does not name are for people.
        host: For the cpu, the machine whose instructions it uses; "" for others.
        memory: Bytes on the device, by kind: argument, output, alias, temp, code.
        estimated_cycles: The compiler's estimate for one run, or None.
    """

    section: str
    program: str
    target: str
    platform: Platform
    compiler: dict[str, str]
    host: str = ""
    memory: dict[str, int] = dataclasses.field(default_factory=dict)
    estimated_cycles: int | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry point, for one set of sizes: programs that compute the same, and what was compiled from them.

    Attributes:
        name: `main`.
        sizes: The greatest that each named size may be here; {} if there are none.
        programs: The programs; each target, each platform and `any` is served by one at most.
        executables: What was compiled from them.
    """

    name: str
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    programs: tuple[ProgramInfo, ...]
    executables: tuple[ExecutableInfo, ...] = ()

    def program(self, section: str) -> ProgramInfo:
        """Returns the program that a section holds."""
        return next(program for program in self.programs if program.section == section)

    def program_for(self, target: str, platform: str) -> ProgramInfo | None:
        """Returns the program that serves a target: made for it, for its platform, or for any; None if none does."""
        for served in (target, platform, "any"):
            for program in self.programs:
                if served in program.serves:
                    return program
        return None


@dataclass(frozen=True, kw_only=True)
class SectionInfo:
    """What must be true of a section: the SHA-256 of its bytes, in hex, and their number."""

    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything that an artifact says about itself.

    Attributes:
        byte_order: The byte order of all numbers.
        model: The model that was compiled.
        producer: The versions of what made the artifact: `{"tpuc": "0.1.0", ...}`.
        fingerprint: A hash of everything that the artifact depends on.
        options: The options of `tpuc compile` that matter to people, by name: `{"shapes": "x=f32[1,3]"}`. The targets
            need not stand there: the executables name them.
        weights_mode: Where the weights are: in the artifact, in a file beside it, or nowhere.
        weights: The weights, by the order of the model.
        prepared: What programs take that is computed from weights alone.
        weights_file: With `weights_mode` external, the name of the file beside the artifact.
        state: What the program changes from call to call.
        sizes: The named sizes in the dimensions of inputs and outputs, and what they may be.
        inputs: What a call takes, by number.
        outputs: What a call returns, by number.
        input_structure: How the inputs are nested.
        output_structure: How the outputs are nested.
        entries: The programs; with named sizes several of one name, a bucket each.
        sections: Size and hash of every section.
    """

    byte_order: Literal["little", "big"] = "little"
    model: ModelInfo
    producer: dict[str, str]
    fingerprint: str
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    weights_mode: WeightsMode
    weights: tuple[WeightInfo, ...]
    prepared: tuple[PreparedInfo, ...] = ()
    weights_file: str | None = None
    state: tuple[StateInfo, ...] = ()
    sizes: tuple[SizeRange, ...] = ()
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_structure: InputStructure
    output_structure: Node
    entries: tuple[Entry, ...]
    sections: dict[str, SectionInfo] = dataclasses.field(default_factory=dict)

    def entries_of(self, name: str = "main") -> tuple[Entry, ...]:
        """Returns the entries of one name: one, or one for each bucket of sizes.

        Raises:
            ArtifactError: There is none.
        """
        found = tuple(entry for entry in self.entries if entry.name == name)
        if not found:
            raise ArtifactError(f"the artifact has no entry {name!r}")
        return found

    def needed_weights(self, program: ProgramInfo) -> set[str]:
        """Names the weights that a program needs: those that it takes, and the sources of what must be prepared."""
        taken = {
            kind: {part.name for part in program.arguments if part.kind == kind} for kind in ("weight", "prepared")
        }
        computed = [info for info in self.prepared if info.section is None and info.name in taken["prepared"]]
        return taken["weight"].union(*(info.sources for info in computed))


def decode_manifest(value: object) -> Manifest:
    """Reads a manifest from parsed JSON, and checks that its parts agree.

    Raises:
        ArtifactError: Something does not fit; its place is named: `manifest.entries[0].name: expected a text, got 3`.
    """
    manifest: Manifest = _decode(Manifest, value, "manifest")
    for problem in _contradictions(manifest):
        raise ArtifactError(f"the manifest contradicts itself: {problem}")
    return manifest


def encode_manifest(manifest: Manifest) -> dict[str, Any]:
    """Writes a manifest as a value that `json.dumps` takes."""
    encoded: dict[str, Any] = _encode(manifest)
    return encoded


def _encode(value: Any) -> Any:
    match value:
        case InputStructure():
            return value.to_json()
        case _ if isinstance(value, Node):
            return node_to_json(value)
        case _ if dataclasses.is_dataclass(value):
            return {field.name: _encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case tuple():
            return [_encode(item) for item in value]
        case dict():
            return {key: _encode(item) for key, item in value.items()}
        case _:
            return value


def _decode(kind: Any, value: object, where: str) -> Any:
    """Reads a value as a type: a dataclass, tuple[X, ...], dict[K, X], Literal, union, text, int or structure."""
    if kind is InputStructure:
        return InputStructure.from_json(value, where)
    if kind == Node:
        return node_from_json(value, where)
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, where)
    origin, parameters = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return tuple(
            _decode(parameters[0], item, f"{where}[{number}]")
            for number, item in enumerate(_expect(list, value, "an array", where))
        )
    if origin is dict:
        items = _expect(dict, value, "an object", where).items()
        return {
            _decode(parameters[0], key, where): _decode(parameters[1], item, f"{where}.{key}") for key, item in items
        }
    if origin is Literal:
        if value not in parameters or not isinstance(value, str):
            raise ArtifactError(f"{where}: expected one of {', '.join(parameters)}, got {value!r}")
        return value
    if origin is types.UnionType:
        return _decode_union(parameters, value, where)
    return _expect(kind, value, _NAMES[kind], where)


_NAMES = {str: "a text", int: "a number", bool: "true or false", types.NoneType: "null"}


def _expect(kind: Any, value: object, name: str, where: str) -> Any:
    if type(value) is not kind:
        shown = repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
        raise ArtifactError(f"{where}: expected {name}, got {shown}")
    return value


def _decode_union(choices: tuple[Any, ...], value: object, where: str) -> Any:
    # The unions of the manifest are of plain types only, so the value's own type decides.
    if type(value) not in choices:
        raise ArtifactError(f"{where}: expected {' or '.join(_NAMES[choice] for choice in choices)}, got {value!r}")
    return value


def _decode_dataclass(kind: Any, value: object, where: str) -> Any:
    given = _expect(dict, value, "an object", where)
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in given:
        if name not in fields:
            raise ArtifactError(f"{where}: unknown key {name!r}")
    for name, field in fields.items():
        no_default = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if name not in given and no_default:
            raise ArtifactError(f"{where}: the key {name!r} is missing")
    return kind(**{name: _decode(hints[name], item, f"{where}.{name}") for name, item in given.items()})


def _contradictions(manifest: Manifest) -> Iterator[str]:
    """Yields what no reader could make sense of, although every part has the right type."""
    inputs, outputs = manifest.inputs, manifest.outputs
    named = {
        "weight": [weight.spec for weight in manifest.weights],
        "prepared": [prepared.spec for prepared in manifest.prepared],
        "state": [state.spec for state in manifest.state],
        "input": list(inputs),
        "output": list(outputs),
    }
    for kind, specs in named.items():
        yield from _bad_specs(kind, specs)
    arguments = manifest.input_structure
    numbers = sorted([*leaves(arguments.args), *leaves(arguments.kwargs)])
    if numbers != list(range(len(inputs))):
        yield f"the input structure does not hold each of the {len(inputs)} inputs once"
    if set(leaves(manifest.output_structure)) != set(range(len(outputs))):
        yield f"the output structure does not hold each of the {len(outputs)} outputs"
    if len({(entry.name, *sorted(entry.sizes.items())) for entry in manifest.entries}) != len(manifest.entries):
        yield "two entries have the same name and sizes"
    yield from _bad_sizes(manifest)
    known = {kind: {spec.name for spec in specs} for kind, specs in named.items()}
    for prepared in manifest.prepared:
        for name in sorted(set(prepared.sources) - known["weight"]):
            yield f"{prepared.name} is prepared from the weight {name!r}, which there is not"
    for entry in manifest.entries:
        yield from _bad_entry(entry, known)
    yield from _bad_sections(manifest)


def _bad_specs(kind: str, specs: list[TensorSpec]) -> Iterator[str]:
    if len({spec.name for spec in specs}) != len(specs):
        yield f"two {kind}s have the same name"
    for spec in specs:
        if spec.dtype not in DTYPES:
            yield f"the {kind} {spec.name} has the unknown dtype {spec.dtype!r}"
        if any(isinstance(dim, int) and dim < 0 for dim in spec.dims):
            yield f"the {kind} {spec.name} has a negative dimension"


def _bad_sizes(manifest: Manifest) -> Iterator[str]:
    names = {each.name for each in manifest.sizes}
    if len(names) != len(manifest.sizes):
        yield "two sizes have the same name"
    told: set[str] = set()
    for spec in (*manifest.inputs, *manifest.outputs):
        for dim in filter(lambda dim: isinstance(dim, str), spec.dims):
            try:
                expression = SizeExpr.of(dim)
            except InputError:
                yield f"{spec.name} has the dimension {dim!r}, which is no size"
                continue
            if not expression.names <= names:
                yield f"{spec.name} has the dimension {dim}, of sizes that there are not"
            if spec in manifest.inputs and expression.linear is None:
                yield f"the dimension {dim} of the input {spec.name} does not tell a size"
            told |= expression.names if spec in manifest.inputs else set()
    if names - told:
        yield f"no input tells the size {min(names - told)}"
    for entry in manifest.entries:
        if entry.sizes.keys() != names:
            yield f"the entry {entry.name} has other sizes than the inputs"
        taken = {part.name for program in entry.programs for part in program.arguments if part.kind == "size"}
        if not taken <= names:
            yield f"the entry {entry.name} takes the size {min(taken - names)!r}, which there is not"


def _bad_entry(entry: Entry, known: dict[str, set[str]]) -> Iterator[str]:
    for program in entry.programs:
        parts: tuple[Argument | Result, ...] = (*program.arguments, *program.results)
        for part in parts:
            if part.name not in known.get(part.kind, {part.name}):
                yield f"the program {program.section} uses the {part.kind} {part.name!r}, which there is not"
        if len(set(parts)) != len(parts):
            yield f"the program {program.section} names an argument or a result twice"
    sections = [program.section for program in entry.programs]
    if len(set(sections)) != len(sections):
        yield f"the entry {entry.name} names a program twice"
    served = [name for program in entry.programs for name in program.serves]
    if len(set(served)) != len(served):
        yield f"the entry {entry.name} has two programs for the same target"
    for executable in entry.executables:
        if executable.program not in sections:
            yield f"the executable {executable.section} was compiled from a program that the entry lacks"


def _bad_sections(manifest: Manifest) -> Iterator[str]:
    used = [weight.section for weight in manifest.weights if weight.section is not None]
    used += [state.section for state in manifest.state]
    for prepared in manifest.prepared:
        used += [prepared.program] if prepared.section is None else [prepared.program, prepared.section]
    for entry in manifest.entries:
        used += [program.section for program in entry.programs]
        used += [executable.section for executable in entry.executables]
    for name in used:
        if name not in manifest.sections:
            yield f"the section {name} is used and not described"
    for name, section in manifest.sections.items():
        if section.size < 0 or len(section.sha256) != 64 or not set(section.sha256) <= set("0123456789abcdef"):
            yield f"the section {name} is described with an impossible size or hash"
    file = manifest.weights_file
    if (file is not None) != (manifest.weights_mode == "external"):
        yield "a weights file is named if and only if the weights are external"
    if file is not None and (file in ("", ".", "..") or any(part in file for part in "/\\\0")):
        yield f"the weights file {file!r} is not the bare name of a file"
