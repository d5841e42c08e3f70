"""Small programs and artifacts that the tests of the runtime share."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxlib import _jax
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, stablehlo

from tpuc.runtime.artifact import SectionData, write_artifact
from tpuc.runtime.device import Device
from tpuc.runtime.dtypes import dtype_of
from tpuc.runtime.executables import result_specs
from tpuc.runtime.manifest import (
    Argument,
    Entry,
    ExecutableInfo,
    Manifest,
    ModelInfo,
    ProgramInfo,
    Result,
    StateInfo,
    WeightInfo,
)
from tpuc.runtime.spec import TensorSpec
from tpuc.runtime.structure import DictNode, InputStructure, Leaf, TupleNode

#: A StableHLO version that the plugin of the package xla-cpu-pjrt (StableHLO 1.13) reads too.
OLD_STABLEHLO = "1.13.0"

#: y = x @ w + count, and count goes up by the sum of step.
COUNTER = """
module @counter {
  func.func public @main(
      %w: tensor<4x3xf32>, %count: tensor<f32> {tf.aliasing_output = 0 : i32}, %x: tensor<2x4xf32>, %step: tensor<i32>
  ) -> (tensor<f32>, tensor<2x3xf32>) {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
    %1 = stablehlo.broadcast_in_dim %count, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %2 = stablehlo.add %0, %1 : tensor<2x3xf32>
    %3 = stablehlo.convert %step : (tensor<i32>) -> tensor<f32>
    %4 = stablehlo.add %count, %3 : tensor<f32>
    return %4, %2 : tensor<f32>, tensor<2x3xf32>
  }
}
"""

WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3)
INPUT = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def make_context() -> ir.Context:
    """Makes a context with the dialects that XLA reads."""
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (stablehlo, chlo):
        dialect.register_dialect(context)
    return context


def portable(text: str, version: str = OLD_STABLEHLO) -> bytes:
    """Turns StableHLO text into a portable artifact."""
    bytecode = io.BytesIO()
    ir.Module.parse(text, make_context()).operation.write_bytecode(bytecode)
    return bytes(_jax.mlir.serialize_portable_artifact(bytecode.getvalue(), version))


def positional(count: int, names: Sequence[str] = ()) -> InputStructure:
    """Describes a call with positional tensors only."""
    items = tuple(Leaf(index=number) for number in range(count))
    return InputStructure(args=TupleNode(items=items), kwargs=DictNode(items=()), names=tuple(names))


def simple_manifest(inputs: Sequence[str], outputs: Sequence[str], **changes: Any) -> Manifest:
    """Describes a program that takes and returns tensors, given as specs."""
    taken = tuple(map(TensorSpec.parse, inputs))
    returned = tuple(map(TensorSpec.parse, outputs))
    entry = Entry(
        name="main",
        programs=(
            ProgramInfo(
                section="program/main",
                serves=("any",),
                arguments=tuple(Argument(kind="input", name=spec.name) for spec in taken),
                results=tuple(Result(kind="output", name=spec.name) for spec in returned),
            ),
        ),
    )
    manifest = Manifest(
        model=ModelInfo(name="simple", source="simple.py", parameters=0),
        producer={"tpuc": "0.1.0"},
        fingerprint="0" * 16,
        weights_mode="embed",
        weights=(),
        inputs=taken,
        outputs=returned,
        input_structure=positional(len(taken), [spec.name for spec in taken]),
        output_structure=TupleNode(items=tuple(Leaf(index=number) for number in range(len(returned)))),
        entries=(entry,),
    )
    return replace(manifest, **changes)


def counter_manifest(**changes: Any) -> Manifest:
    """Describes COUNTER."""
    program = ProgramInfo(
        section="program/main",
        serves=("any",),
        arguments=(
            Argument(kind="weight", name="linear.weight"),
            Argument(kind="state", name="count"),
            Argument(kind="input", name="x"),
            Argument(kind="input", name="step"),
        ),
        results=(Result(kind="state", name="count"), Result(kind="output", name="y")),
    )
    entry = Entry(name="main", programs=(program,))
    weight = WeightInfo(
        name="linear.weight", dtype="f32", dims=(4, 3), section="weights/linear.weight", origin="parameter"
    )
    manifest = simple_manifest(
        ["x=f32[2,4]", "step=i32[]"],
        ["y=f32[2,3]"],
        model=ModelInfo(name="counter", source="counter.py:Counter", parameters=12),
        options={"shapes": "x=f32[2,4] step=i32[]"},
        weights=(weight,),
        state=(StateInfo(name="count", dtype="f32", dims=(), section="state/count"),),
        output_structure=Leaf(index=0),
        entries=(entry,),
    )
    return replace(manifest, **changes)


def extended(manifest: Manifest, *, first: Sequence[Argument] = (), last: Sequence[Argument] = ()) -> Manifest:
    """Adds arguments to the one program of a manifest."""
    (entry,) = manifest.entries
    (program,) = entry.programs
    program = replace(program, arguments=(*first, *program.arguments, *last))
    return replace(manifest, entries=(replace(entry, programs=(program,)),))


def counter_sections() -> dict[str, SectionData]:
    """Makes the sections of COUNTER: no executable."""
    return {
        "program/main": portable(COUNTER),
        "weights/linear.weight": WEIGHT,
        "state/count": np.array(10, np.float32),
    }


def write_counter(path: Path, device: Device | None = None, **changes: Any) -> Path:
    """Writes COUNTER, with an executable for a device if one is given."""
    manifest, sections = counter_manifest(**changes), counter_sections()
    if device is not None:
        manifest, sections = with_executable(manifest, sections, device)
    write_artifact(path, manifest, sections)
    return path


def with_executable(
    manifest: Manifest, sections: Mapping[str, SectionData], device: Device, **changes: Any
) -> tuple[Manifest, dict[str, SectionData]]:
    """Adds the executable that a device's compiler makes."""
    (entry,) = manifest.entries
    program = sections["program/main"]
    assert isinstance(program, bytes)
    executable = device.compile(program, result_specs(manifest, entry, entry.programs[0]))
    info = ExecutableInfo(
        section=f"executable/{device.target}",
        program="program/main",
        target=device.target,
        platform="tpu" if device.platform == "tpu" else "cpu",
        compiler=dict(device.compiler),
        host=device.host,
        memory=executable.memory(),
    )
    changed = replace(manifest, entries=(replace(entry, executables=(replace(info, **changes),)),))
    return changed, {**sections, info.section: executable.serialize()}


def write_simple(path: Path, text: str, inputs: Sequence[str], outputs: Sequence[str], **changes: Any) -> Path:
    """Writes a program without weights or state, from StableHLO text."""
    write_artifact(path, simple_manifest(inputs, outputs, **changes), {"program/main": portable(text)})
    return path


def plugin_folder() -> Path:
    """Finds the package xla-cpu-pjrt, which holds a plugin and the header it was built with."""
    spec = importlib.util.find_spec("xla_plugins.xla_cpu_pjrt")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def plugin_device_name() -> str:
    """Names the device behind the plugin of the package xla-cpu-pjrt."""
    return f"plugin:{plugin_folder() / 'xla_cpu_pjrt.so'}"


def sample_array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[Any]]:
    """Makes an array of small numbers of an element type."""
    count = int(np.prod(shape))
    array = (np.arange(count) % (2 if dtype == np.bool_ else 7)).astype(dtype).reshape(shape)
    assert dtype_of(array).numpy == dtype
    return array
