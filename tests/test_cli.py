"""The command line, as a person uses it: each command in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

_NET = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 8)

    def forward(self, x):
        return torch.tanh(self.proj(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([Block(), Block()])
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x, scale: float = 1.0):
        self.calls += 1
        for layer in self.layers:
            x = layer(x)
        return {"y": x * scale, "calls": self.calls.clone()}

net = Net()
"""


def tpuc(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command, with warnings as Python has them by default."""
    command = [sys.executable, "-m", "tpuc.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, text=True, capture_output=True, timeout=300, check=False)


def succeeds(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = tpuc(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and the artifact of it for cpu and two chips, with all IR."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "net.py").write_text(textwrap.dedent(_NET))
    done = succeeds(
        "compile", "net.py", "--shapes", "x=[4,8] scale=2.0", "--target", "cpu", "--target", "v5e", "--target", "v4",
        "-o", "net.bin", "--dump-ir", "ir", cwd=folder,
    )  # fmt: skip
    (folder / "stdout.txt").write_text(done.stdout)
    (folder / "stderr.txt").write_text(done.stderr)
    return folder


def test_compile_prints_stages_and_a_summary_and_nothing_else(folder: Path) -> None:
    assert (folder / "stdout.txt").read_text() == "net.bin\n"
    lines = (folder / "stderr.txt").read_text().splitlines()
    stages = ["load", "export", "lower", "passes", "compile", "write"]
    assert [line.split()[0] for line in lines[:6]] == stages
    assert lines[6].startswith("net: 144 parameters")
    assert [line.split()[0] for line in lines[7:11]] == ["target", "cpu", "v5e", "v4"]
    assert lines[11] == "cycles and time are the compiler's estimates; nothing was run"
    assert lines[12] == "note: took net from net.py"
    assert lines[13] == "note: put in inference mode (--training keeps the mode it has)"
    assert lines[14].startswith("load ")
    assert len(lines) == 15


def test_dump_ir_has_every_pass_and_every_targets_hlo(folder: Path) -> None:
    names = {str(path.relative_to(folder / "ir")) for path in (folder / "ir").rglob("*") if path.is_file()}
    for target in ("cpu", "v5e", "v4"):
        assert {f"{target}.hlo.txt", f"{target}/00-input.mlir", f"{target}/01-convert-arith.mlir"} <= names


@pytest.mark.parametrize("target", ["cpu", "v5e"])
def test_source_locations_reach_the_compiled_program(folder: Path, target: str) -> None:
    hlo = (folder / "ir" / f"{target}.hlo.txt").read_text()
    assert "layers.0.proj/linear" in hlo
    assert f'"{folder / "net.py"}"' in hlo or f'source_file="{folder / "net.py"}"' in hlo


def test_every_operation_has_a_location(folder: Path) -> None:
    text = (folder / "ir" / "v5e" / "00-input.mlir").read_text()
    operations = [line for line in text.splitlines() if " = stablehlo." in line or " = chlo." in line]
    assert operations
    assert not [line for line in operations if "loc(unknown)" in line or "loc(" not in line]


def test_run_gives_what_eager_gives(folder: Path) -> None:
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    np.save(folder / "x.npy", x)
    done = succeeds("run", "net.bin", "--input", "x.npy", "-o", "out.npz", "--repeat", "3", cwd=folder)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("y f32[4,8] min ")
    assert lines[1] == "calls i64[] min 3 mean 3 max 3"
    assert lines[2].startswith("latency over 2 runs after the first: median ")
    names: dict[str, object] = {}
    exec(compile(textwrap.dedent(_NET), "net.py", "exec"), names)
    net = names["net"]
    assert isinstance(net, torch.nn.Module)
    with np.load(folder / "out.npz") as outputs, torch.no_grad():
        np.testing.assert_allclose(outputs["y"], net(torch.from_numpy(x), 2.0)["y"].numpy(), rtol=1e-5, atol=1e-6)


def test_run_makes_inputs_up_from_a_seed(folder: Path) -> None:
    first, again, other = (succeeds("run", "net.bin", "--random", seed, cwd=folder).stdout for seed in ("1", "1", "2"))
    assert first == again
    assert first != other


def test_weights_are_replaced(folder: Path) -> None:
    names: dict[str, object] = {}
    exec(compile(textwrap.dedent(_NET), "net.py", "exec"), names)
    net = names["net"]
    assert isinstance(net, torch.nn.Module)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2)
    save_file({name: parameter.detach() for name, parameter in net.named_parameters()}, folder / "twice.safetensors")
    done = succeeds("weights", "replace", "net.bin", "twice.safetensors", "-o", "twice.bin", cwd=folder)
    assert (done.stdout, done.stderr) == ("twice.bin\n", "")
    x = np.ones((4, 8), np.float32)
    np.save(folder / "ones.npy", x)
    succeeds("run", "twice.bin", "--input", "ones.npy", "-o", "twice.npz", cwd=folder)
    with np.load(folder / "twice.npz") as outputs, torch.no_grad():
        np.testing.assert_allclose(outputs["y"], net(torch.from_numpy(x), 2.0)["y"].numpy(), rtol=1e-5, atol=1e-6)
    failed = tpuc("weights", "replace", "net.bin", "x.npy", cwd=folder)
    assert failed.returncode == 1
    assert "x.npy" in failed.stderr


_NOISE = """
import torch

class Noise(torch.nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)
"""


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the artifact of a model that draws random numbers, for cpu and a chip."""
    folder = tmp_path_factory.mktemp("noise")
    (folder / "noise.py").write_text(_NOISE)
    succeeds(
        "compile", "noise.py", "--shapes", "x=[4,8]", "--target", "cpu", "--target", "v5e", "-o", "noise.bin",
        cwd=folder,
    )  # fmt: skip
    return folder


def test_run_draws_random_numbers_from_a_seed(noise: Path) -> None:
    def run(*options: str) -> str:
        return succeeds("run", "noise.bin", "--random", "1", *options, cwd=noise).stdout

    assert run("--seed", "7") == run("--seed", "7")
    assert run("--seed", "7") != run("--seed", "8")
    assert run() == run("--seed", "0")


def test_inspect_says_that_a_program_is_random(folder: Path, noise: Path) -> None:
    assert "draws random numbers from a seed" in succeeds("inspect", "noise.bin", cwd=noise).stdout
    assert "random numbers" not in succeeds("inspect", "net.bin", cwd=folder).stdout


def test_run_without_a_cpu_executable_compiles_one_and_says_so(folder: Path) -> None:
    succeeds("compile", "net.py", "--shapes", "x=[4,8]", "--target", "v5e", "-o", "tpu.bin", cwd=folder)
    done = tpuc_with_cache("run", "tpu.bin", "--random", "1", cwd=folder)
    assert done.returncode == 0
    assert done.stderr.startswith("note: ")
    assert len(done.stderr.splitlines()) == 1
    assert tpuc_with_cache("run", "tpu.bin", "--random", "1", cwd=folder).stderr == ""
    refused = tpuc_with_cache("run", "tpu.bin", "--random", "1", "--no-recompile", cwd=folder)
    assert refused.returncode == 1
    assert "tpuc compile" in refused.stderr


def tpuc_with_cache(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tpuc.cli", *arguments]
    env = {**os.environ, "XDG_CACHE_HOME": str(cwd / "cache")}
    return subprocess.run(command, cwd=cwd, env=env, text=True, capture_output=True, timeout=300, check=False)


def test_inspect(folder: Path) -> None:
    text = succeeds("inspect", "net.bin", cwd=folder).stdout
    for part in ("net from net.py:net", "144 parameters", "input", "x=f32[4,8]", "state", "calls=i64[]", "v5e", "v4"):
        assert part in text
    manifest = json.loads(succeeds("inspect", "net.bin", "--json", cwd=folder).stdout)
    assert [executable["target"] for executable in manifest["entries"][0]["executables"]] == ["cpu", "v5e", "v4"]
    assert manifest["options"]["shapes"] == "x=f32[4,8] scale=2.0"


def test_targets_and_passes(folder: Path) -> None:
    assert [line.split()[0] for line in succeeds("targets", cwd=folder).stdout.splitlines()][-8:-1][-1] == "v7x"
    assert json.loads(succeeds("targets", "--json", cwd=folder).stdout)[3]["name"] == "v5e"
    assert "fold-transpose" in succeeds("passes", cwd=folder).stdout


def test_ops_lists_the_registry(folder: Path) -> None:
    rows = {row["operator"]: row for row in json.loads(succeeds("ops", "--json", cwd=folder).stdout)}
    assert rows["aten.view.default"]["how"] == "torch-mlir or jax"
    assert rows["aten.layer_norm.default"]["how"] == "jax"
    assert all(row["why"] and row["since"] for row in rows.values())
    lines = succeeds("ops", cwd=folder).stdout.splitlines()
    assert lines[0].split() == ["operator", "how", "why", "since"]
    assert [line.split()[0] for line in lines[1:] if line.startswith("aten.layer_norm")] == ["aten.layer_norm.default"]


def test_opt_runs_one_pass(folder: Path) -> None:
    (folder / "t.mlir").write_text(
        "func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {\n"
        "  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>\n"
        "  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<3x2xf32>) -> tensor<2x3xf32>\n"
        "  return %1 : tensor<2x3xf32>\n}\n"
    )
    assert "transpose" not in succeeds("opt", "--passes", "fold-transpose", "t.mlir", cwd=folder).stdout
    assert succeeds("opt", "--passes", "", "t.mlir", cwd=folder).stdout.count("transpose") == 2
    succeeds("opt", "t.mlir", "-o", "t2.mlir", cwd=folder)
    assert "transpose" not in (folder / "t2.mlir").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compile", "none.py"), "error: there is no file none.py"),
        (("compile", "net.py"), "error: the shapes of net.py's inputs are not known: forward takes x, scale"),
        (("compile", "net.py", "--shapes", "x=f33[4,8]"), "error: unknown dtype 'f33'"),
        (("compile", "net.py", "--shapes", "x=[4,8]", "--target", "v5"), "error: unknown target 'v5'"),
        (
            ("compile", "net.py", "--shapes", "x=[4,8]", "--target", "v5p:2x2x2"),
            "error: target 'v5p:2x2x2' has 8 chips",
        ),
        (("compile", "net.py", "--shapes", "x=[4,9]"), "error: forward failed on the example inputs: RuntimeError"),
        (("compile", "net.py", "--shapes", "x=[4,8]", "-o", "no/such/net.bin"), "error: there is no folder no/such"),
        (("run", "net.py"), "error: "),
        (("run", "none.bin"), "error: "),
        (("run", "net.bin"), "error: the input x=f32[4,8] is missing"),
        (("run", "net.bin", "--input", "z=x.npy", "--random", "1"), "error: the input z is unknown"),
        (("run", "net.bin", "--random", "1", "--seed", "1"), "error: a seed is given, and the program draws no random"),
        (("run", "net.bin", "--random", "1", "--device", "gpu"), "error: unknown device 'gpu'"),
        (("inspect", "net.py"), "error: "),
        (("opt", "net.py"), "error: net.py is not an MLIR module"),
        (("opt", "--passes", "fold", "t.mlir"), "error: unknown pass 'fold'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_clear_error(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    before = (folder / "net.bin").read_bytes()
    done = tpuc(*arguments, cwd=folder)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert (folder / "net.bin").read_bytes() == before


def test_wrong_usage_exits_with_2(folder: Path) -> None:
    assert tpuc("compile", cwd=folder).returncode == 2
    assert tpuc("run", "net.bin", "--repeat", "0", cwd=folder).returncode == 2
    done = tpuc("compile", "net.py", "--roll", "sometimes", cwd=folder)
    assert done.returncode == 2
    assert "'sometimes' is not one of 'auto', 'always', 'never'" in done.stderr


def test_debug_shows_the_traceback(folder: Path) -> None:
    assert "Traceback" in tpuc("compile", "none.py", "--debug", cwd=folder).stderr


def test_a_crash_ends_in_a_message(folder: Path) -> None:
    (folder / "crash.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    done = tpuc("compile", "crash.py", cwd=folder)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "error: tpuc was ended by SIGSEGV during load"
    assert "crash.py" in done.stderr


def test_too_large_for_the_chip_gives_the_bytes(folder: Path) -> None:
    (folder / "large.py").write_text(
        "import torch\ndef model(): return torch.nn.Linear(1 << 17, 1 << 16, bias=False)\n"
    )
    done = tpuc("compile", "large.py", "--shapes", "[1,131072]", "--weights", "none", "--target", "v5e", cwd=folder)
    assert done.returncode == 1
    assert "bytes of HBM, and one v5e has 16,9" in done.stderr
    assert "would help" in done.stderr
    assert not (folder / "model.bin").exists()


@pytest.mark.parametrize(
    ("send", "number", "code"),
    [(os.killpg, signal.SIGINT, 130), (os.kill, signal.SIGINT, 130), (os.kill, signal.SIGTERM, 143)],
    ids=["ctrl-c", "interrupt", "terminate"],
)
def test_who_stops_a_compile_keeps_the_old_artifact(
    folder: Path, send: Callable[[int, int], None], number: int, code: int
) -> None:
    before = (folder / "net.bin").read_bytes()
    command = [sys.executable, "-m", "tpuc.cli", "compile", "net.py", "--shapes", "x=[4,8]", "-o", "net.bin"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True)
    with process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("load ")
        send(process.pid, number)
        # Nobody who holds this open is left: the child that does the work has ended as well.
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == code
    assert (folder / "net.bin").read_bytes() == before
    assert not list(folder.glob(".net.bin.*"))


def test_external_and_missing_weights(folder: Path) -> None:
    succeeds("compile", "net.py", "--shapes", "x=[4,8] scale=2.0", "--weights", "external", "-o", "ext.bin", cwd=folder)
    assert len(list(folder.glob("ext.*.safetensors"))) == 1
    expected = succeeds("run", "net.bin", "--random", "1", cwd=folder).stdout
    assert succeeds("run", "ext.bin", "--random", "1", cwd=folder).stdout == expected
    succeeds("compile", "net.py", "--shapes", "x=[4,8] scale=2.0", "--weights", "none", "-o", "bare.bin", cwd=folder)
    refused = tpuc("run", "bare.bin", "--random", "1", cwd=folder)
    assert refused.returncode == 1
    assert "layers.0.proj.weight" in refused.stderr
    weights = next(folder.glob("ext.*.safetensors"))
    assert succeeds("run", "bare.bin", "--random", "1", "--weights", weights, cwd=folder).stdout == expected


def test_what_was_compiled_before_comes_from_the_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = ("compile", "net.py", "--shapes", "x=[2,8]", "--output", tmp_path / "net.bin")
    note = "1 of 1 executables had been compiled before, and came from the cache"
    with monkeypatch.context() as without:
        without.setenv("TPUC_NO_CACHE", "1")
        assert note not in succeeds(*command, cwd=folder).stderr
    assert note not in succeeds(*command, cwd=folder).stderr
    assert note in succeeds(*command, cwd=folder).stderr
