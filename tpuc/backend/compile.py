"""Compiles a StableHLO program for a target: an executable, its optimized HLO and what it needs."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from tpuc.errors import BackendError, HbmOverflowError, RequestError
from tpuc.runtime.cache import Cache, cache_key
from tpuc.runtime.host import host_fingerprint
from tpuc.targets import Target
from tpuc.worker import Blobs, Fields, Worker, read_message, write_message

WORKER = "tpuc.backend.xla_worker"

#: Another number for other compile options in the worker, or another form of what is kept.
_CACHE_VERSION = 3
#: Variables that the compilers read options from.
_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
_logger = logging.getLogger(__name__)

_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TPU_MIN_LOG_LEVEL": "3", "TPU_STDERR_LOG_LEVEL": "3"}
#: libtpu looks for the TPU host that it believes to be on; these keep it from asking, and from taking the lock that
#: lets one process at a time use a TPU.
_COMPILE_ONLY = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
_OVERFLOW = re.compile(r"Ran out of memory.*?\(([\d.]+)([KMGT]?)\) exceeds available \w+ \(([\d.]+)([KMGT]?)\)", re.S)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


@dataclass(frozen=True, kw_only=True)
class Executable:
    """What a compiler made of a program.

    Attributes:
        target: What it runs on.
        serialized: The executable, as its PJRT plugin loads it.
        hlo: The optimized HLO, as text.
        memory: Bytes by kind: `argument`, `output`, `alias`, `temp`, `code`.
        compiler: Versions of what made it: `platform_version`, and `jaxlib`.
        host: For the CPU, the machine whose instructions it uses; "" for a TPU.
        is_cached: Whether it was compiled earlier.
        disabled_pass: A pass of the compiler's that fails on the program, and was left out.
    """

    target: Target
    serialized: bytes
    hlo: str
    memory: Mapping[str, int]
    compiler: Mapping[str, str]
    host: str
    is_cached: bool = False
    disabled_pass: str = ""


def compile_program(
    program: bytes,
    target: Target,
    *,
    libtpu: Path | None = None,
    worker: Worker | None = None,
    cache: Cache | None = None,
    share_code: bool = True,
) -> Executable:
    """Compiles a program in a process of its own.

    Args:
        program: A StableHLO portable artifact.
        target: The CPU of this machine, or a TPU chip.
        libtpu: The libtpu to compile with; None takes the installed one. Ignored for the CPU.
        worker: A process that `start_worker` started for the target before; it is closed in the end.
        cache: Where it is looked for first, and kept; None compiles in any case, and keeps nothing.
        share_code: Whether libtpu is asked to keep the code of equal operations once, as it does not by itself.

    Raises:
        HbmOverflowError: The program does not fit the chip.
        BackendError: The compiler refused the program.
        CrashError: The compiler ended its process.
        RequestError: There is no libtpu.
    """
    key = "" if cache is None else compile_key(program, target, libtpu, share_code=share_code)
    kept = None if cache is None else cache.read(key)
    if kept is not None and (answer := read_message(io.BytesIO(kept))) is not None:
        if worker is not None:
            worker.close()
        return replace(_executable(target, *answer), is_cached=True)
    with worker or start_worker(target) as compiler:
        fields, blobs = _compile_in(compiler, program, target, libtpu, None, share_code=share_code)
    if cache is not None:
        _keep(cache, key, fields, blobs)
    return _executable(target, fields, blobs)


def keep_executable(executable: Executable, program: bytes, cache: Cache) -> None:
    """Keeps what the installed libtpu made of a program, as `compile_program` would have."""
    fields = {
        "memory": dict(executable.memory),
        "platform_version": executable.compiler["platform_version"],
        "jaxlib": executable.compiler["jaxlib"],
        "host": executable.host,
        "disabled_pass": executable.disabled_pass,
    }
    blobs = {"executable": executable.serialized, "hlo": executable.hlo.encode()}
    _keep(cache, compile_key(program, executable.target), fields, blobs)


def _keep(cache: Cache, key: str, fields: Fields, blobs: Blobs) -> None:
    entry = io.BytesIO()
    write_message(entry, fields, blobs)
    try:
        cache.write(key, entry.getvalue())
    except OSError as error:
        _logger.warning("an executable is not kept: %s", error)


def compile_key(program: bytes, target: Target, libtpu: Path | None = None, *, share_code: bool = True) -> str:
    """Names what a compiler makes of a program, by all that it depends on; for the rest see `compile_program`."""
    flags = [os.environ.get(name, "") for name in _FLAGS]
    common = [_CACHE_VERSION, hashlib.sha256(program).hexdigest(), str(target), version("jaxlib"), flags]
    if target.chip is None:
        return cache_key(*common, host_fingerprint())
    common.append(share_code)
    if libtpu is None:
        return cache_key(*common, version("libtpu"))
    state = libtpu.stat()
    return cache_key(*common, str(libtpu.resolve()), state.st_size, state.st_mtime_ns)


def start_worker(target: Target) -> Worker:
    """Starts a process that compiles for a target, with one libtpu; it may compile several programs."""
    env = {**_QUIET, **_COMPILE_ONLY, "TPU_ACCELERATOR_TYPE": target.chip.accelerator_type} if target.chip else _QUIET
    return Worker(WORKER, env=env)


def compile_in(
    worker: Worker, program: bytes, target: Target, *, libtpu: Path | None = None, timeout: float | None = None
) -> Executable:
    """Compiles a program in a process that `start_worker` started; see `compile_program`.

    Raises:
        CrashError: Also where the compiler has not come back after `timeout` seconds, if that is given.
    """
    return _executable(target, *_compile_in(worker, program, target, libtpu, timeout, share_code=True))


def _compile_in(
    worker: Worker,
    program: bytes,
    target: Target,
    libtpu: Path | None,
    timeout: float | None,
    *,
    share_code: bool,
) -> tuple[Fields, Blobs]:
    """Compiles, and returns the worker's answer."""
    fields: Fields = {"do": "compile_cpu"}
    if target.chip is not None:
        path = str(libtpu or installed_libtpu())
        fields = {"do": "compile_tpu", "libtpu": path, "topology": target.chip.topology, "share_code": share_code}
    try:
        return worker.call(fields, {"program": program}, what=f"the compile for {target}", timeout=timeout)
    except BackendError as error:
        raise _explain(error, target) from error


def _executable(target: Target, answer: Fields, blobs: Blobs) -> Executable:
    return Executable(
        target=target,
        serialized=blobs["executable"],
        hlo=blobs["hlo"].decode(),
        memory=answer["memory"],
        compiler={"platform_version": answer["platform_version"], "jaxlib": answer["jaxlib"]},
        host=answer["host"],
        disabled_pass=answer["disabled_pass"],
    )


def installed_libtpu() -> Path:
    """Returns the library of the installed libtpu package.

    Raises:
        RequestError: It is not installed.
    """
    spec = importlib.util.find_spec("libtpu")
    if spec is None or not spec.submodule_search_locations:
        raise RequestError(
            "libtpu is not installed", hint="Install it with `pip install 'tpuc[compile]'`, or give --libtpu PATH."
        )
    return Path(spec.submodule_search_locations[0]) / "libtpu.so"


def _explain(error: BackendError, target: Target) -> BackendError:
    overflow = _OVERFLOW.search(error.what)
    if overflow is None:
        return BackendError(f"the compiler refused the program for {target}: {error.what}")
    needed, available = (
        int(float(number) * 2 ** _UNITS[unit]) for number, unit in (overflow.group(1, 2), overflow.group(3, 4))
    )
    return HbmOverflowError(
        f"the program needs {needed:,} bytes of HBM, and one {target} has {available:,}",
        needed=needed,
        available=available,
        hint="Smaller shapes, half the precision (bf16), or a chip with more HBM (`tpuc targets`) would help.",
    )
