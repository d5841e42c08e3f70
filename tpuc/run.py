"""`tpuc run`: an artifact on inputs from files, or made up; prints what comes out.

Imports NumPy and the runtime only, so that a run starts in a fraction of a second.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from tpuc.errors import ArtifactError, InputError, RequestError
from tpuc.runtime import Program, TensorSpec, load
from tpuc.runtime.dtypes import Array
from tpuc.runtime.files import is_no_room, replacing


def run_artifact(
    path: Path,
    *,
    inputs: Sequence[str] = (),
    random: int | None = None,
    seed: int | None = None,
    device: str = "cpu",
    weights: Path | None = None,
    output: Path | None = None,
    repeat: int = 1,
    recompile: bool = True,
    notify: Callable[[str], None],
) -> Iterator[str]:
    """Runs an artifact, and yields the lines to print.

    Args:
        path: The artifact.
        inputs: `NAME=FILE`, or `FILE` where it has the names itself (.npz, .safetensors) or there is one input.
        random: The seed from which inputs that no file gives are made up; None means that all must be given.
        seed: The seed of the random numbers that the program itself draws; 0 if None.
        device: `cpu`, `tpu`, `tpu:LIBTPU` or `plugin:PATH`.
        weights: The weights of an artifact without.
        output: A .npz file for the outputs.
        repeat: How often to run.
        recompile: Whether the program may be compiled here where its executable is another compiler's.
        notify: Is told what the user should know.

    Raises:
        TpucError: The artifact, the inputs or the device do not do.
    """
    with load(path, device=device, weights=weights, recompile=recompile, notify=notify) as program:
        given = _gather(inputs, program.inputs)
        values = {spec.name: _value(spec, given, random) for spec in program.inputs}
        outputs, seconds = _run(program, {**values, **given}, seed, repeat)
    for spec in program.outputs:
        yield _describe(spec, outputs[spec.name])
    if repeat > 1:
        yield _latency(seconds)
    if output is not None:
        _save(output, outputs)


def _run(
    program: Program, values: dict[str, Array], seed: int | None, repeat: int
) -> tuple[dict[str, Array], list[float]]:
    seconds = []
    outputs: dict[str, Array] = {}
    for _ in range(repeat):
        start = time.perf_counter()
        outputs = program.run(values, seed=seed)
        seconds.append(time.perf_counter() - start)
    return outputs, seconds


def _gather(texts: Sequence[str], specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Reads the files that the user named, by input name."""
    names = [spec.name for spec in specs]
    found: dict[str, Array] = {}
    for text in texts:
        name, file = _split(text, names)
        arrays = _read(file)
        if name:
            arrays = {name: _only(arrays, file)}
        elif "" in arrays:
            if len(names) != 1:
                raise RequestError(
                    f"{file} holds one array, and the program takes {', '.join(names) or 'no inputs'}",
                    hint=f"Name it: --input NAME={file}",
                )
            arrays = {names[0]: arrays[""]}
        found |= arrays
    return found


def _split(text: str, names: Sequence[str]) -> tuple[str, Path]:
    name, equals, file = text.partition("=")
    if equals and (name in names or not Path(text).exists()):
        return name, Path(file)
    return "", Path(text)


def _read(file: Path) -> dict[str, Array]:
    """Reads a file of arrays; a .npy file's only array has the name ""."""
    try:
        match file.suffix:
            case ".npy":
                return {"": np.load(file, allow_pickle=False)}
            case ".npz":
                with np.load(file, allow_pickle=False) as archive:
                    return dict(archive)
            case ".safetensors":
                return dict(load_file(file))
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror or error}") from error
    except (ValueError, EOFError, SafetensorError) as error:
        raise InputError(f"{file} is not a {file.suffix} file that can be read: {error}") from error
    raise RequestError(f"{file}: inputs are .npy, .npz or .safetensors files")


def _only(arrays: dict[str, Array], file: Path) -> Array:
    if len(arrays) != 1:
        raise RequestError(f"{file} holds {len(arrays)} arrays: {', '.join(arrays)}", hint="Give it without a name.")
    return next(iter(arrays.values()))


def _value(spec: TensorSpec, given: dict[str, Array], seed: int | None) -> Array:
    if spec.name in given:
        return given[spec.name]
    if seed is None:
        raise InputError(
            f"the input {spec} is missing", hint=f"Give --input {spec.name}=FILE, or --random SEED to make it up."
        )
    return random_input(spec, seed)


def random_input(spec: TensorSpec, seed: int) -> Array:
    """Makes an array up: normal floats; 0 or 1 for integers and bools, which are valid indices, masks and flags.

    Each input has numbers of its own for one seed.
    """
    generator = np.random.default_rng([seed, *spec.name.encode()])
    dtype = spec.type.numpy
    if dtype.kind in "biu":
        return generator.integers(0, 2, spec.shape).astype(dtype)
    values = generator.standard_normal(spec.shape)
    if dtype.kind == "c":
        return (values + 1j * generator.standard_normal(spec.shape)).astype(dtype)
    return values.astype(dtype)


def _describe(spec: TensorSpec, array: Array) -> str:
    """One line: `logits f32[1,1000] min -1.2 mean 0.1 max 3.4`; a complex array by its magnitudes."""
    if array.size == 0:
        return f"{spec.name} {spec.dtype}{list(array.shape)} empty"
    wide = np.abs(array) if array.dtype.kind == "c" else array.astype(np.float64)
    shape = ",".join(map(str, array.shape))
    return f"{spec.name} {spec.dtype}[{shape}] min {wide.min():.6g} mean {wide.mean():.6g} max {wide.max():.6g}"


def _latency(seconds: Sequence[float]) -> str:
    first, *rest = (second * 1e3 for second in seconds)
    return (
        f"latency over {len(rest)} runs after the first: median {statistics.median(rest):.3f} ms, "
        f"min {min(rest):.3f} ms, max {max(rest):.3f} ms; the first {first:.3f} ms"
    )


def _save(path: Path, outputs: dict[str, Array]) -> None:
    if path.suffix != ".npz":
        raise RequestError(f"{path}: outputs are written as .npz")
    try:
        with replacing(path) as replacement:
            np.savez(
                replacement.file, allow_pickle=False, **{name: _storable(array) for name, array in outputs.items()}
            )
    except OSError as error:
        reason = "there is no room" if is_no_room(error) else error.strerror
        raise ArtifactError(f"cannot write {path}: {reason}") from error


def _storable(array: Array) -> Array:
    # NumPy's format has no bf16 or f8; f32 holds all their values.
    return array if array.dtype.isbuiltin == 1 else array.astype(np.float32)
