"""The documents against the program: commands, options, folders and make targets that they name must be there."""

import re
import subprocess
from pathlib import Path

import click
import pytest

from tpuc.cli import main

_ROOT = Path(__file__).parents[1]
_README = (_ROOT / "README.md").read_text()
_CONTRIBUTING = (_ROOT / "CONTRIBUTING.md").read_text()
_DOCUMENTS = {"README.md": _README, "CONTRIBUTING.md": _CONTRIBUTING}


def _options() -> set[str]:
    return {option for command in main.commands.values() for parameter in command.params for option in parameter.opts}


def test_every_command_stands_in_the_readme() -> None:
    for name in main.commands:
        assert f"tpuc {name}" in _README


def test_every_command_that_the_documents_name_is_there() -> None:
    for text in _DOCUMENTS.values():
        for name in re.findall(r"tpuc ([a-z]+)\b", text.replace("\ntpuc compiles", "")):
            if name in ("takes", "is", "compiles", "does"):
                continue
            assert name in main.commands, name


def test_every_option_that_the_readme_names_is_there() -> None:
    options = _options()
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", _README):
        assert option in options, option


def test_every_command_and_option_says_what_it_does() -> None:
    for command in main.commands.values():
        assert command.help
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{command.name} {parameter.name}"


def test_every_make_target_that_the_documents_name_is_listed() -> None:
    listed = subprocess.run(["make", "help"], cwd=_ROOT, capture_output=True, text=True, check=True).stdout
    for text in _DOCUMENTS.values():
        for target in re.findall(r"make ([a-z-]+)", text):
            # `make bench-%` stands for every benchmark.
            is_benchmark = (_ROOT / "benchmarks" / f"{target.removeprefix('bench-')}.py").is_file()
            assert target in ("and", "it") or f"make {target}" in listed or is_benchmark, target


@pytest.mark.parametrize("document", _DOCUMENTS)
def test_every_path_that_a_document_names_is_there(document: str) -> None:
    for path in re.findall(r"`?\b((?:tpuc|passes|runtime|models|tests|benchmarks)/[\w/.-]*)", _DOCUMENTS[document]):
        if "my_" in path:
            continue
        assert (_ROOT / path).exists(), path


def test_documents_name_no_machine() -> None:
    for document in [*_ROOT.glob("*.md"), *(_ROOT / "docs").rglob("*.md"), *(_ROOT / "runtime").glob("*.md")]:
        assert not re.search(r"/(?:root|home|tmp)/", document.read_text()), document
