"""Loading models: what is found in a file, and what is said when nothing is."""

import textwrap
from pathlib import Path

import pytest
import torch

from tpuc.errors import LoadError, RequestError
from tpuc.loader import LoadedModel, load_model
from tpuc.shapes import parse_shapes

_NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.fc = torch.nn.Linear(width, 2)

    def forward(self, x, mask=None):
        return self.fc(x)
"""


def _load(folder: Path, text: str, symbol: str = "", shapes: str = "x=f32[1,3]") -> LoadedModel:
    path = folder / "model.py"
    path.write_text(textwrap.dedent(text))
    return load_model(f"{path}:{symbol}" if symbol else str(path), shapes=parse_shapes(shapes) if shapes else ())


def test_the_only_class(tmp_path: Path) -> None:
    loaded = _load(tmp_path, _NET)
    assert loaded.name == "Net"
    assert loaded.source == f"{tmp_path / 'model.py'}:Net"
    assert loaded.notes[0] == "took Net from model.py"
    assert isinstance(loaded.program, torch.nn.Module)
    assert not loaded.program.training


def test_a_module_that_was_made_comes_before_classes(tmp_path: Path) -> None:
    assert _load(tmp_path, _NET + "class Other(Net): pass\nnet = Other()\n").name == "net"


def test_the_class_that_needs_no_arguments(tmp_path: Path) -> None:
    assert (
        _load(tmp_path, _NET + "class Block(Net):\n    def __init__(self, width): super().__init__(width)\n").name
        == "Net"
    )


def test_the_name_model_wins(tmp_path: Path) -> None:
    assert _load(tmp_path, _NET + "class Other(Net): pass\ndef model(): return Other()\n").name == "model"


def test_a_symbol_may_be_a_class_a_module_or_a_function(tmp_path: Path) -> None:
    text = _NET + "class Other(Net): pass\nmade = Other()\ndef make(): return Net(3)\n"
    for symbol in ("Net", "made", "make"):
        assert _load(tmp_path, text, symbol).name == symbol


def test_several_models_are_listed(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="several models: Net, Other") as error:
        _load(tmp_path, _NET + "class Other(Net): pass\n")
    assert (error.value.hint or "").endswith("model.py:Net")


def test_no_model(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="holds no model"):
        _load(tmp_path, "x = 1\n")


def test_no_such_symbol(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="has no 'Nett'") as error:
        _load(tmp_path, _NET, "Nett")
    assert error.value.hint == "It has Net."


def test_no_such_file(tmp_path: Path) -> None:
    (tmp_path / "model.py").touch()
    with pytest.raises(LoadError, match="there is no file") as error:
        load_model(str(tmp_path / "modle.py"))
    assert error.value.hint == f"Did you mean {tmp_path / 'model.py'}?"


def test_another_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    with pytest.raises(LoadError, match=r"neither a \.py file"):
        load_model(str(tmp_path / "model.onnx"))


def test_a_class_that_needs_arguments(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"Net in .* needs arguments: width") as error:
        _load(tmp_path, _NET.replace("width=3", "width"))
    assert "def model()" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit('bye')", "SystemExit: bye"),
        ("x = = 1", "SyntaxError"),
    ],
)
def test_an_error_in_the_file_names_its_line(tmp_path: Path, line: str, what: str) -> None:
    with pytest.raises(LoadError, match=r"running model\.py failed") as error:
        _load(tmp_path, f"import torch\n\n{line}\n")
    assert what in error.value.what
    assert error.value.where == f"{tmp_path / 'model.py'}:3"


def test_an_error_in_the_constructor_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="making Net failed: ValueError: no") as error:
        _load(tmp_path, _NET.replace("super().__init__()", "raise ValueError('no')"))
    assert error.value.where == f"{tmp_path / 'model.py'}:6"


def test_a_file_finds_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_model.py").write_text("WIDTH = 3\n")
    assert _load(tmp_path, "from neighbour_of_model import WIDTH\n" + _NET).name == "Net"


@pytest.mark.parametrize(
    ("maker", "args", "kwargs"),
    [
        ("(torch.ones(1, 3),)", 1, []),
        ("{'x': torch.ones(1, 3)}", 0, ["x"]),
        ("((torch.ones(1, 3),), {'mask': None})", 1, ["mask"]),
    ],
)
def test_example_inputs(tmp_path: Path, maker: str, args: int, kwargs: list[str]) -> None:
    loaded = _load(tmp_path, _NET + f"def example_inputs(): return {maker}\n", shapes="")
    assert (len(loaded.args), list(loaded.kwargs)) == (args, kwargs)


def test_neither_shapes_nor_example_inputs(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="forward takes x, mask") as error:
        _load(tmp_path, _NET, shapes="")
    assert "--shapes" in (error.value.hint or "")


def test_a_model_in_training_mode_is_put_in_inference_mode(tmp_path: Path) -> None:
    loaded = _load(tmp_path, _NET + "net = Net().train()\n")
    assert isinstance(loaded.program, torch.nn.Module)
    assert not loaded.program.training
    assert "--training" in loaded.notes[-1]


def test_an_exported_program(tmp_path: Path) -> None:
    path = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.zeros(1, 3),)), path)
    assert load_model(str(path)).name == "program"
    with pytest.raises(RequestError, match="takes no --shapes"):
        load_model(str(path), shapes=parse_shapes("x=f32[1,3]"))


def test_a_damaged_exported_program(tmp_path: Path) -> None:
    path = tmp_path / "program.pt2"
    path.write_bytes(b"not a program")
    with pytest.raises(LoadError, match="not a program that this PyTorch can read"):
        load_model(str(path))


def test_a_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"a folder without config\.json"):
        load_model(str(tmp_path))


def test_a_configuration_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[1, 2")
    with pytest.raises(LoadError, match="not a model's configuration"):
        load_model(str(tmp_path))


def test_an_architecture_that_transformers_lacks(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["NoSuchModel"]}')
    with pytest.raises(LoadError, match="has no NoSuchModel"):
        load_model(str(tmp_path))


def test_without_weights_a_model_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(_NET.replace("width=3", "width=1 << 36"))
    loaded = load_model(str(path), shapes=parse_shapes("x=f32[1,3]"), with_weights=False)
    assert isinstance(loaded.program, torch.nn.Module)
    weight = loaded.program.get_parameter("fc.weight")
    assert weight.is_meta
    assert weight.shape == (2, 1 << 36)
