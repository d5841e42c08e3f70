"""Compares the ctypes structures with the C header that the package xla-cpu-pjrt ships."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

from tpuc.runtime import pjrt_abi

from .sample_artifacts import plugin_folder

HEADER = plugin_folder() / "include" / "pjrt_c_api.h"

STRUCTURES = {f"PJRT_{name}_Args": pjrt_abi.arguments(name) for name in pjrt_abi.ARGUMENTS} | {
    "PJRT_Program": pjrt_abi.Program,
    "PJRT_ExecuteOptions": pjrt_abi.ExecuteOptions,
    "PJRT_Buffer_MemoryLayout": pjrt_abi.MemoryLayout,
    "PJRT_Buffer_MemoryLayout_Tiled": pjrt_abi.TiledLayout,
    "PJRT_Api_Version": pjrt_abi.ApiVersion,
}


def fields(structure: type[ctypes.Structure]) -> list[str]:
    return [field[0] for field in structure._fields_ if field[0] != "spare"]


@pytest.fixture(scope="module")
def header() -> str:
    return HEADER.read_text()


def test_the_functions_stand_in_the_headers_order(header: str) -> None:
    declared = re.findall(r"_PJRT_API_STRUCT_FIELD\(PJRT_(\w+)\);", header)
    assert tuple(declared[: len(pjrt_abi.FUNCTIONS)]) == pjrt_abi.FUNCTIONS


def test_every_function_that_is_used_is_in_the_table() -> None:
    assert set(pjrt_abi.ARGUMENTS) <= set(pjrt_abi.FUNCTIONS)


def test_the_error_codes_are_the_headers(header: str) -> None:
    declared = re.findall(r"PJRT_Error_Code_(\w+) = (\d+)", header)
    assert [(name, str(number)) for number, name in enumerate(pjrt_abi.ERROR_CODES)] == declared


def test_every_field_has_the_headers_offset_and_size(header: str, tmp_path: Path) -> None:
    """Asks the C compiler, and for each structure whether the last field is the last one there too."""
    lines = ["#include <stdio.h>", f'#include "{HEADER}"', "int main(void) {"]
    expected = []
    for c_name, structure in STRUCTURES.items():
        for field in fields(structure):
            lines.append(
                f'printf("%zu %zu\\n", offsetof(struct {c_name}, {field}), sizeof(((struct {c_name} *)0)->{field}));'
            )
            descriptor = getattr(structure, field)
            expected.append((c_name, field, descriptor.offset, descriptor.size))
        last = fields(structure)[-1]
        lines.append(f'printf("%zu\\n", (size_t){c_name}_STRUCT_SIZE);')
        expected.append((c_name, "", getattr(structure, last).offset + getattr(structure, last).size, None))
    lines += [f'printf("%zu\\n", offsetof(PJRT_Api, PJRT_{name}));' for name in pjrt_abi.FUNCTIONS]
    expected += [("PJRT_Api", name, getattr(pjrt_abi.Api, name).offset, None) for name in pjrt_abi.FUNCTIONS]
    source = tmp_path / "offsets.c"
    source.write_text("\n".join([*lines, "return 0; }"]))
    subprocess.run(["cc", "-o", tmp_path / "offsets", source], check=True)
    output = subprocess.run([tmp_path / "offsets"], capture_output=True, text=True, check=True).stdout.splitlines()
    found = [tuple(map(int, line.split())) for line in output]
    assert found == [(offset,) if size is None else (offset, size) for _, _, offset, size in expected]


def test_a_structure_says_a_size_that_holds_newer_fields() -> None:
    made = pjrt_abi.make(pjrt_abi.ExecuteOptions)
    assert made.struct_size == ctypes.sizeof(pjrt_abi.ExecuteOptions)
    assert bytes(made)[ctypes.sizeof(ctypes.c_size_t) :].strip(b"\0") == b""


def test_the_shortest_table_with_a_function() -> None:
    last = pjrt_abi.FUNCTIONS[-1]
    assert pjrt_abi.function_end(last) == ctypes.sizeof(pjrt_abi.Api)
