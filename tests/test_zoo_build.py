"""Building one model of the zoo: settings, what is compared, and what counts as a failure."""

import textwrap
from pathlib import Path

import pytest

from tpuc.errors import LoadError, RequestError
from tpuc.runtime.artifact import Artifact
from tpuc.zoo_build import ZooSettings, build, read_settings

_NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x) FORWARD

def example_inputs():
    return (torch.arange(3.0)[None],)
"""


def _file(folder: Path, text: str) -> Path:
    path = folder / "net.py"
    path.write_text(textwrap.dedent(text))
    return path


def _net(folder: Path, forward: str = "", more: str = "") -> Path:
    return _file(folder, _NET.replace("FORWARD", forward) + more)


def test_a_file_without_settings(tmp_path: Path) -> None:
    assert read_settings(_net(tmp_path), "cpu") == ZooSettings()


def test_settings_go_by_platform_and_the_file_is_not_run(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        """
        raise ValueError
        ZOO = {"tpu": {"symbol": "full", "weights": "none", "chips": ["v5e"]}, "cpu": {"shapes": "x=f32[2]"}}
        """,
    )
    assert read_settings(path, "tpu") == ZooSettings(symbol="full", weights="none", chips=("v5e",))
    assert read_settings(path, "cpu") == ZooSettings(shapes="x=f32[2]")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("make()", "not a literal"),
        ("{[]: {}}", "not a literal"),
        ("[]", "not a dict of dicts"),
        ("{'cpu': 1}", "not a dict of dicts"),
        ("{'gpu': {}}", "unknown platform: 'gpu'"),
        ("{'tpu': {'shape': 'x=f32[2]'}}", "unknown setting: 'shape'"),
        ("{'cpu': {'symbol': 1}}", "symbol in ZOO is not a text"),
        ("{'cpu': {'weights': 'some'}}", "unknown weights: 'some'"),
        ("{'cpu': {'chips': ['v9']}}", "unknown chip: 'v9'"),
        ("{'cpu': {'chips': 1}}", "chips in ZOO are not a list"),
        ("{'cpu': {'weights': 'none'}}", "cannot be compared"),
    ],
)
def test_settings_that_make_no_sense(tmp_path: Path, settings: str, message: str) -> None:
    path = _file(tmp_path, f"x = 1\nZOO = {settings}\n")
    with pytest.raises(RequestError, match=message) as error:
        read_settings(path, "cpu")
    assert error.value.where == f"{path}:2"


def test_a_near_name_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as error:
        read_settings(_file(tmp_path, "ZOO = {'tpu': {'shape': ''}}"), "cpu")
    assert (error.value.hint or "").startswith("Did you mean shapes?")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="No such file"):
        read_settings(tmp_path / "none.py", "cpu")
    path = _file(tmp_path, "x = 1\ndef (\n")
    with pytest.raises(LoadError, match="is not Python") as error:
        read_settings(path, "cpu")
    assert error.value.where == f"{path}:2"


def test_a_program_for_the_cpu_is_compared_with_eager(tmp_path: Path) -> None:
    path = _net(tmp_path, more="def check(output):\n    return [round(x, 3) for x in output.flatten().tolist()]\n")
    stages: list[str] = []
    record = build(path, "cpu", tmp_path / "net.bin", at=stages.append)
    assert (record.model, record.target, record.outcome, record.reason) == ("net", "cpu", "built", "")
    assert (record.parameters, record.inputs) == (8, ("x=f32[1,3]",))
    assert record.agreement is not None
    assert record.agreement.check is True
    assert 0 <= record.agreement.error < 1e-5
    assert record.memory["argument"] >= 4 * (8 + 3)
    assert stages == [*record.seconds, "comparison with eager"]
    assert Artifact.open(tmp_path / "net.bin").manifest.model.parameters == 8


def test_shapes_are_filled_with_random_numbers(tmp_path: Path) -> None:
    # On zeros all rows would be the same, and agree whatever the weights are.
    path = _net(tmp_path, more="def check(output):\n    assert (output.std(0) > 0).all()\n")
    path.write_text("ZOO = {'cpu': {'shapes': 'x=f32[5,3]'}}\n" + path.read_text())
    record = build(path, "cpu", tmp_path / "net.bin")
    assert (record.outcome, record.inputs) == ("built", ("x=f32[5,3]",))
    assert record.agreement is not None
    assert record.agreement.check is True


def test_outputs_that_differ_are_a_failure(tmp_path: Path) -> None:
    # What is exported is not what eager computes.
    record = build(_net(tmp_path, forward="+ torch.compiler.is_exporting()"), "cpu", tmp_path / "net.bin")
    assert record.outcome == "failed"
    assert "output differs from eager's by" in record.reason
    assert record.agreement is not None
    assert record.agreement.error > 1e-2


def test_a_check_that_differs_is_a_failure(tmp_path: Path) -> None:
    path = _net(tmp_path, more="def check(output):\n    return object()\n")
    record = build(path, "cpu", tmp_path / "net.bin")
    assert (record.outcome, record.reason) == ("failed", "check() does not come out as it does in eager")


def test_a_model_that_cannot_be_built_is_a_failure(tmp_path: Path) -> None:
    record = build(_net(tmp_path, forward="+ torch.ones(7)"), "cpu", tmp_path / "net.bin")
    assert record.outcome == "failed"
    assert "forward failed" in record.reason
    assert f"{tmp_path / 'net.py'}:10" in record.reason
    assert not (tmp_path / "net.bin").exists()


def test_an_unknown_target_is_a_failure(tmp_path: Path) -> None:
    record = build(_net(tmp_path), "v9", tmp_path / "net.bin")
    assert (record.outcome, record.target) == ("failed", "v9")
    assert "unknown target 'v9'" in record.reason


_TOO_LARGE = """
import torch

def model():
    return Outer()

class Outer(torch.nn.Module):
    def forward(self, x):
        return torch.exp(x[:, None] * x)

def example_inputs():
    return (torch.ones(100000),)
"""


@pytest.mark.parametrize(("chips", "outcome"), [("", "failed"), ("v5e", "failed"), ("v5p", "does not fit")])
def test_too_little_hbm_is_a_failure_of_a_chip_that_the_model_is_meant_for(
    tmp_path: Path, chips: str, outcome: str
) -> None:
    settings = f"ZOO = {{'tpu': {{'chips': {[chips] if chips else []}}}}}\n"
    record = build(_file(tmp_path, settings + _TOO_LARGE), "v5e", tmp_path / "net.bin")
    assert record.outcome == outcome
    assert "bytes of HBM, and one v5e has" in record.reason


def test_a_program_for_a_tpu_is_not_compared(tmp_path: Path) -> None:
    record = build(_net(tmp_path), "v5e", tmp_path / "net.bin")
    assert (record.outcome, record.agreement) == ("built", None)
    assert record.estimated_cycles is not None
    assert record.estimated_seconds == record.estimated_cycles / 1.5e9
    assert record.hbm_bytes == 17_200_000_000
